"""What this tf_gc runs on, for bug reports."""

import importlib.metadata
import os
import pathlib
import platform
import sys
from collections.abc import Callable, Sequence

import tf_gc

__all__ = ["show_versions"]

_DISTRIBUTIONS = (
    "tensorflow",
    "tensorflow-cpu",
    "keras",
    "tf_keras",
    "numpy",
    "absl-py",
    "rich",
)
_OPTIONAL_DISTRIBUTIONS = ("tensorboard", "pymoo", "matplotlib", "scikit-learn")


def show_versions() -> None:
    """Prints what a bug report needs: versions, the machine, and what is in use of it.

    `tf_gc-launch versions` prints the same.
    """
    parts = {
        "tf_gc": {
            "version": lambda: f"{tf_gc.__version__}, in {pathlib.Path(tf_gc.__file__).parent}",
            "wire format": lambda: _library()[0],
            "built for TensorFlow": lambda: _library()[1],
            "CUDA": _cuda,
            "kernels": _kernels,
        },
        "machine": {
            "Python": lambda: f"{platform.python_version()}, {sys.executable}",
            "system": lambda: f"{_distribution()}, {platform.platform()}",
            "processor": _processor,
            "GPUs": _gpus,
        },
        "needed": {name: _version_of(name) for name in _DISTRIBUTIONS},
        "optional": {name: _version_of(name) for name in _OPTIONAL_DISTRIBUTIONS},
    }
    width = max(len(name) for part in parts.values() for name in part)
    for title, part in parts.items():
        print(f"\n{title}")
        for name, find in part.items():
            print(f"  {name:<{width}}  {_found(find)}")


def main(argv: Sequence[str]) -> int:
    """The subcommand of tf_gc-launch; returns the exit code."""
    if len(argv) == 2 and argv[1] in ("-h", "--help", "--helpfull"):
        print("usage: tf_gc-launch versions\n\nPrints what a bug report needs.")
        return 0
    if len(argv) > 1:
        print(f"tf_gc-launch versions: unexpected argument: {argv[1]}", file=sys.stderr)
        return 2
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    show_versions()
    return 0


def _found(find: Callable[[], str]) -> str:
    """Returns what is found, or why it cannot be: what is reported may be just that."""
    try:
        return find()
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _version_of(distribution):
    return lambda: importlib.metadata.version(distribution)


def _library():
    """Returns the version of the wire format, and of the TensorFlow that was built for."""
    return tf_gc.ops.library_version().numpy().decode().split()


def _cuda():
    from tf_gc.strategy.tensorflow_internals import get_registered_kernels_for_op

    kernels = get_registered_kernels_for_op("TfGc>ThreeLcEncode").kernel
    return "built in" if any(k.device_type == "GPU" for k in kernels) else "not built in"


def _kernels():
    instruction_sets = tf_gc.kernels.instruction_sets()
    wanted = os.environ.get("TF_GC_INSTRUCTION_SET")
    used = wanted if wanted in instruction_sets else instruction_sets[-1]
    return f"{used}, of {', '.join(instruction_sets)}"


def _distribution():
    return platform.freedesktop_os_release()["PRETTY_NAME"]


def _processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{model}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores"


def _gpus():
    import tensorflow as tf

    return ", ".join(device.name for device in tf.config.list_physical_devices("GPU")) or "none"
