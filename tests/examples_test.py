"""What the examples report of a training, and what the evaluations' tables say of reports."""

import pathlib
import sys
from unittest import mock

from absl.testing import absltest, parameterized

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))
import common


class RecorderTest(parameterized.TestCase):
    @parameterized.named_parameters(
        ("of_two_kinds", [9, 9, 9, *[1, 3] * 12, 1], 49 / 25),
        ("of_which_few_are_long", [9, 9, 9, *[1] * 40, 5, *[1] * 40, 5], 90 / 82),
        ("of_which_one_stalls", [9, 9, 9, *[1] * 10, 100, *[1] * 10], 1),
        ("of_which_there_is_one", [9, 9, 9, 2], 2),
        ("none", [9, 9, 9], None),
    )
    def test_seconds_per_step_are_those_of_all_kinds_of_steps(self, seconds, expected):
        recorder = common._Recorder("accuracy", mock.Mock())
        clock = [0.0]
        with mock.patch.object(common.time, "perf_counter", lambda: clock[0]):
            recorder.on_epoch_begin(0)
            for batch, step in enumerate(seconds):
                clock[0] += step
                recorder.on_train_batch_end(batch)
        if expected is None:
            self.assertIsNone(recorder.seconds_per_step)
        else:
            self.assertAlmostEqual(recorder.seconds_per_step, expected)


if __name__ == "__main__":
    absltest.main()
