"""The versions that tf_gc is built for and tested with. No other file lists them.

`make matrix` tests every pair of a TensorFlow and a Python, `make wheels` makes a wheel for each.
"""

import os
import subprocess
import sys
from typing import NamedTuple


class _TensorFlow(NamedTuple):
    pythons: tuple[str, ...]  # from 3.10 on, those that the package index has tensorflow-cpu for
    keras: str  # the versions of Keras 3, from the oldest that it asks for and tf_gc knows
    io: tuple[str, ...] = ()  # what reads and writes Parquet, where tensorflow-io loads


_KERAS_END = "3.16"
# From 26 on, pyarrow needs NumPy 2, which TensorFlow 2.17 does not take.
_IO = ("tensorflow-io==0.37.1", "pyarrow<26")
TENSORFLOWS = {
    "2.17": _TensorFlow(("3.10", "3.11", "3.12"), f">=3.8,<{_KERAS_END}", _IO),
    "2.18": _TensorFlow(("3.10", "3.11", "3.12"), f">=3.8,<{_KERAS_END}"),
    "2.19": _TensorFlow(("3.10", "3.11", "3.12"), f">=3.8,<{_KERAS_END}"),
    "2.20": _TensorFlow(("3.10", "3.11", "3.12", "3.13"), f">=3.10,<{_KERAS_END}"),
    "2.21": _TensorFlow(("3.10", "3.11", "3.12", "3.13"), f">=3.12,<{_KERAS_END}"),
}


def extras(tensorflow):
    """Returns the optional dependencies that a build for a TensorFlow, such as "2.21", has.

    TensorFlow comes as one of two distributions, so that it is a choice, and no requirement.
    """
    it = TENSORFLOWS[tensorflow]
    keras = f"keras{it.keras}"
    return {
        "cpu": [f"tensorflow-cpu=={tensorflow}.*", keras],
        "gpu": [f"tensorflow=={tensorflow}.*", keras],
        # Requires the distribution `tensorflow`: see docs/installing.md for tensorflow-cpu.
        "keras2": [f"tf-keras=={tensorflow}.*"],
        **({"io": [*it.io]} if it.io else {}),
    }


def installed_tensorflow():
    """Returns TensorFlow's version in the environment that tf_gc is installed into, or None."""
    # Not that of pip's isolated build environment, which comes before it by the first variable;
    # the second one hides the user's own site.
    hidden = ("PYTHONPATH", "PYTHONNOUSERSITE")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    command = [sys.executable, "-c", _PROBE]
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return result.stdout.strip() or None


def tensorflow_to_build_for():
    """Returns the minor version, such as "2.21", of the installed TensorFlow.

    Where there is none, it is the newest that has this Python.

    Raises:
      SystemExit: tf_gc does not support this TensorFlow, or this Python.
    """
    version = installed_tensorflow()
    if version is None:
        python = "{}.{}".format(*sys.version_info)
        with_python = [name for name, it in TENSORFLOWS.items() if python in it.pythons]
        if not with_python:
            raise SystemExit(f"no TensorFlow that tf_gc supports has Python {python}")
        return with_python[-1]
    minor = ".".join(version.split(".")[:2])
    if minor not in TENSORFLOWS:
        newest = [*TENSORFLOWS][-1]
        raise SystemExit(
            f"TensorFlow {version} is installed, and tf_gc supports {', '.join(TENSORFLOWS)}: "
            f"pip install 'tensorflow-cpu=={newest}.*', or 'tensorflow=={newest}.*' for GPUs"
        )
    return minor


# Finds it without importing it, which takes seconds.
_PROBE = """
import importlib.metadata
for name in ("tensorflow", "tensorflow-cpu"):
    try:
        print(importlib.metadata.version(name))
        break
    except importlib.metadata.PackageNotFoundError:
        continue
"""
