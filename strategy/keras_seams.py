"""The places in Keras that must know of compression.

Keras 3 and tf_keras optimizers each have one place where all gradients of a
step, with their variables, are reduced by one `all_reduce`. There, and nowhere
else, a gradient can be told from any other tensor and matched to its variable.

Keras 3's trainer builds a model from its first batch, which on several workers
it first reduces over them: integers, and batches of different sizes, to no
purpose, as only the shapes are used.

Keras 3's loss scaling looks at the gradients before they are reduced: a worker
that finds its own finite would go on to the reduction alone, and wait for ever.
"""

import functools
import sys

import tensorflow as tf


def redirect():
    """Makes Keras 3 and tf_keras, where imported, work with compression.

    Done once for each. Under other strategies they work as before.

    Raises:
      RuntimeError: this version of Keras has no such place.
    """
    for module_name, class_name, function_name, wrap in _SEAMS:
        module = sys.modules.get(module_name)
        if module is None:
            continue
        owner = getattr(module, class_name, None) if class_name else module
        function = getattr(owner, function_name, None)
        if function is None:
            raise RuntimeError(
                f"tf_gc does not know this version of {module_name.split('.')[0]}: {module_name} "
                f"has no {function_name}. Install the version that TensorFlow asks for, or use "
                "strategy.reduce_gradients in a loop of your own"
            )
        if not hasattr(function, "_tf_gc_redirected"):
            redirected = functools.wraps(function)(wrap(function))
            redirected._tf_gc_redirected = True
            setattr(owner, function_name, redirected)


def _reduce_with_strategy(reduction):
    """For both `reduction(grads_and_vars)` and `reduction(optimizer, grads_and_vars)`."""

    def reduce(*args):
        strategy = tf.distribute.get_strategy()
        if (
            getattr(strategy, "compression", None) is None
            or tf.distribute.in_cross_replica_context()
        ):
            return reduction(*args)
        *optimizer, grads_and_vars = args
        grads_and_vars = list(grads_and_vars)
        reduced = strategy.reduce_gradients(_with_paths(grads_and_vars, *optimizer))
        return [(g, v) for (g, _), (_, v) in zip(reduced, grads_and_vars, strict=True)]

    return reduce


def _with_paths(grads_and_vars, optimizer=None):
    """Gives back Keras 3's variables, which know their paths."""
    if optimizer is None:
        return grads_and_vars
    known = {id(v.value): v for v in optimizer._trainable_variables}
    return [(gradient, known.get(id(v), v)) for gradient, v in grads_and_vars]


def _build_from_local_batch(maybe_symbolic_build):
    def build(trainer, iterator=None, data_batch=None):
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


def _check_all_workers(check_finite):
    def check(optimizer, grads):
        finite = check_finite(optimizer, grads)
        strategy = tf.distribute.get_strategy()
        if not hasattr(strategy, "reduce_gradients") or strategy.num_replicas_in_sync == 1:
            return finite
        broken = tf.cast(tf.logical_not(finite), tf.float32)
        return tf.equal(tf.distribute.get_replica_context().all_reduce("SUM", broken), 0.0)

    return check


# (module, class or None, function, what replaces it)
_SEAMS = (
    (
        "keras.src.backend.tensorflow.optimizer",
        "TFOptimizer",
        "_all_reduce_sum_gradients",
        _reduce_with_strategy,
    ),
    (
        "tf_keras.src.optimizers.utils",
        None,
        "all_reduce_sum_gradients",
        _reduce_with_strategy,
    ),
    (
        "keras.src.backend.tensorflow.trainer",
        "TensorFlowTrainer",
        "_maybe_symbolic_build",
        _build_from_local_batch,
    ),
    (
        "keras.src.optimizers.loss_scale_optimizer",
        "LossScaleOptimizer",
        "check_finite",
        _check_all_workers,
    ),
)
