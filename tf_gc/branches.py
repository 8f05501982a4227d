"""Branches of a graph of which the one that is taken is the only one that costs time."""

from collections.abc import Callable

import tensorflow as tf

# 2.17 to 2.21.
from tensorflow.python.ops.cond_v2 import indexed_case


def cond(condition: tf.Tensor, then: Callable, otherwise: Callable):
    """Returns what `then` returns if a bool scalar is true, else what `otherwise` does.

    `tf.cond` becomes Switch and Merge ops, which pass the branch that is not taken, too: its ops
    are scheduled, and do nothing. Here the branch is called as a function, when all that it
    captures is there. It must not exchange anything with other workers: TensorFlow turns the loss
    of one into an InternalError where such an op is not its own.
    """
    index, branches = tf.cast(condition, tf.int32), [otherwise, then]
    if tf.executing_eagerly():
        return tf.switch_case(index, branches)
    return indexed_case(index, branches, lower_using_switch_merge=False)
