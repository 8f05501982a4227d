"""What bug reports are told of a machine and a tf_gc."""

import contextlib
import importlib.metadata
import io
import os
import platform
import subprocess
import sys

import numpy as np
import tensorflow as tf
from absl.testing import absltest

import tf_gc
from tf_gc import kernels


def _shown():
    """Returns what `show_versions` prints: {name: text}."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        tf_gc.show_versions()
    return _parse(output.getvalue())


def _parse(output):
    lines = [line[2:] for line in output.splitlines() if line.startswith("  ")]
    column = len("built for TensorFlow") + 2
    return {line[:column].strip(): line[column:] for line in lines}


class VersionsTest(absltest.TestCase):
    def test_versions_are_those_that_run(self):
        shown = _shown()
        self.assertStartsWith(shown["version"], f"{tf_gc.__version__}, in ")
        self.assertEqual(shown["built for TensorFlow"], tf.__version__)
        self.assertEqual(shown["numpy"], np.__version__)
        self.assertEqual(shown["keras"], importlib.metadata.version("keras"))
        self.assertStartsWith(shown["Python"], platform.python_version())
        self.assertIn(tf.__version__, (shown["tensorflow"], shown["tensorflow-cpu"]))
        self.assertRegex(shown["wire format"], r"^\d+$")
        self.assertIn(platform.release(), shown["system"])
        self.assertRegex(shown["processor"], r"^\w.*, \d+ of \d+ cores$")
        self.assertRegex(shown["CUDA"], "^(not )?built in$")
        self.assertRegex(shown["GPUs"], "^(none|/physical_device:GPU:0.*)$")

    def test_what_is_not_installed_is_said_to_be_so(self):
        def version(name):
            if name == "pymoo":
                raise importlib.metadata.PackageNotFoundError(name)
            return "1.2.3"

        with absltest.mock.patch.object(importlib.metadata, "version", version):
            shown = _shown()
        self.assertEqual((shown["pymoo"], shown["tensorboard"]), ("not installed", "1.2.3"))

    def test_what_is_broken_is_shown_with_its_error(self):
        with absltest.mock.patch.object(
            kernels, "instruction_sets", side_effect=OSError("no such kernels")
        ):
            shown = _shown()
        self.assertEqual(shown["kernels"], "OSError: no such kernels")
        self.assertEqual(shown["version"].partition(",")[0], tf_gc.__version__)

    def test_a_library_that_does_not_load_is_shown_with_its_error(self):
        program = f"import sys; sys.path[:] = {sys.path}; sys.modules['tf_gc.ops'] = None\n"
        program += "import tf_gc; tf_gc.show_versions()"
        result = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(_parse(result.stdout)["wire format"], "Error: .*tf_gc.ops")

    def test_the_launcher_shows_them_with_the_kernels_in_use(self):
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TF_GC_INSTRUCTION_SET": "baseline",
        }
        result = subprocess.run(
            [sys.executable, "-m", "tf_gc.launch", "versions"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        shown = _parse(result.stdout)
        self.assertEqual(shown["kernels"], f"baseline, of {', '.join(kernels.instruction_sets())}")
        self.assertEqual(shown.keys(), _shown().keys())


if __name__ == "__main__":
    absltest.main()
