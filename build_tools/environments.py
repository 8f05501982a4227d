"""Pairs of a TensorFlow and a Python, and a virtual environment and a wheel for each.

What belongs to a pair lies in build/matrix/<pair>: the environment, the logs of what was run, the
wheel, and stamps that say from what they were made, so that a second run makes nothing again.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
from typing import NamedTuple

import supported

ROOT = pathlib.Path(__file__).resolve().parent.parent
_FOLDER = ROOT / "build" / "matrix"
# What a wheel is built from.
_PACKAGE = (
    *("ops", "strategy", "tf_gc", "third_party", "build_tools/supported.py"),
    *(".bazelrc", ".bazelversion", "WORKSPACE", "pyproject.toml", "setup.py"),
    *("LICENSE", "README.md"),
)
# What building and testing need, beside what a wheel asks for.
_TOOLS = ("hypothesis", "psutil", "pybind11>=2.13", "scikit-learn", "setuptools>=70.1")


class StepError(Exception):
    """A command has failed; the message has the end of its output."""


class Pair(NamedTuple):
    """One that is supported, written as in "2.21-3.13"."""

    tensorflow: str
    python: str

    def __str__(self):
        return f"{self.tensorflow}-{self.python}"

    @property
    def folder(self):
        return _FOLDER / str(self)

    @property
    def environment(self):
        """The program python of its virtual environment."""
        return self.folder / "venv" / "bin" / "python"


def pairs(names=()):
    """Returns the pairs of these names, or all.

    Raises:
      SystemExit: there is none of some name.
    """
    known = {
        str(pair): pair
        for tensorflow, it in supported.TENSORFLOWS.items()
        for pair in (Pair(tensorflow, python) for python in it.pythons)
    }
    for name in names:
        if name not in known:
            raise SystemExit(f"{name} is no pair that is supported: take of {', '.join(known)}")
    return [known[name] for name in names or known]


def interpreter(python):
    """Returns the program of a Python such as "3.10", pyenv's newest or that on PATH, or None."""
    root = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    found = root.glob(f"versions/{python}.*/bin/python")
    by_patch = sorted(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path.parts[-3])])
    return by_patch[-1] if by_patch else shutil.which(f"python{python}")


def fingerprint(*paths):
    """Returns a hash of what a wheel is built from, and of files and folders beside that."""
    listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--")
    listed = subprocess.run(
        [*listing, *_PACKAGE, *paths], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    digest = hashlib.sha256()
    for name in sorted(listed.stdout.decode().split("\0")[:-1]):
        path = ROOT / name
        if path.exists():  # git lists what was deleted and not staged
            digest.update(f"{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def run(log, *command, folder=ROOT, **environment):
    """Runs a command in a folder, with its output in a file.

    Raises:
      StepError: it has failed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as file:
        result = subprocess.run(
            list(map(str, command)),
            cwd=folder,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if result.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        raise StepError("\n".join([f"{log}:", *lines[-20:]]))


def make_environment(pair):
    """Makes the virtual environment, with TensorFlow, Keras 3 and tf_keras, unless it is there.

    With TensorFlow 2.17 it has tensorflow-io, too.
    """
    extras = supported.extras(pair.tensorflow)
    wanted = [*extras["cpu"], *extras.get("io", ()), "absl-py", "numpy", "rich", *_TOOLS]
    stamp = pair.folder / "environment"
    if is_current(stamp, str(wanted + extras["keras2"])):
        return
    pip = (pair.environment, "-m", "pip", "install", "--disable-pip-version-check")
    run(pair.folder / "venv.log", interpreter(pair.python), "-m", "venv", pair.folder / "venv")
    run(pair.folder / "pip.log", *pip, *wanted)
    # Asks for the distribution `tensorflow`, in whose place tensorflow-cpu is.
    run(pair.folder / "pip_tf_keras.log", *pip, "--no-deps", *extras["keras2"])
    stamp.write_text(str(wanted + extras["keras2"]), encoding="utf-8")


def make_wheel(pair):
    """Builds the wheel, unless there is one from the same sources, and returns its path.

    Its version has the TensorFlow in it, as 0.1.0+tf2.21. The op library is compiled once for each
    TensorFlow, whose headers are the same for all Pythons; Bazel's cache has it for the next.
    """
    stamp, dist = pair.folder / "wheel", pair.folder / "dist"
    key = fingerprint()
    if not is_current(stamp, key):
        make_environment(pair)
        shutil.rmtree(dist, ignore_errors=True)
        build = pair.folder / "build"
        shutil.rmtree(build, ignore_errors=True)
        command = (
            *("setup.py", "build", "--build-base", build),
            *("egg_info", "--egg-base", pair.folder, f"--tag-build=+tf{pair.tensorflow}"),
            *("bdist_wheel", "--dist-dir", dist),
        )
        run(pair.folder / "wheel.log", pair.environment, *command)
        stamp.write_text(key, encoding="utf-8")
    [wheel] = dist.glob("*.whl")
    return wheel


def is_current(stamp, key):
    """Whether a file says that what it stands for was made from `key`."""
    return stamp.exists() and stamp.read_text(encoding="utf-8") == key
