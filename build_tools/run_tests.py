"""Runs every test and prints how many cases passed: make test.

Bazel's test targets come first, then the package as pip installs it. The last
line is "N passed, N failed", over the cases of all suites (", N skipped" if any).
"""

import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    with tempfile.TemporaryDirectory() as directory:
        package_xml = pathlib.Path(directory, "package_test.xml")
        codes = [
            subprocess.run(["bazel", "test", "//..."], cwd=ROOT).returncode,
            subprocess.run(
                [sys.executable, "tests/package_test.py", f"--xml_output_file={package_xml}"],
                cwd=ROOT,
            ).returncode,
        ]
        passed, failed, skipped = _count([*_bazel_logs(), package_xml])
    if any(codes) and not failed:
        failed = 1  # a target that could not be built, or a process that died
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


def _bazel_logs():
    """The test.xml of each test target that there is now."""
    tests = _bazel("query", "tests(//...) except attr(tags, manual, //...)").split()
    logs = pathlib.Path(_bazel("info", "bazel-testlogs").strip())
    return [logs / label.removeprefix("//").replace(":", "/") / "test.xml" for label in tests]


def _bazel(*arguments):
    return subprocess.run(
        ["bazel", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def _count(files):
    passed = failed = skipped = 0
    for file in files:
        if not file.exists():
            failed += 1
            continue
        for case in ElementTree.parse(file).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
            elif case.find("skipped") is not None or case.get("result") in (
                "suppressed",
                "skipped",
            ):
                skipped += 1
            elif case.get("status", "run") == "run":
                passed += 1
    return passed, failed, skipped


if __name__ == "__main__":
    sys.exit(main())
