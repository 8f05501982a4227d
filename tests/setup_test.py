"""What setup.sh says where it cannot do its work, and what it does not say where it can."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from absl.testing import absltest, parameterized

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_TOOLS = (
    *("basename", "bash", "cat", "cp", "dirname", "env", "id"),
    *("mkdir", "realpath", "sh", "sha256sum", "stat"),
)
_NOBODY = 65534
_SOURCES = "setup.sh", "pyproject.toml", "requirements-dev.txt", "build_tools/keras_alone.py"

# Stand-ins for what setup.sh calls, each a few lines of sh.
_PYTHON = """
case "$*" in
  "-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python; cp "$0" .venv/bin/pip;;
  -V) echo Python 3.11.2;;
  *) echo "$(basename "$0") $*" >>calls;;
esac
"""
_OLD_PYTHON = 'case "$*" in -V) echo Python 3.9.2;; *version_info*) exit 1;; esac'
_BUILD_TOOLS = {"bazel": "", "g++": ""}
_APT_GET = 'echo "Selecting previously unselected package ..."; echo "apt-get $*" >>calls'


class SetupTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        root = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))  # where any user can come to
        self.addCleanup(shutil.rmtree, root)
        root.chmod(0o755)
        self.tree, self.bin, self.home = root / "tree", root / "bin", root / "home"
        for folder in (self.tree, self.bin, self.home):
            folder.mkdir()
        (self.tree / "build_tools").mkdir()
        for name in _SOURCES:
            shutil.copy(_ROOT / name, self.tree / name)
        for name in _TOOLS:
            (self.bin / name).symlink_to(shutil.which(name))

    def install(self, programs):
        """Puts programs on the PATH, on which there is nothing else but a few tools."""
        for name, body in programs.items():
            program = self.bin / name
            program.write_text(f"#!/bin/sh\n{body}\n")
            program.chmod(0o755)

    def run_setup(self, *, user=None, **environment):
        """Runs setup.sh, as another user if that is asked for; returns the result."""
        command = ["./setup.sh"]
        if user is not None and os.geteuid() == 0:
            ids = [f"--reuid={user}", f"--regid={user}", "--clear-groups"]
            command = [shutil.which("setpriv"), *ids, *command]
        return subprocess.run(
            command,
            cwd=self.tree,
            env={"PATH": str(self.bin), "HOME": str(self.home), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def give_to(self, user):
        if os.geteuid() == 0:
            for path in (self.tree, *self.tree.iterdir(), self.home):
                os.chown(path, user, user)

    def assert_says(self, result, sentence):
        """It says one sentence, and ends."""
        self.assertEqual(result.returncode, 1, result)
        self.assertRegex(result.stderr, rf"^setup\.sh: {sentence}\n$")

    def test_without_apt_it_names_what_to_install(self):
        self.install({"python3": _PYTHON})
        self.assert_says(
            self.run_setup(),
            r"there is no apt-get here: install what Debian calls bazel-bootstrap g\+\+.*, then run"
            " this again",
        )

    def test_without_a_compiler_another_user_than_root_is_told_what_root_must_do(self):
        self.install({"python3": _PYTHON, "apt-get": "", "bazel": ""})
        self.give_to(_NOBODY)
        self.assert_says(
            self.run_setup(user=_NOBODY),
            r"root is needed once: run 'sudo apt-get install g\+\+.*', then this again",
        )

    @absltest.skipIf(os.geteuid() != 0, "needs root, to be another user")
    def test_another_users_tree_is_named_with_its_user(self):
        self.install({"python3": _PYTHON})
        self.assert_says(
            self.run_setup(user=_NOBODY),
            rf"{self.tree} is root's, and nobody may not write there: run this as root, or in a "
            "clone of your own",
        )

    @absltest.skipIf(os.geteuid() != 0, "needs root, to be another user")
    def test_what_root_has_made_in_ones_own_tree_is_named(self):
        self.install({"python3": _PYTHON})
        self.give_to(_NOBODY)
        (self.tree / ".venv").mkdir()
        self.assert_says(
            self.run_setup(user=_NOBODY),
            rf"{self.tree}/\.venv is root's, and nobody may not write there: run this as root, or "
            "in a clone of your own",
        )

    def test_a_user_without_a_home_is_told_to_name_one(self):
        self.install({"python3": _PYTHON})
        self.give_to(_NOBODY)
        self.assert_says(
            self.run_setup(user=_NOBODY, HOME="/proc/nowhere"),
            r"Bazel needs /proc/nowhere/\.cache, where .+ may not write: set HOME to a folder of "
            "your own",
        )

    def test_an_old_python_is_named_with_its_version(self):
        self.install({"python3": _OLD_PYTHON, **_BUILD_TOOLS})
        self.assert_says(
            self.run_setup(),
            r"Python 3\.10 to 3\.13 is needed, and python3 is Python 3\.9\.2: name another one, as "
            r"in PYTHON=python3\.11 \./setup\.sh",
        )

    def test_a_python_that_is_not_there_is_named(self):
        self.assert_says(
            self.run_setup(PYTHON="python3.99"),
            r"PYTHON=python3\.99 is no command here: name one that is",
        )

    def test_another_python_than_that_of_the_first_run_is_refused(self):
        self.install({"python3": _PYTHON, **_BUILD_TOOLS})
        self.install({"python3.12": "echo Python 3.12.1"})
        self.run_setup()
        self.assertEqual(self.run_setup(PYTHON="python3").returncode, 0)
        self.assert_says(
            self.run_setup(PYTHON="python3.12"),
            r"\.venv has Python 3\.11\.2, and PYTHON=python3\.12 is Python 3\.12\.1: remove \.venv "
            "first",
        )

    @parameterized.parameters(({"bazelisk": ""}, {}), ({}, {"BAZEL": "/opt/bazel"}))
    def test_what_builds_with_bazel_takes_its_place(self, programs, environment):
        self.install({"python3": _PYTHON, "g++": "", **programs})
        result = self.run_setup(**environment)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    @absltest.skipIf(os.geteuid() != 0, "needs root, to install")
    def test_what_apt_says_is_shown_where_it_fails(self):
        self.install({"python3": _PYTHON, "apt-get": "echo E: no such package; exit 100"})
        result = self.run_setup()
        self.assertEqual(result.returncode, 1)
        self.assertRegex(
            result.stderr,
            r"^E: no such package\nsetup\.sh: apt-get could not install .*g\+\+.*, for what it "
            r"says above\n$",
        )

    def test_what_pip_says_is_shown_where_it_fails(self):
        is_pip = 'case "$0" in *pip) echo ERROR: no network >&2; exit 1;; esac'
        self.install({"python3": is_pip + _PYTHON, **_BUILD_TOOLS})
        result = self.run_setup()
        self.assertEqual(result.returncode, 1)
        self.assertEqual(
            result.stderr,
            "ERROR: no network\nsetup.sh: pip could not install -r requirements-dev.txt, for what "
            "it says above\n",
        )

    @absltest.skipIf(os.geteuid() != 0, "needs root, to install")
    def test_it_says_what_it_does_and_nothing_else(self):
        self.install({"python3": _PYTHON, "apt-get": _APT_GET})
        result = self.run_setup()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(
            result.stdout,
            r"^Installing bazel-bootstrap g\+\+.* with apt-get \.\.\.\n"
            r"Installing TensorFlow and the tools into \.venv with pip \.\.\.\n"
            r"Building with Bazel what has changed \.\.\.\n$",
        )
        calls = (self.tree / "calls").read_text().splitlines()
        self.assertIn("apt-get update -qq", calls)
        self.assertIn("python setup.py -q build_bazel --inplace", calls)
        self.assertEqual(calls[-1].split()[-2:], ["-e", "."])

    def test_a_run_goes_on_where_the_first_one_was_interrupted(self):
        self.install({"python3": _PYTHON, **_BUILD_TOOLS})
        (self.tree / ".venv" / "bin").mkdir(parents=True)
        shutil.copy(self.bin / "python3", self.tree / ".venv" / "bin" / "python")  # without pip
        (self.tree / ".venv" / "kept").touch()
        result = self.run_setup()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue((self.tree / ".venv" / "kept").exists())

    @absltest.skipIf(os.geteuid() != 0, "needs root, to install")
    def test_a_second_run_builds_and_installs_nothing(self):
        self.install({"python3": _PYTHON, "apt-get": _APT_GET})
        self.run_setup()
        self.install(_BUILD_TOOLS)
        (self.tree / "calls").unlink()
        result = self.run_setup()
        self.assertEqual(result.returncode, 0, result.stderr)
        calls = (self.tree / "calls").read_text().splitlines()
        self.assertEqual(calls[-1], "python setup.py -q build_bazel --inplace")
        self.assertNoCommonElements(" ".join(calls).split(), ["pip"])


class KerasAloneTest(absltest.TestCase):
    def test_a_module_is_there_for_all_but_keras(self):
        root = pathlib.Path(self.create_tempdir().full_path)
        (root / "keras").mkdir()
        attempt = "try:\n  import sklearn\nexcept ImportError:\n  sklearn = None\n"
        for name, words in (("keras/fixes", attempt), ("keras_like", attempt), ("sklearn", "")):
            (root / f"{name}.py").write_text(words)
        program = (
            "import keras_alone, keras.fixes, keras_like;"
            "print(keras.fixes.sklearn is None, keras_like.sklearn is None)"
        )
        path = os.pathsep.join((str(root), str(_ROOT / "build_tools")))
        result = subprocess.run(
            [sys.executable, "-S", "-c", program],  # -S: it may be there already
            env={"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual((result.stdout, result.stderr), ("True False\n", ""))


if __name__ == "__main__":
    absltest.main()
