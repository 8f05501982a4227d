"""The names of tf_gc: all there, loaded late, known to type checkers, and no more than is meant."""

import ast
import importlib
import pathlib
import shutil
import subprocess
import sys

from absl.testing import absltest, parameterized

import tf_gc


def _run_without_tensorflow(program):
    """Runs a program in a process of its own, in which TensorFlow cannot be imported."""
    without = 'import sys; sys.modules["tensorflow"] = None\n'
    path = f"sys.path[:] = {sys.path}\n"
    return subprocess.run(
        [sys.executable, "-c", without + path + program],
        capture_output=True,
        text=True,
        check=False,
    )


def _static_names():
    """Returns the modules that `tf_gc` imports by name, and those whose names it takes."""
    tree = ast.parse(pathlib.Path(tf_gc.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    modules = {alias.name for node in imports if not node.module for alias in node.names}
    return modules, {node.module for node in imports if node.module}


class NamesTest(parameterized.TestCase):
    def test_every_name_is_reachable(self):
        for name in tf_gc.__all__:
            with self.subTest(name):
                self.assertIsNotNone(getattr(tf_gc, name))
                self.assertIn(name, dir(tf_gc))

    def test_a_star_import_gives_every_name(self):
        names = {}
        exec("from tf_gc import *", names)
        self.assertContainsSubset(tf_gc.__all__, names)

    @parameterized.parameters("compressors", "ops")
    def test_every_module_of_a_package_is_in_its_list(self, package):
        package = importlib.import_module(f"tf_gc.{package}")
        for path in pathlib.Path(package.__file__).parent.glob("[!_]*.py"):
            module = importlib.import_module(f"{package.__name__}.{path.stem}")
            self.assertContainsSubset(getattr(module, "__all__", []), package.__all__)

    def test_a_name_that_is_not_there_is_an_attribute_error(self):
        with self.assertRaisesRegex(AttributeError, "'tf_gc' has no attribute 'FourLC'"):
            _ = tf_gc.FourLC
        with self.assertRaises(ImportError):
            from tf_gc import FourLC  # noqa: F401

    def test_type_checkers_know_the_same_names(self):
        modules, sources = _static_names()
        names = {name for source in sources for name in getattr(tf_gc, source).__all__}
        # `import *` would hide Keras.
        self.assertCountEqual({*tf_gc.__all__, "keras"}, names | modules)


class ImportTest(parameterized.TestCase):
    def test_tf_gc_is_imported_without_tensorflow(self):
        result = _run_without_tensorflow(
            "import tf_gc; print(tf_gc.__version__, tf_gc.launch.launch.__name__)"
        )
        expected = f"{tf_gc.__version__} launch\n"
        self.assertEqual((result.returncode, result.stdout), (0, expected), result.stderr)

    def import_copy(self, build_info=None, installed=None):
        """Imports a copy of tf_gc beside a distribution; returns its folder and what came of it."""
        root = pathlib.Path(self.create_tempdir().full_path)
        (root / "tf_gc").mkdir()
        shutil.copy(tf_gc.__file__, root / "tf_gc")
        if build_info:
            (root / "tf_gc" / "_build_info.py").write_text(build_info)
        if installed:
            name, version = installed
            metadata = root / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
            metadata.parent.mkdir()
            metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        program = f"import sys; sys.path.insert(0, '{root}'); import tf_gc; print(tf_gc.__file__)"
        return root, subprocess.run(  # -S: without what is installed
            [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False
        )

    def test_tf_gc_is_imported_from_a_tree_that_is_not_built(self):
        root, result = self.import_copy()
        self.assertEqual(result.stdout, f"{root}/tf_gc/__init__.py\n", result.stderr)

    @parameterized.parameters("tensorflow", "tensorflow-cpu")
    def test_tf_gc_is_imported_where_the_tensorflow_is_that_it_was_built_for(self, name):
        root, result = self.import_copy('TENSORFLOW_VERSION = "2.17.1"', (name, "2.17.0"))
        self.assertEqual(result.stdout, f"{root}/tf_gc/__init__.py\n", result.stderr)

    @parameterized.parameters(
        (("tensorflow", "2.18.0"), "and tensorflow 2.18.0 is", "'tensorflow==2.17.*', or, to keep"),
        (("tensorflow-cpu", "2.1.0"), "and tensorflow-cpu 2.1.0 is", "'tensorflow-cpu==2.17.*'"),
        (None, "and none is", "'tensorflow-cpu==2.17.*', or 'tensorflow==2.17.*' for GPUs"),
    )
    def test_where_there_is_another_tensorflow_it_says_what_to_install(
        self, installed, found, remedy
    ):
        _, result = self.import_copy('TENSORFLOW_VERSION = "2.17.1"', installed)
        self.assertIn(
            f"ImportError: this tf_gc was built for TensorFlow 2.17, {found} installed: "
            f"pip install {remedy}",
            result.stderr,
        )

    def test_the_launcher_starts_without_tensorflow(self):
        result = _run_without_tensorflow(
            'import runpy; sys.argv = ["tf_gc-launch", "--help"]\n'
            'runpy.run_module("tf_gc.launch", run_name="__main__")'
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertStartsWith(result.stdout, "usage: tf_gc-launch")

    @parameterized.parameters("benchmarks", "examples", "setup", "tests", "tests.names_test")
    def test_what_lies_beside_the_package_is_no_part_of_it(self, name):
        with self.assertRaisesRegex(ModuleNotFoundError, "tf_gc"):
            importlib.import_module(f"tf_gc.{name}")

    @parameterized.parameters("ops", "strategy")
    def test_ops_and_strategy_are_those_that_lie_beside_the_package(self, name):
        module = importlib.import_module(f"tf_gc.{name}")
        root = pathlib.Path(tf_gc.__file__).parent.parent
        self.assertEqual(pathlib.Path(module.__file__), root / name / "__init__.py")

    def test_the_strategies_take_tensorflows_private_parts_from_one_module(self):
        for path in pathlib.Path(tf_gc.strategy.__file__).parent.glob("*.py"):
            with self.subTest(path.name):
                imports = "tensorflow.python" in path.read_text()
                self.assertEqual(imports, path.name == "tensorflow_internals.py")


if __name__ == "__main__":
    absltest.main()
