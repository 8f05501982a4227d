"""Worker processes that tests share."""

import os

import tensorflow as tf
from absl.testing import absltest

from tf_gc.testing.cluster import Cluster, WorkerError


def setUpModule():
    keras_of_tensorflow()  # that of this process is found before there is a cluster


def keras_of_tensorflow():
    return tf.keras.Model.__module__.split(".")[0]


class ClusterTest(absltest.TestCase):
    def test_a_dead_worker_is_said_to_be_dead_and_answers_stay_in_order(self):
        with Cluster(2) as cluster:
            pids = cluster.run(os.getpid)
            cluster.kill(1)
            with self.assertRaisesRegex(WorkerError, "the process died"):
                cluster.run(os.getppid)
            self.assertEqual(cluster.outcomes(os.getpid)[0], pids[0])

    def test_the_environment_says_which_keras_there_is(self):
        for environment, keras in ({}, "keras"), ({"TF_USE_LEGACY_KERAS": "1"}, "tf_keras"):
            with Cluster(1, environment) as cluster:
                self.assertEqual(cluster.run(keras_of_tensorflow), [keras])


if __name__ == "__main__":
    absltest.main()
