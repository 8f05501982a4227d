"""Branches of a graph of which the one that is taken is the only one that costs time.

`tf.cond` and `tf.switch_case` become Switch and Merge ops, which pass the branches that are not
taken, too: each of their ops is scheduled, and does nothing. Here a branch is a function that is
called if it is taken. It begins when all that it needs is there.

A branch may exchange values with other workers. TensorFlow turns the loss of a worker into an
InternalError unless the op in which it is noticed is marked as communication. The op that calls a
function is marked, a Case op is not; so the latter becomes Switch and Merge ops, around the calls.
"""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf


def switch_case(index: tf.Tensor, branches: Sequence[Callable], name: str = "switch_case"):
    """Returns what the branch with this index, an int32 scalar, returns."""
    if not tf.executing_eagerly():
        branches = [functools.partial(_call, branch) for branch in branches]
    return tf.switch_case(index, branches, name=name)


def cond(condition: tf.Tensor, then: Callable, otherwise: Callable):
    """Returns what `then` returns if a bool scalar is true, else what `otherwise` does."""
    return switch_case(tf.cast(condition, tf.int32), [otherwise, then])


def _call(branch):
    not_inlined = {"_noinline": True}
    return tf.function(branch, autograph=False, experimental_attributes=not_inlined)()
