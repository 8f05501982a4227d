"""tf_gc: gradient compression for `tf.distribute`.

    strategy = tf_gc.MultiWorkerMirroredStrategy(
        compression=tf_gc.ThreeLC())

Names are loaded when first used, so that `tf_gc-launch` starts without waiting
for TensorFlow.
"""

import importlib
import importlib.machinery
import importlib.metadata
import os
import sys
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HERE = os.path.dirname(os.path.abspath(__file__))


class _FinderBeside:
    """Finds ops/ and strategy/, sub-packages in a wheel, beside this package in a source tree."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        del path
        if fullname in ("tf_gc.ops", "tf_gc.strategy"):
            return importlib.machinery.PathFinder.find_spec(
                fullname, [os.path.dirname(_HERE)], target
            )
        return None


if not os.path.exists(os.path.join(_HERE, "ops", "__init__.py")):
    # Before the finder of an editable install, which knows one source tree only.
    sys.meta_path.insert(0, _FinderBeside)


def _check_tensorflow_version():
    """Raises ImportError unless the installed TensorFlow is the one built for.

    TensorFlow's C++ interface changes with its minor version: a library that
    was built for another one may load and then crash.
    """
    try:
        from tf_gc._build_info import TENSORFLOW_VERSION
    except ModuleNotFoundError:
        return  # a source tree that is not built: tf_gc.ops says what to do
    built = ".".join(TENSORFLOW_VERSION.split(".")[:2])
    for distribution in ("tensorflow", "tensorflow-cpu"):
        try:
            installed = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        if installed.split(".")[:2] != built.split("."):
            raise ImportError(
                f"this tf_gc was built for TensorFlow {built}, and {distribution} {installed} is "
                f"installed: pip install '{distribution}=={built}.*', or, to keep that one, build "
                "tf_gc for it with pip install . in a clone"
            )
        return
    raise ImportError(
        f"this tf_gc was built for TensorFlow {built}, and none is installed: pip install "
        f"'tensorflow-cpu=={built}.*', or 'tensorflow=={built}.*' for GPUs"
    )


_check_tensorflow_version()


# Where a name is looked for, in this order: versions are shown where no other loads, and the
# strategies load all the others.
_SOURCES = ("versions", "compressors", "policy", "diloco", "traffic", "strategy")
_MODULES = (
    *_SOURCES,
    "adaptive",
    "exchange",
    "keras",
    "kernels",
    "launch",
    "ops",
    "optimizers",
    "schedules",
    "second_moments",
    "testing",
    "thc",
)

if TYPE_CHECKING:  # the same for editors and type checkers
    from . import (
        adaptive,
        compressors,
        diloco,
        exchange,
        keras,
        kernels,
        launch,
        ops,
        optimizers,
        policy,
        schedules,
        second_moments,
        strategy,
        testing,
        thc,
        traffic,
        versions,
    )
    from .compressors import *
    from .diloco import *
    from .policy import *
    from .strategy import *
    from .traffic import *
    from .versions import *
else:

    def __getattr__(name):
        if name == "__all__":
            names = {*_MODULES, *(n for source in _SOURCES for n in _module(source).__all__)}
            return sorted(names - {"keras"})  # which would hide Keras from `import *`
        if not name.startswith("_"):
            try:
                return _module(name)
            except ModuleNotFoundError as error:
                if error.name != f"{__name__}.{name}":
                    raise
            for source in _SOURCES:
                if name in _module(source).__all__:
                    return globals().setdefault(name, getattr(_module(source), name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__getattr__("__all__")})

    def _module(name):
        return importlib.import_module(f"{__name__}.{name}")
