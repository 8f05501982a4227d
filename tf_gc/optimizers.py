"""Keras's optimizers that divide by the root of a second moment, for compressed gradients.

    model.compile(optimizer=tf_gc.optimizers.AdamW(1e-3), ...)

Where a gradient was compressed, its square says little of the gradient: these take
the workers' own squares, of rows and columns, which the strategies exchange. All
else, and everything where nothing is compressed, is Keras's own code: arguments,
defaults, names, schedules, checkpoints. Their bases are the classes of
`tf.keras.optimizers`, which are Keras 3's, or with TF_USE_LEGACY_KERAS=1 in the
environment tf_keras's (without `Lamb` and `Adagrad`).

Under the strategies of tf_gc the classes of `keras.optimizers` and
`tf_keras.optimizers` with these names do the same. What these here add is that
they say so. A model is saved with Keras's own, and so needs no tf_gc to be loaded.
"""

import functools

_NAMES = ("Adafactor", "Adagrad", "Adam", "AdamW", "Lamb", "Nadam", "RMSprop")


@functools.cache
def _make(name):
    import tensorflow as tf

    from tf_gc.strategy import second_moments

    if name not in __dir__():
        raise AttributeError(
            f"this Keras has no {name} that takes shared second moments; there are "
            f"{', '.join(__dir__())}"
        )
    base = getattr(tf.keras.optimizers, name)
    attributes = {
        "__doc__": base.__doc__,
        "__module__": "keras.optimizers",  # by which it is saved
        "update_step": second_moments.use_in(base.update_step),
    }
    return type(name, (base,), attributes)


def __getattr__(name):
    if name == "__all__":
        return __dir__()
    if name in _NAMES:
        return _make(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    import tensorflow as tf

    optimizers = tf.keras.optimizers
    # tf_keras multiplies a gradient with itself in some, which cannot be told from other products.
    is_legacy = optimizers.Adam.__module__.startswith("tf_keras")
    without = ("Adagrad",) if is_legacy else ()
    return [name for name in _NAMES if hasattr(optimizers, name) and name not in without]
