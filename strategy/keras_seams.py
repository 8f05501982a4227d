"""The places in Keras that must know of compression.

Keras 3 and tf_keras optimizers each have one place where all gradients of a
step, with their variables, are reduced by one `all_reduce`. There, and nowhere
else, a gradient can be told from any other tensor and matched to its variable.

Keras 3's trainer builds a model from its first batch, which on several workers
it first reduces over them: integers, and batches of different sizes, to no
purpose, as only the shapes are used.

With parameter servers, optimizers as a whole run on the servers, for each update
once: there the call that applies gradients is replaced by one that pushes them.

There, too, variables are told apart by their names, which in Keras 3 are paths that TensorFlow's
variables do not know. And several workers add to one variable, of a metric or an optimizer, which
Keras 3 reads and then writes.

At the end of an epoch there may be fewer samples than workers. Some get an empty batch then, by
whose size Keras 3's batch normalization would divide.

Keras 3's loss scaling looks at the gradients before they are reduced: a worker
that finds its own finite would go on to the reduction alone, and wait for ever.

Where workers train by themselves (DiLoCo), a step begins where an optimizer is
called, and ends when it has updated the variables. A step that loss scaling leaves
out is left out on all workers, so that all count the same steps.
"""

import contextvars
import functools
import math
import numbers
import sys

import tensorflow as tf
from absl import logging
from tf_gc.strategy import keras_callbacks, second_moments, worker_step
from tf_gc.strategy.gradients import times
from tf_gc.strategy.variables import name_of, unwrap


def redirect():
    """Makes Keras 3 and tf_keras, where imported, work with compression.

    Done once for each. Under other strategies they work as before. Where a version of Keras has
    not got a place, an object of the class that should have it cannot be made under a strategy
    with compression; programs without one do not notice.
    """
    for module_name, class_name, function_name, wrap in _SEAMS:
        module = sys.modules.get(module_name)
        if module is None:
            continue
        owner = getattr(module, class_name, None) if class_name else module
        if hasattr(owner, function_name):
            _replace(owner, function_name, wrap)
            continue
        message = _UNKNOWN.format(
            keras=module_name.split(".")[0],
            place=".".join(filter(None, (module_name, class_name, function_name))),
        )
        if isinstance(owner, type):
            _replace(owner, "__init__", functools.partial(_refuse_to_make, message))
        else:
            logging.log_first_n(logging.WARNING, message, 1)


_UNKNOWN = (
    "tf_gc does not know this version of {keras}, which has no {place}. Install the version that "
    "TensorFlow asks for, or use strategy.reduce_gradients in a loop without {keras}"
)


def _replace(owner, name, wrap):
    function = getattr(owner, name)
    if not hasattr(function, "_tf_gc_redirected"):
        redirected = functools.wraps(function)(wrap(function))
        redirected._tf_gc_redirected = True
        setattr(owner, name, redirected)


def _refuse_to_make(message, init):
    def make(instance, *args, **kwargs):
        if getattr(tf.distribute.get_strategy(), "compression", None) is not None:
            raise RuntimeError(message)
        return init(instance, *args, **kwargs)

    return make


def _reduce_with_strategy(reduction):
    """For `reduction(optimizer, grads_and_vars)`."""

    def reduce(optimizer, grads_and_vars):
        if worker_step.in_update():
            return list(grads_and_vars)  # they have been; copies would have no second moments
        strategy = tf.distribute.get_strategy()
        if (
            getattr(strategy, "compression", None) is None
            or not hasattr(strategy, "reduce_gradients")
            or tf.distribute.in_cross_replica_context()
        ):
            return reduction(optimizer, grads_and_vars)
        grads_and_vars = list(grads_and_vars)
        is_scaled = getattr(optimizer, "_is_wrapped_by_loss_scale_optimizer", False)  # of tf_keras
        may_skip = getattr(optimizer, "_tf_gc_may_skip", is_scaled)
        if may_skip and strategy.num_replicas_in_sync > 1:
            grads_and_vars = _all_or_none(grads_and_vars)
        squares = second_moments.are_used_by(optimizer)
        variables = [variable for _, variable in grads_and_vars]
        reduced = strategy.reduce_gradients(
            _with_paths(grads_and_vars, optimizer),
            with_second_moments=squares,
            momentum=_momentum(optimizer) if squares else None,
            first_moments=second_moments.first_moments(optimizer, variables) if squares else None,
            optimizer_steps=tf.convert_to_tensor(optimizer.iterations) if squares else None,
        )
        if may_skip and (training := _local_training()):
            training.may_leave_out(variables)
        reduced = [(g, v) for (g, _), v in zip(reduced, variables, strict=True)]
        second_moments.warn_of_unknown(optimizer, reduced)
        return reduced

    return reduce


def _all_or_none(grads_and_vars):
    """Makes all gradients NaN where one is not finite on any worker.

    tf_keras looks at them after the reduction, and leaves out the step; what compression has
    delivered of the others would be lost. Of NaN it delivers nothing.
    """
    dense = [getattr(g, "values", g) for g, _ in grads_and_vars if g is not None]
    finite = tf.reduce_all([True, *(tf.reduce_all(tf.math.is_finite(v)) for v in dense)])
    factor = tf.where(_on_all_workers(finite), 1.0, math.nan)
    return [(g if g is None else times(g, factor), v) for g, v in grads_and_vars]


def _note_whether_it_may_skip(apply_gradients):
    """For tf_keras's loss scaling, which with a static scale applies what is not finite, too."""

    def apply(scaling, *args, **kwargs):
        scaling.inner_optimizer._tf_gc_may_skip = scaling.dynamic
        return apply_gradients(scaling, *args, **kwargs)

    return apply


def _momentum(optimizer):
    """Returns beta of the momentum m <- beta m + (1 - beta) g along which an optimizer steps.

    None where that is not known; 0 where it is of clipped sums.
    """
    if second_moments.clips_sums(optimizer):
        return 0.0
    beta = getattr(optimizer, "beta_1", None)
    # Nadam steps along the gradient itself, too, and ScheduleFreeAdamW along nothing else: its
    # beta_1 interpolates between variables. Muon, which has two momenta, has no beta_1.
    others = {"Nadam", "ScheduleFreeAdamW"}
    is_other = any(owner.__name__ in others for owner in type(optimizer).__mro__)
    steps_along_it = not is_other and isinstance(beta, numbers.Real)  # a tensor has no value yet
    return float(beta) if steps_along_it else None


def _aggregate_with_strategy(aggregate):
    """For tf_keras's legacy optimizers, which may have been given another function for it."""
    reduce = _reduce_with_strategy(aggregate)

    def reduce_by_default(optimizer, grads_and_vars):
        name = getattr(optimizer.gradient_aggregator, "__name__", "")
        is_default = name == "all_reduce_sum_gradients"
        return (reduce if is_default else aggregate)(optimizer, grads_and_vars)

    return reduce_by_default


def _with_paths(grads_and_vars, optimizer):
    """Gives back Keras 3's variables, which know their paths."""
    known = {id(v.value): v for v in getattr(optimizer, "_trainable_variables", ())}
    return [(gradient, known.get(id(v), v)) for gradient, v in grads_and_vars]


def _build_from_local_batch(maybe_symbolic_build):
    def build(trainer, iterator=None, data_batch=None):
        if iterator is not None:
            keras_callbacks.note_epoch_iterator(trainer, iterator)
        strategy = trainer._distribute_strategy
        if iterator is None or not hasattr(strategy, "reduce_gradients"):
            return maybe_symbolic_build(trainer, iterator, data_batch)
        for _, _, batches in iterator:
            data_batch = tf.nest.map_structure(
                lambda value: strategy.experimental_local_results(value)[0], next(batches)
            )
            break
        with strategy.scope():
            trainer._symbolic_build(data_batch=data_batch)

    return build


def _keep_moments_without_samples(moments):
    """For Keras 3's `_moments(normalization, inputs, mask)`, of inputs in training.

    Of no samples they are what the layer has seen before. Synchronized, they are those of other
    workers' samples.
    """

    def of_samples(normalization, inputs, mask):
        found = moments(normalization, inputs, mask)
        is_shared = normalization.synchronized and mask is None
        if is_shared or not hasattr(tf.distribute.get_strategy(), "reduce_gradients"):
            return found
        seen = normalization.moving_mean, normalization.moving_variance
        is_empty = tf.equal(tf.size(inputs), 0)
        return tuple(
            tf.where(is_empty, tf.cast(before, now.dtype), now)
            for before, now in zip(seen, found, strict=True)
        )

    return of_samples


def _check_all_workers(check_finite):
    def check(optimizer, grads):
        if _is_pushed():
            raise NotImplementedError(
                "LossScaleOptimizer keeps one scale, which the workers of parameter servers would "
                "all change, at different times: use the policy mixed_bfloat16, which needs none"
            )
        finite = check_finite(optimizer, grads)
        has_reducer = hasattr(tf.distribute.get_strategy(), "reduce_gradients")
        return _on_all_workers(finite) if has_reducer else finite

    return check


def _check_all_that_train_locally(is_all_finite):
    def check(grads):
        finite = is_all_finite(grads)
        return _on_all_workers(finite) if _local_training() else finite

    return check


def _on_all_workers(condition):
    """Whether a condition is true on all workers, as a bool scalar."""
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return condition
    broken = tf.cast(tf.logical_not(condition), tf.float32)
    return tf.equal(tf.distribute.get_replica_context().all_reduce("SUM", broken), 0.0)


def _local_training(optimizer=None):
    """What lets workers train by themselves where an optimizer is called, or None."""
    if tf.distribute.in_cross_replica_context():
        return None
    training = getattr(tf.distribute.get_strategy(), "local_training", None)
    if training and getattr(optimizer, "use_ema", False):
        raise ValueError(
            "use_ema cannot be used with tf_gc.DiLoCo: each worker would end with the average of "
            "its own copy of the model"
        )
    names = {base.__name__ for base in type(optimizer).__mro__}
    if training and (undoing := names & {"Ftrl", "ScheduleFreeAdamW"}):
        raise ValueError(
            f"{undoing.pop()} cannot be used with tf_gc.DiLoCo: it computes a variable anew from "
            "its own slots in each step, and would undo what the outer step has made of it"
        )
    return training


def _begin_local_step(apply):
    """For Keras 3's `apply(optimizer, ...)`."""

    def begin(optimizer, grads, trainable_variables=None):
        if training := _local_training(optimizer):
            if not optimizer.built and trainable_variables is not None:
                with tf.init_scope():
                    optimizer.build(list(trainable_variables))
            # Weight decay, which comes before gradients are reduced, is part of the step.
            training.begin_step(_trained(optimizer, grads, trainable_variables))
        return apply(optimizer, grads, trainable_variables)

    return begin


def _trained(optimizer, grads, variables):
    """Returns the variables of an optimizer that are not frozen, or have a gradient anyway."""
    pairs = zip(grads, variables or optimizer._trainable_variables, strict=False)
    given = {unwrap(variable)._unique_id for gradient, variable in pairs if gradient is not None}
    return [
        variable
        for variable in optimizer._trainable_variables
        if variable.trainable or unwrap(variable)._unique_id in given
    ]


def _end_local_step(backend_update_step):
    """For Keras 3's `_backend_update_step(optimizer, ...)`."""

    def update(optimizer, *args, **kwargs):
        backend_update_step(optimizer, *args, **kwargs)
        if training := _local_training():
            training.end_step(training.begun(optimizer._trainable_variables))

    return update


def _local_step(apply_gradients):
    """For tf_keras's `apply_gradients(optimizer, grads_and_vars, ...)`."""

    def step(optimizer, grads_and_vars, *args, **kwargs):
        training = _local_training(optimizer)
        if not training:
            return apply_gradients(optimizer, grads_and_vars, *args, **kwargs)
        grads_and_vars = list(grads_and_vars)
        variables = [variable for _, variable in grads_and_vars]
        training.begin_step(variables)
        result = apply_gradients(optimizer, grads_and_vars, *args, **kwargs)
        training.end_step(variables)
        return result

    return step


def _push_with_apply(apply):
    """For Keras 3's `apply(optimizer, grads, trainable_variables)`."""

    def push(optimizer, grads, trainable_variables=None):
        is_unknown = not optimizer.built and trainable_variables is None  # which Keras refuses
        if is_unknown or not _is_pushed():
            return apply(optimizer, grads, trainable_variables)
        variables = list(trainable_variables or optimizer._trainable_variables)
        if not optimizer.built:
            with tf.init_scope():
                optimizer.build(variables)
        grads_and_vars = list(zip(grads, variables, strict=True))
        second_moments.warn_of_unknown(optimizer, grads_and_vars)
        tf.distribute.get_strategy().push_gradients(
            grads_and_vars, lambda reduced: apply(optimizer, *zip(*reduced, strict=True)), optimizer
        )
        return None

    return push


def _push_with_apply_gradients(apply_gradients):
    """For tf_keras's `apply_gradients(optimizer, grads_and_vars, ...)`."""

    def push(optimizer, grads_and_vars, name=None, *args, **kwargs):
        if not _is_pushed():
            return apply_gradients(optimizer, grads_and_vars, name, *args, **kwargs)
        grads_and_vars = list(grads_and_vars)
        variables = [variable for _, variable in grads_and_vars]
        with tf.init_scope():
            if hasattr(optimizer, "build"):
                optimizer.build(variables)
                kwargs = {"skip_gradients_aggregation": True}
            else:  # of tf_keras.optimizers.legacy
                optimizer._create_all_weights(variables)
                kwargs = {}
        second_moments.warn_of_unknown(optimizer, grads_and_vars)
        tf.distribute.get_strategy().push_gradients(
            grads_and_vars,
            lambda reduced: apply_gradients(optimizer, reduced, name=name, **kwargs),
            optimizer,
        )
        return optimizer.iterations

    return push


def _is_pushed():
    """Whether gradients of an optimizer that is called here go to parameter servers."""
    return (
        hasattr(tf.distribute.get_strategy(), "push_gradients")
        and worker_step.current_step() is not None
        and not worker_step.in_update()
    )


def _add_at_once(assign_add):
    """Keras 3 reads and writes, and would lose what another worker adds in between."""

    def add(variable, value):
        from keras.src.backend.common.stateless_scope import in_stateless_scope

        has_servers = hasattr(tf.distribute.get_strategy(), "push_gradients")
        if not has_servers or in_stateless_scope():
            return assign_add(variable, value)
        stored = variable._value  # variable.value may be cast
        stored.assign_add(tf.broadcast_to(tf.cast(value, stored.dtype), stored.shape))
        return variable

    return add


def _refuse_on_servers(method):
    def refuse(trainer, *args, **kwargs):
        if hasattr(trainer.distribute_strategy, "push_gradients"):
            raise NotImplementedError(
                f"Keras 3's {method.__name__} has no mode for parameter servers. Use a loop with "
                "tf.distribute.coordinator.ClusterCoordinator, or tf_keras: pip install tf-keras, "
                "and TF_USE_LEGACY_KERAS=1 in the environment"
            )
        return method(trainer, *args, **kwargs)

    return refuse


def _warn_of_squares(apply_dense):
    """For tf_keras's legacy optimizers, whose fused ops square the gradient."""

    def apply(optimizer, grad, var, apply_state=None):
        second_moments.warn_without(optimizer, grad, var)
        return apply_dense(optimizer, grad, var, apply_state)

    return apply


def _clip_second_moments(clip_gradients):
    """tf_keras clips what was reduced."""

    def clip(optimizer, grads):
        clipped = clip_gradients(optimizer, grads)
        for before, after in zip(grads, clipped, strict=True):
            second_moments.scale(before, after)
        return clipped

    return clip


def _update_without_xla(update_step_xla):
    """Compiled, tf_keras's update would not see what is attached to the gradient."""

    def update(optimizer, gradient, variable, key):
        if second_moments.of(gradient) is None:
            return update_step_xla(optimizer, gradient, variable, key)
        return optimizer._update_step(gradient, variable)

    return update


# Of the Keras 3 variable that is being made. Those of layers within layers are made when the scopes
# of their names are closed.
_path = contextvars.ContextVar("path of the variable", default=None)


def _with_path(initialize):
    def initialize_with_path(variable, value):
        token = _path.set(variable.path)
        try:
            return initialize(variable, value)
        finally:
            _path.reset(token)

    return initialize_with_path


def path_of_new(variable):
    """Returns the name of a variable that is being made: in Keras 3 its path."""
    return _path.get() or name_of(variable)


_TRAINER = ("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer")
_KERAS_OPTIMIZER = ("keras.src.backend.tensorflow.optimizer", "TFOptimizer")
_TF_KERAS_OPTIMIZER = ("tf_keras.src.optimizers.optimizer", "Optimizer")
_TF_KERAS_BASE_OPTIMIZER = ("tf_keras.src.optimizers.optimizer", "_BaseOptimizer")
_LEGACY_OPTIMIZER = ("tf_keras.src.optimizers.legacy.optimizer_v2", "OptimizerV2")
_LOSS_SCALING = "tf_keras.src.mixed_precision.loss_scale_optimizer"


def _local_step_or_push(apply_gradients):
    return _local_step(_push_with_apply_gradients(apply_gradients))


# (module, class or None, function, what replaces it). The comments name the versions that have it,
# of those looked at: Keras 3.2, 3.5, 3.8, 3.10, 3.12 and 3.15, tf_keras 2.17 to 2.21.
_SEAMS = (
    # Keras 3.2 to 3.15
    ("keras.src.backend.tensorflow.core", "Variable", "_initialize", _with_path),
    (
        "keras.src.layers.normalization.batch_normalization",
        "BatchNormalization",
        "_moments",
        _keep_moments_without_samples,
    ),
    (
        "keras.src.optimizers.base_optimizer",
        "BaseOptimizer",
        "apply",
        lambda apply: _begin_local_step(_push_with_apply(apply)),
    ),
    (
        "keras.src.optimizers.loss_scale_optimizer",
        "LossScaleOptimizer",
        "check_finite",
        _check_all_workers,
    ),
    *((*_TRAINER, function, _refuse_on_servers) for function in ("fit", "evaluate", "predict")),
    *(  # Lamb from 3.4 on
        (f"keras.src.optimizers.{name.lower()}", name, "update_step", second_moments.use_in)
        for name in ("Adafactor", "Adagrad", "Adam", "Ftrl", "Lamb", "Nadam", "RMSprop")
    ),
    # Keras 3.5 to 3.15
    (*_KERAS_OPTIMIZER, "_all_reduce_sum_gradients", _reduce_with_strategy),
    (*_KERAS_OPTIMIZER, "_backend_update_step", _end_local_step),
    (*_TRAINER, "_maybe_symbolic_build", _build_from_local_batch),
    # Keras 3.8 to 3.15; used: _value, in_stateless_scope
    ("keras.src.backend.common.variables", "Variable", "assign_add", _add_at_once),
    # Keras 3.15; earlier versions may have no such modules
    (
        "keras.src.optimizers.schedule_free_adamw",
        "ScheduleFreeAdamW",
        "update_step",
        second_moments.use_in,
    ),
    (
        "keras.src.optimizers.muon",
        "Muon",
        "_adamw_update_step",  # the other variables' squares nothing
        second_moments.use_in,
    ),
    # tf_keras 2.17 to 2.21
    (
        "tf_keras.src.engine.data_adapter",
        "DataHandler",
        "enumerate_epochs",
        keras_callbacks.leave_out_first_batches,
    ),
    (*_TF_KERAS_OPTIMIZER, "aggregate_gradients", _reduce_with_strategy),
    (*_LEGACY_OPTIMIZER, "_aggregate_gradients", _aggregate_with_strategy),
    (*_TF_KERAS_OPTIMIZER, "apply_gradients", _local_step_or_push),
    (*_LEGACY_OPTIMIZER, "apply_gradients", _local_step_or_push),
    (*_TF_KERAS_BASE_OPTIMIZER, "_clip_gradients", _clip_second_moments),
    (*_TF_KERAS_BASE_OPTIMIZER, "_update_step_xla", _update_without_xla),
    (_LOSS_SCALING, None, "_is_all_finite", _check_all_that_train_locally),
    *(
        (_LOSS_SCALING, name, "apply_gradients", _note_whether_it_may_skip)
        for name in ("LossScaleOptimizer", "LossScaleOptimizerV3")
    ),
    *(
        (f"tf_keras.src.optimizers.{name.lower()}", name, "update_step", second_moments.use_in)
        for name in ("Adafactor", "Adam", "AdamW", "Ftrl", "Nadam", "RMSprop")
    ),
    *(
        (
            f"tf_keras.src.optimizers.legacy.{name.lower()}",
            name,
            "_resource_apply_dense",
            _warn_of_squares,
        )
        for name in ("Adadelta", "Adagrad", "Adam", "Ftrl", "Nadam", "RMSprop")
    ),
)
