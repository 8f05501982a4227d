"""Builds what is compiled with Bazel, and asks for the TensorFlow that it is built for.

Everything else is in pyproject.toml.
"""

import os
import shutil
import subprocess
import sys

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

ROOT = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(ROOT, "build_tools"))

from supported import extras, installed_tensorflow, tensorflow_to_build_for  # noqa: E402

# Bazel's output -> where it lies in the installed package.
OUTPUTS = {
    "ops/libtf_gc_ops.so": "tf_gc/ops/libtf_gc_ops.so",
    "tf_gc/kernels.so": "tf_gc/kernels.so",
    "tf_gc/preloaded.so": "tf_gc/preloaded.so",
    "tf_gc/_build_info.py": "tf_gc/_build_info.py",
}


def bazel_build():
    bazel = os.environ.get("BAZEL") or shutil.which("bazel") or shutil.which("bazelisk")
    if not bazel:
        raise SystemExit("bazel not found: apt-get install bazel-bootstrap, or set BAZEL")
    environment = dict(os.environ)
    startup = []
    if "PYTHONPATH" in environment:  # in pip's isolated environment, which is temporary
        startup.append("--output_base=" + os.path.join(ROOT, "build", "bazel"))
        if installed_tensorflow():
            import pybind11

            environment.pop("PYTHONNOUSERSITE", None)  # where TensorFlow may be
            environment["PYTHONPATH"] = os.path.dirname(pybind11.__path__[0])
    targets = ["//ops:libtf_gc_ops.so"]
    targets += [f"//tf_gc:{name}" for name in ("kernels.so", "preloaded.so", "build_info")]
    options = os.environ.get("BAZEL_BUILD_OPTIONS", "").split()
    # Over that of .bazelrc.user, which is for .venv.
    options.append(f"--repo_env=PYTHON_BIN_PATH={sys.executable}")
    # Without symlinks: bazel-bin stays what the developer's own builds made it.
    out = os.path.join(ROOT, "build", "bazel-out", "")
    options.append("--symlink_prefix=" + out)
    os.makedirs(out, exist_ok=True)
    subprocess.run(
        [bazel, *startup, "build", *options, *targets], cwd=ROOT, env=environment, check=True
    )
    return os.path.join(out, "bin")


class BuildBazel(Command):
    """Builds with Bazel and puts the outputs beside the Python files."""

    description = "build what is compiled, with Bazel"
    user_options = [("inplace", "i", "into the source tree")]  # noqa: RUF012
    boolean_options = ["inplace"]  # noqa: RUF012
    editable_mode = False  # set by `pip install -e`

    def initialize_options(self):
        self.inplace = False
        self.build_lib = None

    def finalize_options(self):
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self):
        built = bazel_build()
        for source, installed in OUTPUTS.items():
            place = os.path.join(self.build_lib, installed)
            if self.inplace or self.editable_mode:
                place = os.path.join(ROOT, source)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if os.path.exists(place):
                os.remove(place)  # a running process may have mapped it
            shutil.copy(os.path.join(built, source), place)

    # What editable installs ask of a command.
    def get_source_files(self):
        return []

    def get_outputs(self):
        return [os.path.join(self.build_lib, installed) for installed in OUTPUTS.values()]

    def get_output_mapping(self):
        return {}


class Build(build):
    sub_commands = [*build.sub_commands, ("build_bazel", None)]  # noqa: RUF012

    def run(self):
        # Modules that were deleted since would be installed, too.
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class PlatformWheel(bdist_wheel):
    """kernels.so is built for this CPython and this platform."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False


class BazelDistribution(Distribution):
    def has_ext_modules(self):
        return True


setup(
    extras_require={
        **extras(tensorflow_to_build_for()),
        # To search for the ratio of sparse systems.
        "adaptive": ["pymoo>=0.6.2"],
        # For TensorFlow's callback TensorBoard, and to look at what it and TrafficLogger write.
        "tensorboard": ["tensorboard"],
        # For tf_gc-launch report.
        "report": ["matplotlib"],
        "examples": ["matplotlib", "scikit-learn"],
    },
    cmdclass={
        "bdist_wheel": PlatformWheel,
        "build": Build,
        "build_bazel": BuildBazel,
    },
    distclass=BazelDistribution,
)
