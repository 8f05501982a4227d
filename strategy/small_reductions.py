"""Reductions of a few numbers that are no gradients: Keras's logs and metrics."""

import dataclasses
import itertools
import weakref

import tensorflow as tf
from tf_gc.strategy import tensorflow_internals as internals

from tf_gc import ops

# The same on all workers, as these make the same strategies in the same order.
_numbers = itertools.count()

# All send to all: of more, a ring would send less.
_MOST_BYTES = 4096
_FLOAT_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
_INTEGER_DTYPES = (tf.int32, tf.int64)


class SmallReductions:
    """Sums and means of scalars and small variables, which each worker sends to all others.

    Keras reduces each of its logs in every step, and each of a metric's variables when it is read
    or reset. In TensorFlow's ring such a value takes 2 (N - 1) hops, and waits for the one before;
    here it takes at most log2 N, rounded up, and those of a function travel side by side. Other
    tensors are left to TensorFlow: what is known of their shapes may differ between the workers'
    traces.
    """

    def __init__(self, device, exchange):
        self._device = device
        self._exchange = exchange  # without a bucket
        self._number = next(_numbers)
        self._buckets = []
        self._counts = weakref.WeakKeyDictionary()  # graph -> reductions in it so far

    def handles(self, reduce_op, value):
        """Whether this, and not TensorFlow, is to reduce a worker's value."""
        if isinstance(value, tf.Variable):
            is_small = value.shape.is_fully_defined() and _bytes(value) <= _MOST_BYTES
        else:
            is_small = isinstance(value, tf.Tensor) and value.shape.rank == 0
        is_sum = reduce_op == tf.distribute.ReduceOp.SUM
        return (
            is_small
            and (value.dtype in _FLOAT_DTYPES or (is_sum and value.dtype in _INTEGER_DTYPES))
            and not internals.in_save_context()
            and not internals.is_compiled()
        )

    def reduce(self, reduce_op, value):
        """Returns the sum or mean of all workers' values, the same bits on each.

        Args:
          reduce_op: a `tf.distribute.ReduceOp`.
          value: a tensor or variable that it `handles`.
        """
        with tf.device(self._device):
            value = tf.convert_to_tensor(value)
            exchange = dataclasses.replace(self._exchange, bucket=self._next_bucket())
            rows = exchange.all_gather(value)
            total = tf.reduce_sum(tf.cast(rows, _wide(value.dtype)), axis=0)
            if reduce_op == tf.distribute.ReduceOp.MEAN:
                total /= exchange.workers
            return tf.ensure_shape(tf.cast(total, value.dtype), value.shape)

    def _next_bucket(self):
        """Returns that of the first, second ... reduction of a function, in every trace.

        So neither waits for the other. In control flow the first is counted anew; where two have
        one bucket, TensorFlow runs them in the program's order.
        """
        count = 0
        if not tf.executing_eagerly():
            graph = tf.compat.v1.get_default_graph()
            count = self._counts.get(graph, 0)
            self._counts[graph] = count + 1
        while len(self._buckets) <= count:
            key = f"small {self._number} {len(self._buckets)}"
            with tf.init_scope(), tf.device(self._device):
                self._buckets.append(ops.bucket(key, 1, "a value that is no gradient"))
        return self._buckets[count]


def _bytes(variable):
    return variable.shape.num_elements() * variable.dtype.size


def _wide(dtype):
    return tf.float32 if dtype.size < 4 else dtype
