"""Worker processes that tests share."""

import os

from absl.testing import absltest

from tf_gc.testing.cluster import Cluster, WorkerError


class ClusterTest(absltest.TestCase):
    def test_a_dead_worker_is_said_to_be_dead_and_answers_stay_in_order(self):
        with Cluster(2) as cluster:
            pids = cluster.run(os.getpid)
            cluster.kill(1)
            with self.assertRaisesRegex(WorkerError, "the process died"):
                cluster.run(os.getppid)
            self.assertEqual(cluster.outcomes(os.getpid)[0], pids[0])


if __name__ == "__main__":
    absltest.main()
