"""What the tests of ops share."""

import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import testing

testing.set_up_hypothesis(max_examples=30)

# Read when the first device is made: every session's device gets intra-op
# threads of its own, in place of one pool for the process.
os.environ["TF_OVERRIDE_GLOBAL_THREADPOOL"] = "1"
# Eager ops and functions share their work out on machines of one core, too.
tf.config.threading.set_intra_op_parallelism_threads(3)

# How a test calls the ops: as they are, and in a graph.
MODES = (
    ("eager", lambda function: function),
    ("graph", lambda function: tf.function(function, autograph=False, reduce_retracing=True)),
)

# What wrong types raise: at the conversion to a tensor, or in the op.
_REFUSALS = (tf.errors.InvalidArgumentError, TypeError, ValueError)


def as_bytes(values):
    """A uint8 vector, of no values too."""
    return tf.constant(values, tf.uint8, shape=[len(values)])


def traced(function, *specs):
    """The graph's outputs for inputs of which only the specs are known."""
    graph = tf.function(function, autograph=False)
    return graph.get_concrete_function(*specs).structured_outputs


def philox_words(seed, blocks):
    """The words of TensorFlow's own stream, uint32 [blocks, 4]."""
    key, stream = seed if np.ndim(seed) else (seed, 0)
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[blocks, 4],
        key=tf.constant([key % 2**64], tf.uint64),
        counter=tf.constant([0, stream % 2**64], tf.uint64),
        alg=1,
        dtype=tf.uint32,
    ).numpy()


def run_on_threads(threads, function, *arrays):
    """The list of results of a graph in a session with so many intra-op threads."""
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        # Not constants, of which the results might be computed beforehand.
        inputs = [tf.compat.v1.placeholder(array.dtype, array.shape) for array in arrays]
        results = tf.nest.flatten(function(*inputs))
        return session.run(results, dict(zip(inputs, arrays, strict=True)))


class OpTestCase(parameterized.TestCase):
    """A test case with assertions about ops."""

    def assert_invalid(self, message, function, *args):
        """The call fails with an InvalidArgumentError."""
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
            function(*args)

    def assert_data_loss(self, message, function, *args):
        """The call fails with a DataLossError."""
        with self.assertRaisesRegex(tf.errors.DataLossError, message):
            function(*args)

    def assert_refused(self, calls):
        """Each of the calls (function, args) fails, for its types or shapes."""
        for function, args in calls:
            with self.subTest(function=function.__name__), self.assertRaises(_REFUSALS):
                function(*args)

    def assert_refused_while_tracing(self, calls):
        """Each of the calls (message, function, spec) fails before the graph runs."""
        for message, function, spec in calls:
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message):
                traced(function, spec)

    def assert_no_gradient(self, function, values):
        """None of the function's results has a gradient."""
        values = tf.constant(values)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(values)
            results = [tf.cast(result, tf.float32) for result in tf.nest.flatten(function(values))]
        self.assertNotEmpty(results)
        for result in results:
            self.assertIsNone(tape.gradient(result, values))

    def assert_same_on_any_threads(self, function, *arrays):
        """The bits are the same eagerly, in a tf.function and on 1 to 3 threads; returns them."""
        results = [result.numpy() for result in tf.nest.flatten(function(*arrays))]
        self.assertNotEmpty(results)
        graph = tf.function(function, autograph=False)
        for others in (
            [result.numpy() for result in tf.nest.flatten(graph(*arrays))],
            *(run_on_threads(threads, function, *arrays) for threads in (1, 2, 3)),
        ):
            for result, other in zip(results, others, strict=True):
                self.assertEqual(other.dtype, result.dtype)
                self.assertEqual(other.shape, result.shape)
                self.assertTrue(other.tobytes() == result.tobytes())
        return results
