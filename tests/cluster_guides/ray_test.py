"""The guide for Ray, on a Ray cluster of this machine alone: make clusters."""

import os
import pathlib
import subprocess
import sys

from absl.testing import absltest

_ROOT = pathlib.Path(__file__).resolve().parents[2]


class RayTest(absltest.TestCase):
    def test_two_workers_train_compressed(self):
        result = subprocess.run(
            [sys.executable, "examples/clusters/ray_train.py"],
            cwd=_ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, sys.path)]),
                "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",  # other work goes on beside it
                "RAY_USAGE_STATS_ENABLED": "0",
                "TF_CPP_MIN_LOG_LEVEL": "2",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(result.stdout)
        self.assertEqual(result.returncode, 0)
        for worker in range(2):
            line = rf"worker {worker} of 2: accuracy 0\.9\d+, 140 steps"
            self.assertRegex(result.stdout, line)


if __name__ == "__main__":
    absltest.main()
