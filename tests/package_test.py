"""The package as pip installs it, from another directory. Run by make test."""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv

from absl.testing import absltest
from packaging.requirements import Requirement

ROOT = pathlib.Path(__file__).resolve().parent.parent

_PROGRAM = """
import numpy as np, pathlib, sys, tensorflow as tf, tf_gc, tf_gc.kernels
assert "site-packages" in tf_gc.__file__, tf_gc.__file__
encoded, residual = tf_gc.kernels.three_lc_encode(np.zeros(350, "f4"), np.zeros(350, "f4"), 1.0)
assert len(encoded) == 4 + 5, len(encoded)
again, _ = tf_gc.ops.three_lc_encode(tf.zeros([350]), tf.zeros([350]), 1.0)
assert again.numpy().tobytes() == encoded.tobytes()
print(tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC()).num_replicas_in_sync)
"""

_ON_SERVERS = """
import tensorflow as tf, tf_gc
strategy = tf_gc.ParameterServerStrategy(
    tf.distribute.cluster_resolver.TFConfigClusterResolver(), compression=tf_gc.ThreeLC()
)
with strategy.scope():
    variable = tf.Variable(tf.zeros([100, 50]))

@tf.function
def train_step():
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((variable - 1) ** 2)
        strategy.push_gradients([(tape.gradient(loss, variable), variable)], update)
    strategy.run(step)

def update(grads_and_vars):
    for gradient, updated in grads_and_vars:
        updated.assign_sub(0.25 * gradient)

coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
for _ in range(2):
    coordinator.schedule(train_step)
    coordinator.join()
print("mean", tf.reduce_mean(variable).numpy(), "from", tf_gc.__file__)
"""


def _run(*command, cwd, **environment):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def _version():
    """Returns the one version number."""
    text = (ROOT / "tf_gc" / "__init__.py").read_text()
    return re.search('^__version__ = "(.+)"$', text, re.MULTILINE)[1]


class VersionTest(absltest.TestCase):
    def test_the_distribution_has_the_version_of_the_package(self):
        result = _run(sys.executable, "setup.py", "--version", cwd=ROOT)
        self.assertEqual(result.stdout, f"{_version()}\n", result.stderr)

    def test_the_changelog_begins_with_it(self):
        headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
        self.assertEqual(headings[0], _version())


class BuildTest(absltest.TestCase):
    def test_it_is_for_the_tensorflow_of_the_users_own_site(self):
        """Which pip's isolated build hides."""
        base = self.create_tempdir().full_path
        site = pathlib.Path(base, "lib", "python{}.{}".format(*sys.version_info), "site-packages")
        metadata = site / "tensorflow_cpu-2.18.1.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text("Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.18.1\n")
        # Not in the virtual environment, which has no user's site.
        program = "import supported; print(supported.installed_tensorflow())"
        version = subprocess.run(
            [os.path.realpath(sys.executable), "-c", program],
            cwd=ROOT / "build_tools",
            env={"PYTHONUSERBASE": base, "PYTHONPATH": base, "PYTHONNOUSERSITE": "1"},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout
        self.assertEqual(version.strip(), "2.18.1")


class WheelTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        # As after an earlier build, since which a module was deleted.
        platform = f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
        deleted = ROOT / "build" / platform / "tf_gc" / "deleted.py"
        deleted.parent.mkdir(parents=True, exist_ok=True)
        deleted.touch()
        built = _run(
            *(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"),
            *("--wheel-dir", str(cls.directory), str(ROOT)),
            cwd=cls.directory,
        )
        if built.returncode:
            raise RuntimeError(f"the wheel could not be built:\n{built.stdout}{built.stderr}")
        [wheel] = cls.directory.glob(f"tf_gc-{_version()}-*.whl")
        # Its own packages, and TensorFlow's from the environment of the tests.
        venv.create(cls.directory / "venv", with_pip=False)
        [site] = (cls.directory / "venv").glob("lib/python*/site-packages")
        [outer] = {p for p in sys.path if p.endswith("site-packages")}
        shutil.unpack_archive(wheel, site, "zip")
        (site / "outer.pth").write_text(outer)
        cls.python = str(cls.directory / "venv" / "bin" / "python")

    def test_kernels_ops_and_strategy_work_from_another_directory(self):
        result = _run(self.python, "-c", _PROGRAM, cwd=self.directory)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.strip(), "1")

    def test_modules_that_were_deleted_since_the_last_build_are_not_installed(self):
        [package] = (self.directory / "venv").glob("lib/python*/site-packages/tf_gc")
        self.assertTrue((package / "exchange.py").exists())
        self.assertFalse((package / "deleted.py").exists())

    def test_a_cluster_with_parameter_servers_trains(self):
        program = self.directory / "on_servers.py"
        program.write_text(_ON_SERVERS)
        launch = (self.python, "-m", "tf_gc.launch", "--workers", "1", "--ps", "1")
        result = _run(*launch, str(program), cwd=self.directory)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, "mean 0.75 from .*/venv/.*/site-packages/tf_gc/")

    def test_another_tensorflow_is_refused_at_import(self):
        [site] = (self.directory / "venv").glob("lib/python*/site-packages")
        build_info = site / "tf_gc" / "_build_info.py"
        original = build_info.read_text()
        build_info.write_text('TENSORFLOW_VERSION = "2.17.1"\n')
        self.addCleanup(build_info.write_text, original)
        result = _run(self.python, "-c", "import tf_gc", cwd=self.directory)
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stderr, r"ImportError: this tf_gc was built for TensorFlow 2\.17")
        self.assertIn("pip install", result.stderr)

    def test_type_checkers_are_told_of_its_annotations(self):
        [site] = (self.directory / "venv").glob("lib/python*/site-packages")
        self.assertTrue((site / "tf_gc" / "py.typed").exists())

    def test_the_launcher_is_a_command(self):
        metadata = next((self.directory / "venv").glob("lib/python*/site-packages/*.dist-info"))
        self.assertIn(
            "tf_gc-launch = tf_gc.launch:main", (metadata / "entry_points.txt").read_text()
        )

    def test_keras_is_of_the_versions_that_it_asks_for(self):
        metadata = next((self.directory / "venv").glob("lib/python*/site-packages/tf_gc-*-info"))
        asked = list(map(Requirement, importlib.metadata.PathDistribution(metadata).requires))
        for name in ("keras", "tf-keras"):
            specifiers = [r.specifier for r in asked if r.name == name]
            self.assertNotEmpty(specifiers)
            for specifier in specifiers:
                self.assertIn(importlib.metadata.version(name), specifier)


class EditableTest(absltest.TestCase):
    def test_the_source_tree_is_what_is_imported(self):
        program = (
            "import tf_gc.ops, tf_gc.strategy; print(tf_gc.__file__); print(tf_gc.ops.__file__)"
        )
        result = _run(sys.executable, "-c", program, cwd=self.create_tempdir())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(
            result.stdout.split(), [str(ROOT / "tf_gc/__init__.py"), str(ROOT / "ops/__init__.py")]
        )

    def test_what_lies_beside_the_package_is_no_part_of_it(self):
        program = "import importlib.util as u; print(u.find_spec('tf_gc.setup'))"
        result = _run(sys.executable, "-c", program, cwd=ROOT)
        self.assertEqual(result.stdout, "None\n", result.stderr)


if __name__ == "__main__":
    absltest.main()
