"""Builds what is compiled with Bazel; everything else is in pyproject.toml."""

import os
import shutil
import subprocess
import sys

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(ROOT, "build_tools"))

from bazel_backend import target_has_tensorflow  # noqa: E402

# Bazel's output -> where it lies in the installed package.
OUTPUTS = {
    "ops/libtf_gc_ops.so": "tf_gc/ops/libtf_gc_ops.so",
    "tf_gc/kernels.so": "tf_gc/kernels.so",
    "tf_gc/_build_info.py": "tf_gc/_build_info.py",
}


def bazel_build():
    bazel = os.environ.get("BAZEL") or shutil.which("bazel") or shutil.which("bazelisk")
    if not bazel:
        raise SystemExit("bazel not found: apt-get install bazel-bootstrap, or set BAZEL")
    environment = dict(os.environ, PYTHON_BIN_PATH=sys.executable)
    startup = []
    if "PYTHONPATH" in environment:  # in pip's isolated environment, which is temporary
        startup.append("--output_base=" + os.path.join(ROOT, "build", "bazel"))
        if target_has_tensorflow():
            import pybind11

            environment["PYTHONPATH"] = os.path.dirname(pybind11.__path__[0])
    targets = ["//ops:libtf_gc_ops.so", "//tf_gc:kernels.so", "//tf_gc:build_info"]
    options = os.environ.get("BAZEL_BUILD_OPTIONS", "").split()
    # Without symlinks: bazel-bin stays what the developer's own builds made it.
    out = os.path.join(ROOT, "build", "bazel-out", "")
    options.append("--symlink_prefix=" + out)
    os.makedirs(out, exist_ok=True)
    subprocess.run([bazel, *startup, "build", *options, *targets], cwd=ROOT, env=environment, check=True)
    return os.path.join(out, "bin")


def copy_outputs(place_of):
    """Copies what Bazel builds to place_of(path in the tree, path when installed)."""
    built = bazel_build()
    for source, installed in OUTPUTS.items():
        place = place_of(source, installed)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if os.path.exists(place):
            os.remove(place)  # a running process may have mapped it
        shutil.copy(os.path.join(built, source), place)


class BuildInPlace(Command):
    """Builds what is compiled into the source tree."""

    description = "build with Bazel, into the source tree"
    user_options = ()

    def initialize_options(self):
        pass

    def finalize_options(self):
        pass

    def run(self):
        copy_outputs(lambda source, installed: os.path.join(ROOT, source))


class BuildWithBazel(build_py):
    """Puts Bazel's outputs beside the Python files."""

    def run(self):
        super().run()
        if self.editable_mode:
            self.run_command("build_in_place")
        else:
            copy_outputs(lambda source, installed: os.path.join(self.build_lib, installed))


class PlatformWheel(bdist_wheel):
    """kernels.so is built for this CPython and this platform."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False


class BazelDistribution(Distribution):
    def has_ext_modules(self):
        return True


setup(
    cmdclass={
        "bdist_wheel": PlatformWheel,
        "build_in_place": BuildInPlace,
        "build_py": BuildWithBazel,
    },
    distclass=BazelDistribution,
)
