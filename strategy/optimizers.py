"""Where Keras's optimizers add up gradients over replicas.

Keras 3 and tf_keras optimizers each have one place where all gradients of a
step, with their variables, are reduced by one `all_reduce`. There, and nowhere
else, a gradient can be told from any other tensor and matched to its variable.
"""

import functools
import sys

import tensorflow as tf

# (module, class or None, function (self, grads_and_vars) or (grads_and_vars))
_SEAMS = (
    ("keras.src.backend.tensorflow.optimizer", "TFOptimizer", "_all_reduce_sum_gradients"),
    ("tf_keras.src.optimizers.utils", None, "all_reduce_sum_gradients"),
)


def redirect_reductions():
    """Lets strategies with a `reduce_gradients` reduce optimizers' gradients.

    Done once for each of Keras 3 and tf_keras, if it has been imported. Under
    any other strategy the optimizers work as before.

    Raises:
      RuntimeError: this version of Keras has no such place.
    """
    for module_name, class_name, function_name in _SEAMS:
        module = sys.modules.get(module_name)
        if module is None:
            continue
        owner = getattr(module, class_name, None) if class_name else module
        reduction = getattr(owner, function_name, None)
        if reduction is None:
            raise RuntimeError(
                f"tf_gc does not know where this version of {module_name.split('.')[0]} reduces "
                f"gradients ({module_name} has no {function_name}): use strategy.reduce_gradients "
                "in a loop of your own, or another version"
            )
        if not hasattr(reduction, "_tf_gc_redirected"):
            setattr(owner, function_name, _redirected(reduction))


def _redirected(reduction):
    @functools.wraps(reduction)
    def reduce(*args):
        strategy = tf.distribute.get_strategy()
        if getattr(strategy, "compression", None) is None or tf.distribute.in_cross_replica_context():
            return reduction(*args)
        *optimizer, grads_and_vars = args
        grads_and_vars = list(grads_and_vars)
        reduced = strategy.reduce_gradients(_with_paths(grads_and_vars, *optimizer))
        return [(g, v) for (g, _), (_, v) in zip(reduced, grads_and_vars, strict=True)]

    reduce._tf_gc_redirected = True
    return reduce


def _with_paths(grads_and_vars, optimizer=None):
    """Gives back Keras 3's variables, which know their paths."""
    if optimizer is None:
        return grads_and_vars
    known = {id(v.value): v for v in optimizer._trainable_variables}
    return [(gradient, known.get(id(v), v)) for gradient, v in grads_and_vars]
