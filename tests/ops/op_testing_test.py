"""The helpers of the ops' tests, where a mistake would make tests pass."""

import os

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from tests import philox_reference
from tests.ops import op_testing


class RunOnThreadsTest(absltest.TestCase):
    def test_a_session_has_intra_op_threads_of_its_own(self):
        def threads():
            return tf.numpy_function(
                lambda: np.int64(len(os.listdir("/proc/self/task"))), [], tf.int64
            )

        [few] = op_testing.run_on_threads(1, threads)
        [many] = op_testing.run_on_threads(41, threads)
        self.assertGreaterEqual(many - few, 40)


class PhiloxWordsTest(absltest.TestCase):
    def test_are_those_of_the_slow_reference(self):
        for seed in 7, -7, (2**62 + 3, -5), (2**64 - 1, 2**40):
            self.assertEqual(
                op_testing.philox_words(seed, 5).tolist(), philox_reference.words(seed, 5).tolist()
            )


if __name__ == "__main__":
    absltest.main()
