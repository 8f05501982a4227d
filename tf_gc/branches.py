"""Branches of a graph of which the one that is taken is the only one that costs time.

`tf.cond` and `tf.switch_case` become Switch and Merge ops, which pass the branches that are not
taken, too: their ops are scheduled, and do nothing. Here a branch is called as a function. It
begins when all that it needs is there, as an exchange of a bucket does anyway.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

# 2.17 to 2.21.
from tensorflow.python.ops.cond_v2 import indexed_case


def switch_case(index: tf.Tensor, branches: Sequence[Callable], name: str = "switch_case"):
    """Returns what the branch with this index, an int32 scalar, returns."""
    if tf.executing_eagerly():
        return tf.switch_case(index, branches, name=name)
    return indexed_case(index, branches, name=name, lower_using_switch_merge=False)


def cond(condition: tf.Tensor, then: Callable, otherwise: Callable):
    """Returns what `then` returns if a bool scalar is true, else what `otherwise` does."""
    return switch_case(tf.cast(condition, tf.int32), [otherwise, then])
