"""The second moments of reduced gradients, on their way to the optimizer.

Where a compressor delivers values late, in spikes, or with one magnitude, their
squares say little of the gradient's; optimizers that square it get the mean of
the workers' own squares instead, as an attribute of the reduced gradient.
"""

import contextlib
import contextvars
import inspect
import numbers
import types

import tensorflow as tf
from absl import logging
from tf_gc.strategy.gradients import with_values
from tf_gc.strategy.variables import unwrap

from tf_gc import ops
from tf_gc.compressors import scales
from tf_gc.second_moments import matrix_shape

_ATTRIBUTE = "_tf_gc_second_moment"
_WORKERS = "_tf_gc_workers"
# What `use_in` replaces.
_FUNCTIONS = ("update_step", "_adamw_update_step")
# The modules of Keras whose `update_step` squares no gradient.
_WITHOUT_SQUARES = {
    f"{package}.src.optimizers.{name}"
    for package in ("keras", "tf_keras")
    for name in ("sgd", "lion")
}
# Those that have Adam's m, under the name of `_momentums`.
_WITH_FIRST_MOMENTS = {"Adam", "AdamW", "Lamb", "Nadam"}
_CLIPPING = ("clipnorm", "global_clipnorm", "clipvalue")
# Momentum has (1 - beta_1) / (1 + beta_1) of the noise's square, in which workers do not agree.
# With a smaller beta_1 it is too much, and comes in spikes, as what was delivered does.
_LEAST_BETA = 0.7


def attach(gradient, second_moment, workers=1):
    """Makes a tensor the second moment of a reduced gradient.

    What so many workers agree in is not in it yet: the optimizer's update adds that.
    """
    setattr(gradient, _ATTRIBUTE, second_moment)
    setattr(gradient, _WORKERS, workers)


def of(gradient):
    """Returns the second moment of a reduced gradient, or None."""
    return getattr(gradient, _ATTRIBUTE, None)


def positive(second_moment, gradient):
    """Returns it or, where it is not positive, the square of the reduced gradient.

    An optimizer would divide by nothing what a residual delivers of a row whose gradients have
    become 0, or what one bit, which has no 0, makes of a value that always was.
    """
    square = tf.square(tf.cast(gradient, second_moment.dtype))
    return tf.where(second_moment > 0, second_moment, square)


def copy(gradient):
    """Returns a copy of a reduced gradient, and of its second moment, on the current device."""
    copied = with_values(gradient, tf.identity)
    if of(gradient) is not None:
        attach(copied, tf.identity(of(gradient)), getattr(gradient, _WORKERS))
    return copied


def scale(gradient, changed):
    """Gives what was made of a gradient its second moment, in the ratio of their squared lengths.

    Where the gradient is zero, and that says nothing, it is the square, or stays.
    """
    second_moment = of(gradient)
    if second_moment is None or changed is gradient:
        return
    squares = tf.square(tf.cast(changed, tf.float32))
    before, after = (
        scales.total(tf.reshape(values, [-1]))
        for values in (tf.square(tf.cast(gradient, tf.float32)), squares)
    )
    scaled = second_moment * tf.math.divide_no_nan(after, before)
    without_ratio = tf.where(after > 0, squares, second_moment)
    attach(changed, tf.where(before > 0, scaled, without_ratio), getattr(gradient, _WORKERS))


def first_moments(optimizer, variables, is_clipped=False):
    """Returns the momentum m of each variable before a step, and its weight.

    None without Adam's m, where the optimizer has not been built yet, with a small beta_1, and
    where the optimizer `clips_sums`, unless what m is added to `is_clipped`, too. The weight is
    1 - beta_1^t after t steps.
    """
    owners = {owner.__name__ for owner in type(optimizer).__mro__}
    if owners.isdisjoint(_WITH_FIRST_MOMENTS) or not getattr(optimizer, "_momentums", None):
        return None
    if isinstance(optimizer.beta_1, numbers.Real) and optimizer.beta_1 < _LEAST_BETA:
        return None
    if clips_sums(optimizer) and not is_clipped:
        return None
    if _is_of_keras_3(optimizer):
        indices = map(optimizer._get_variable_index, variables)
    else:  # which speaks of variables that it does not know when it updates them
        indices = (optimizer._index_dict.get(optimizer._var_key(v)) for v in variables)
    momenta = optimizer._momentums
    moments = [None if index is None else unwrap(momenta[index]) for index in indices]
    steps = tf.cast(optimizer.iterations, tf.float32)
    return moments, 1 - tf.pow(tf.cast(optimizer.beta_1, tf.float32), steps)


def clips_sums(optimizer):
    """Whether it is tf_keras's, and clips what was reduced: momentum is then of other gradients."""
    clips = any(getattr(optimizer, name, None) is not None for name in _CLIPPING)
    return clips and not _is_of_keras_3(optimizer)


def _is_of_keras_3(optimizer):
    return hasattr(optimizer, "_get_variable_index")


def share_of_first_moments(workers, weight):
    """Returns what the squares of first moments are multiplied by where they are added.

    The mean of N workers' gradients g has the second moment E|g|^2 / N + (1 - 1 / N) |E g|^2. What
    the workers know of each other is the first term alone; E g is the first moment of means.
    """
    return tf.math.divide_no_nan(1 - 1 / workers, tf.square(tf.cast(weight, tf.float32)))


# In an update on servers: what was delivered, by ids of the variables.
_delivered = contextvars.ContextVar("delivered", default=types.MappingProxyType({}))


@contextlib.contextmanager
def delivered(grads_and_vars):
    """Lets an optimizer have second moments of what it makes of these gradients."""
    by_id = {unwrap(variable)._unique_id: gradient for gradient, variable in grads_and_vars}
    token = _delivered.set(by_id)
    try:
        yield
    finally:
        _delivered.reset(token)


def _add_agreement(optimizer, gradient, variable):
    """Adds what workers agree in to a second moment that does not have it."""
    workers, moment = getattr(gradient, _WORKERS, 1), of(gradient)
    if workers == 1:
        return
    known = first_moments(optimizer, [variable], is_clipped=True)
    if known is None:
        return
    [first_moment], weight = known
    rows, _ = matrix_shape(moment.shape)
    squares = ops.mean_squares([first_moment], [rows])
    share = share_of_first_moments(workers, weight)
    [agreed] = ops.second_moments(squares, share, [rows], [moment.shape])
    attach(gradient, tf.where(tf.equal(moment, 0), moment, moment + agreed))


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

    def pow(self, values, exponent):
        if of(values) is not None and exponent == 2:
            return self.square(values)
        return self._module.pow(values, exponent)

    def cast(self, values, dtype):
        converted = self._module.cast(values, dtype)
        second_moment = of(values)
        if second_moment is not None and converted is not values:
            attach(converted, second_moment)
        return converted


def use_in(update_step):
    """Returns Keras's `update_step`, in which the gradient's square is its second moment.

    All else is Keras's own code. It finds `ops.square` (Keras 3), `tf.square` and
    `tf.pow` (tf_keras) in its module, for which others stand in.
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
        if of(gradient) is None and _delivered.get():
            scale(_delivered.get().get(unwrap(variable)._unique_id), gradient)
        if of(gradient) is None or is_centered:
            warn_without(optimizer, gradient, variable)
        _add_agreement(optimizer, gradient, variable)
        run = function if is_centered else in_namespace
        return run(optimizer, gradient, variable, *args, **kwargs)

    step.uses_second_moment = True
    return step


def are_used_by(optimizer):
    """Whether an optimizer of Keras has an `update_step` from `use_in`, or a part of it."""
    return _is_known(optimizer) and not _is_centered(optimizer)


def may_square(optimizer):
    """Whether an optimizer of Keras may square gradients where no second moment stands in."""
    update_step = getattr(type(optimizer), "update_step", None)  # legacy ones have none
    return (
        update_step is not None
        and not _is_known(optimizer)
        and update_step.__module__ not in _WITHOUT_SQUARES
    )


def _is_known(optimizer):
    owners = type(optimizer).__mro__
    functions = (vars(owner).get(name) for owner in owners for name in _FUNCTIONS)
    return any(hasattr(function, "uses_second_moment") for function in functions)


def _is_centered(optimizer):
    """Whether it takes the mean's square from the mean of squares, which must be of the same."""
    return getattr(optimizer, "centered", False)


def warn_without(optimizer, gradient, variable):
    """Warns, once, where an optimizer squares a gradient that has lost its second moment."""
    if not _expects(gradient, variable):
        return
    _warn_once(
        "%s squares compressed gradients, which come late and in spikes, and so takes steps that "
        "are too small: use %s, and hand it gradients as they were reduced%s",
        type(optimizer).__name__,
        _remedy(optimizer),
        ", with centered=False" if _is_centered(optimizer) else "",
    )


def warn_of_unknown(optimizer, grads_and_vars):
    """Warns, once, where nobody knows what an optimizer does with what was reduced."""
    if may_square(optimizer) and any(_expects(g, v) for g, v in grads_and_vars):
        _warn_once(
            "%s may square compressed gradients, which come late and in spikes, and so take steps "
            "that are too small: use %s, or another one that takes shared second moments",
            type(optimizer).__name__,
            _remedy(optimizer),
        )


def _remedy(optimizer):
    """Returns the class of its own Keras that takes second moments: its base, or Adam."""
    packages = ("keras", "tf_keras")
    bases = [b for b in type(optimizer).__mro__ if b.__module__.partition(".")[0] in packages]
    name = bases[0].__name__ if _is_known(optimizer) else "Adam"
    return f"{bases[-1].__module__.partition('.')[0]}.optimizers.{name}"


def _expects(gradient, variable):
    """Whether a reduced gradient should not be squared."""
    expects = getattr(tf.distribute.get_strategy(), "expects_second_moment", None)
    is_dense = gradient is not None and not isinstance(gradient, tf.IndexedSlices)
    return is_dense and expects is not None and expects(unwrap(variable))


def _warn_once(text, *arguments):
    global _has_warned
    if not _has_warned:
        _has_warned = True
        logging.warning(text, *arguments)


_has_warned = False
