"""Exposes the headers and the shared library of the installed TensorFlow."""

load("//third_party/python:python_configure.bzl", "find_python")

# Finds the package without importing it: an import takes seconds.
_PROBE = """
import importlib.metadata, importlib.util, os, sys
spec = importlib.util.find_spec("tensorflow")
if spec is None or not spec.origin:
    sys.exit("tensorflow is not installed for " + sys.executable)
print(os.path.dirname(spec.origin))
for name in ("tensorflow", "tensorflow-cpu"):
    try:
        print(importlib.metadata.version(name))
        break
    except importlib.metadata.PackageNotFoundError:
        continue
else:
    sys.exit("no metadata of tensorflow or tensorflow-cpu for " + sys.executable)
"""

def _tensorflow_configure_impl(repository_ctx):
    probe = repository_ctx.execute([find_python(repository_ctx), "-c", _PROBE])
    if probe.return_code:
        fail("tensorflow_configure: " + probe.stderr)
    directory, version = probe.stdout.strip().split("\n")
    repository_ctx.symlink(directory + "/include", "include")
    for library in ["libtensorflow_framework.so.2", "libtensorflow_cc.so.2"]:
        repository_ctx.symlink(directory + "/" + library, library)
    repository_ctx.template("BUILD", Label("//third_party/tensorflow:BUILD.tpl"), {})
    repository_ctx.file("defs.bzl", "TENSORFLOW_VERSION = \"%s\"\n" % version)

tensorflow_configure = repository_rule(
    implementation = _tensorflow_configure_impl,
    environ = ["PATH", "PYTHON_BIN_PATH", "VIRTUAL_ENV"],
    local = True,
)
