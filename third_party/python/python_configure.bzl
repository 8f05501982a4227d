"""Registers one interpreter, the one that TensorFlow is installed for."""

def find_python(repository_ctx):
    """Returns PYTHON_BIN_PATH, else the python3 on PATH.

    The path is not resolved: a virtual environment's bin/python is a symbolic
    link whose location matters.

    Args:
      repository_ctx: the repository's context.
    """
    python = repository_ctx.os.environ.get("PYTHON_BIN_PATH", "")
    if python:
        return python
    found = repository_ctx.which("python3")
    if not found:
        fail("no python3 on PATH: set PYTHON_BIN_PATH, or run ./setup.sh")
    return str(found)

_PROBE = """
import importlib.util, os, sys, sysconfig
print(sys.executable)  # PATH may have held a shim
print(sysconfig.get_path("include"))
spec = importlib.util.find_spec("pybind11")
print(os.path.join(os.path.dirname(spec.origin), "include") if spec else "")
"""

_BUILD = """
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

py_runtime(
    name = "py3",
    interpreter_path = "{python}",
    python_version = "PY3",
    # The launcher's default is "/usr/bin/env python", which need not exist.
    stub_shebang = "#!{python}",
)

py_runtime_pair(
    name = "pair",
    py3_runtime = ":py3",
)

toolchain(
    name = "toolchain",
    toolchain = ":pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)

cc_library(
    name = "pybind11",
    hdrs = glob(["python_include/**/*.h", "pybind11_include/**/*.h"]),
    copts = ["-fexceptions"],
    includes = ["python_include", "pybind11_include"],
)
"""

def _python_configure_impl(repository_ctx):
    probe = repository_ctx.execute([find_python(repository_ctx), "-c", _PROBE])
    if probe.return_code:
        fail("cannot run python: " + probe.stderr)
    python, include, pybind11 = probe.stdout.split("\n")[:3]
    if not pybind11:
        fail("pybind11 is not installed for %s: pip install pybind11" % python)
    repository_ctx.symlink(include, "python_include")
    repository_ctx.symlink(pybind11, "pybind11_include")
    repository_ctx.file("BUILD", _BUILD.format(python = python))

python_configure = repository_rule(
    implementation = _python_configure_impl,
    environ = ["PATH", "PYTHON_BIN_PATH", "VIRTUAL_ENV"],
    local = True,
)
