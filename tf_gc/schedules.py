"""Hyper-parameters that change while training.

Where a compressor takes a number that may change (a ratio, a sparsity
multiplier), it also takes a function of the step:

    tf_gc.ThreeLC(unit_multiplier=tf_gc.schedules.Linear(6.0, 8.0, steps=2000))
    tf_gc.TopK(ratio=keras.optimizers.schedules.PiecewiseConstantDecay([500], [0.1, 0.01]))

Any callable will do that can be hashed, and maps an int64 scalar tensor, the number
of steps done, to a scalar. Nothing is traced again: the values are inputs of the ops. All
workers must use the same ones.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops  # of TensorFlow 2.17 to 2.21

from tf_gc import checks

# A number, or the function of the step that gives it.
Hyperparameter = float | Callable[[tf.Tensor], tf.Tensor]


def at_step(hyperparameter: Hyperparameter, step: tf.Tensor) -> tf.Tensor:
    """Returns a hyper-parameter's value at a step, as a float32 scalar."""
    value = hyperparameter(step) if callable(hyperparameter) else hyperparameter
    return tf.cast(tf.convert_to_tensor(value), tf.float32)


def check(name: str, value: Hyperparameter, allowed: str, is_allowed: Callable[[float], bool]):
    """Checks a hyper-parameter that may be a schedule, whose values nobody knows yet.

    Raises:
      ValueError: the value is neither callable nor an allowed number, with the
        name and what is allowed; or it cannot be hashed, as a compressor must be.
    """
    if not callable(value):
        checks.number(name, value, allowed, is_allowed)
        return
    try:
        hash(value)
    except TypeError as error:
        raise ValueError(
            f"{name} must be hashable, got {value!r}: write @dataclasses.dataclass(frozen=True)"
        ) from error


@dataclasses.dataclass(frozen=True)
class Linear:
    """From one value to another in so many steps, and constant from then on.

        value = begin + (end - begin) min(1, max(0, step - start) / steps)

    Attributes:
      begin: the value until step `start`.
      end: the value from step `start` + `steps` on.
      steps: the number of steps in between, at least 1.
      start: the step with which it begins to change.

    Raises:
      ValueError: `steps` is less than 1, `start` negative, or an end no number.
    """

    begin: float
    end: float
    steps: int
    start: int = 0

    def __post_init__(self):
        for name in ("begin", "end"):
            checks.number(name, getattr(self, name), "a number", lambda value: True)
        checks.integer("steps", self.steps, 1)
        checks.integer("start", self.start, 0)

    def __call__(self, step):
        done = tf.cast(step - self.start, tf.float32) / self.steps
        return self.begin + (self.end - self.begin) * tf.clip_by_value(done, 0.0, 1.0)


class Adjustable:
    """A value that the program sets as it goes, in a callback, say.

        ratio = tf_gc.schedules.Adjustable(0.1)
        strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.TopK(ratio))
        ...
        ratio.assign(0.01)  # on all workers, between the same two steps

    Args:
      value: the first one.

    Raises:
      ValueError: it is no number.
    """

    def __init__(self, value: float):
        _check_value(value)
        self._initial = value
        self._variable = None  # not made before the strategy, which must be first

    def assign(self, value: float) -> None:
        """Sets the value for the steps that follow; ValueError if it is no number."""
        _check_value(value)
        self._initial = value
        if self._variable is not None:
            self._variable.assign(value)

    def __call__(self, step):
        del step
        if self._variable is None:
            # Not by tf.Variable: a strategy would mirror it, and tf.function would trace twice.
            with tf.init_scope(), tf.device("CPU:0"):
                self._variable = resource_variable_ops.ResourceVariable(
                    self._initial, trainable=False, dtype=tf.float32
                )
        return self._variable.read_value()

    def __repr__(self):
        return f"Adjustable({self._initial})"


def _check_value(value):
    if not tf.is_tensor(value):
        checks.number("value", value, "a number", lambda value: True)
