"""tf_gc: gradient compression for `tf.distribute`.

    strategy = tf_gc.MultiWorkerMirroredStrategy(
        compression=tf_gc.ThreeLC(sparsity_multiplier=1.75))

Names are loaded when first used, so that `tf_gc-launch` starts without waiting
for TensorFlow.
"""

import importlib
import importlib.metadata
import os

__version__ = "0.1.0"

# Public name -> the module that defines it.
_EXPORTS = {
    **dict.fromkeys(
        (
            "ARTopK",
            "BFloat16",
            "CascadingSSDM",
            "Compressor",
            "DGC",
            "EFSignSGD",
            "Float16",
            "FusedCompressor",
            "Int8",
            "LocalSteps",
            "MSTopK",
            "Marsit",
            "OneBit",
            "PowerSGD",
            "QSGD",
            "RandomK",
            "SSDM",
            "SampledTopK",
            "ScaleCom",
            "SignSGD",
            "StochasticTernary",
            "THC",
            "TernGrad",
            "ThreeLC",
            "TopK",
            "UniformTHC",
        ),
        "tf_gc.compressors",
    ),
    **dict.fromkeys(("MultiWorkerMirroredStrategy", "ParameterServerStrategy"), "tf_gc.strategy"),
    "Policy": "tf_gc.policy",
    **dict.fromkeys(
        ("ServerTraffic", "ServerVariableTraffic", "Traffic", "VariableTraffic"), "tf_gc.traffic"
    ),
}
_MODULES = (
    "compressors",
    "exchange",
    "kernels",
    "launch",
    "ops",
    "policy",
    "schedules",
    "strategy",
    "testing",
    "thc",
    "traffic",
)

__all__ = [*_EXPORTS, *_MODULES]

# In a source tree, and under Bazel, ops/ and strategy/ lie beside this package;
# in a wheel they are sub-packages. The import paths are the same.
_root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if os.path.exists(os.path.join(_root, "strategy", "multi_worker_mirrored.py")):
    __path__.append(_root)


def _check_tensorflow_version():
    """Raises ImportError unless the installed TensorFlow is the one built for.

    TensorFlow's C++ interface changes with its minor version: a library that
    was built for another one may load and then crash.
    """
    try:
        from tf_gc import _build_info
    except ModuleNotFoundError:
        return  # a source tree that is not built: tf_gc.ops says what to do
    built = ".".join(_build_info.TENSORFLOW_VERSION.split(".")[:2])
    for distribution in ("tensorflow", "tensorflow-cpu"):
        try:
            installed = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        if installed.split(".")[:2] != built.split("."):
            raise ImportError(
                f"this tf_gc was built for TensorFlow {built}, and {distribution} {installed} is "
                f"installed: pip install '{distribution}=={built}.*', or build tf_gc again"
            )
        return
    raise ImportError(f"tf_gc needs TensorFlow {built}: pip install 'tensorflow-cpu=={built}.*'")


_check_tensorflow_version()


def __getattr__(name):
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
