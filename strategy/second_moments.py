"""The second moments of reduced gradients, on their way to the optimizer.

Where a compressor delivers values late, in spikes, or with one magnitude, their
squares say little of the gradient's; optimizers that square it get the mean of
the workers' own squares instead, as an attribute of the reduced gradient.
"""

import inspect
import types

import tensorflow as tf
from absl import logging
from tf_gc.strategy.gradients import with_values
from tf_gc.strategy.variables import unwrap

_ATTRIBUTE = "_tf_gc_second_moment"


def attach(gradient, second_moment):
    """Makes a tensor the second moment of a reduced gradient."""
    setattr(gradient, _ATTRIBUTE, second_moment)


def of(gradient):
    """Returns the second moment of a reduced gradient, or None."""
    return getattr(gradient, _ATTRIBUTE, None)


def copy(gradient):
    """Returns a copy of a reduced gradient, and of its second moment, on the current device."""
    copied = with_values(gradient, tf.identity)
    if of(gradient) is not None:
        attach(copied, tf.identity(of(gradient)))
    return copied


def scale(gradient, scaled):
    """Gives a gradient that was made shorter the second moment of the longer one, as much so."""
    second_moment = of(gradient)
    if second_moment is None or scaled is gradient:
        return
    before, after = (tf.reduce_sum(tf.square(tf.cast(g, tf.float32))) for g in (gradient, scaled))
    attach(scaled, second_moment * tf.math.divide_no_nan(after, before))


class _Namespace:
    """A module in whose place a gradient's square is its second moment, where it has one."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        return getattr(self._module, name)

    def square(self, values):
        second_moment = of(values)
        if second_moment is None:
            return self._module.square(values)
        return tf.cast(second_moment, values.dtype)

    def cast(self, values, dtype):
        converted = self._module.cast(values, dtype)
        second_moment = of(values)
        if second_moment is not None and converted is not values:
            attach(converted, second_moment)
        return converted


def use_in(update_step):
    """Returns Keras's `update_step`, in which the gradient's square is its second moment.

    All else is Keras's own code. It finds `ops.square` (Keras 3) and `tf.square`
    (tf_keras) in its module, for which others stand in.
    """
    function = inspect.unwrap(update_step)
    namespace = dict(function.__globals__)
    namespace.update({n: _Namespace(namespace[n]) for n in ("ops", "tf") if n in namespace})
    in_namespace = types.FunctionType(
        function.__code__,
        namespace,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    in_namespace.__kwdefaults__ = function.__kwdefaults__

    def step(optimizer, gradient, variable, *args, **kwargs):
        is_centered = _is_centered(optimizer)
        if of(gradient) is None or is_centered:
            warn_without(optimizer, gradient, variable)
        run = function if is_centered else in_namespace
        return run(optimizer, gradient, variable, *args, **kwargs)

    step.uses_second_moment = True
    return step


def are_used_by(optimizer):
    """Whether an optimizer of Keras has an `update_step` from `use_in`."""
    functions = (vars(owner).get("update_step") for owner in type(optimizer).__mro__)
    uses = any(hasattr(function, "uses_second_moment") for function in functions)
    return uses and not _is_centered(optimizer)


def _is_centered(optimizer):
    """Whether it takes the mean's square from the mean of squares, which must be of the same."""
    return getattr(optimizer, "centered", False)


def warn_without(optimizer, gradient, variable):
    """Warns, once, where an optimizer squares a gradient that has lost its second moment."""
    global _has_warned
    expects = getattr(tf.distribute.get_strategy(), "expects_second_moment", None)
    is_sparse = isinstance(gradient, tf.IndexedSlices)
    if _has_warned or is_sparse or expects is None or not expects(unwrap(variable)):
        return
    _has_warned = True
    name = type(optimizer).__name__
    logging.warning(
        "%s squares compressed gradients, which come late and in spikes, and so takes steps that "
        "are too small: use tf_gc.optimizers.%s, and hand it gradients as they were reduced%s",
        name,
        name,
        ", with centered=False" if _is_centered(optimizer) else "",
    )


_has_warned = False
