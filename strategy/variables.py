"""One identity for a variable, whatever it is wrapped in."""

import collections
from collections.abc import Iterable
from typing import Any, TypeAlias

import tensorflow as tf

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices
# A variable is TensorFlow's or Keras's.
GradsAndVars: TypeAlias = Iterable[tuple[Gradient | None, Any]]

# Of the gradients that the ops take.
GRADIENT_DTYPES = (tf.float32, tf.float16, tf.bfloat16)


def unwrap(variable):
    """Returns the `tf.Variable`, mirrored if it is, that a variable stands for."""
    if hasattr(variable, "path") and hasattr(variable, "value"):
        variable = variable.value  # of Keras 3
    variable = getattr(variable, "_variable", variable)  # of tf_keras's mixed precision
    container = getattr(variable, "_distributed_container", None)
    return (container() or variable) if container else variable


def name_of(variable):
    """Returns the variable's path in Keras 3, else its name."""
    return getattr(variable, "path", None) or variable.name.split(":")[0]


def check_come_once(variables):
    """Raises `ValueError` if one of the variables, which have a gradient each, comes again."""
    counts = collections.Counter(unwrap(variable)._unique_id for variable in variables)
    for variable in variables:
        if counts[unwrap(variable)._unique_id] > 1:
            raise ValueError(
                f"{name_of(variable)} has more than one gradient: add them up before they are "
                "reduced or pushed"
            )


def checkpoint_name(name):
    """Returns a variable's name as checkpoints have it."""
    return name.replace("/", ".")


def unused_name(name, taken):
    """Returns a name, with a number behind it if need be, that is none of those taken."""
    candidate = name
    suffix = 0
    while candidate in taken:
        suffix += 1
        candidate = f"{name}_{suffix}"
    return candidate
