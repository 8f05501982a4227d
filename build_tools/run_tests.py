"""Runs the tests, but for make test-long's, and prints how many cases passed: make test.

The cheap tests come first: those of the C++ code, which fail within a minute or
two, then all of Bazel's, then the package as pip installs it. What fails ends
the run. The last line is "N passed, N failed", over the cases of all suites
that were run (", N skipped" if any).
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.parse
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Those of one process each, without TensorFlow's Python.
_CHEAP = [
    "--test_tag_filters=-python",
    *(
        f"//tests/{folder}/..."
        for folder in ("kernels", "collectives", "parameter_server", "cuda", "fuzz")
    ),
]


def main():
    with tempfile.TemporaryDirectory() as directory:
        events = pathlib.Path(directory, "events.json")
        package_xml = pathlib.Path(directory, "package_test.xml")
        bazel_test = ("bazel", "test", f"--build_event_json_file={events}")
        is_good = _run(*bazel_test, *_CHEAP) and _run(*bazel_test, "//...")
        reports = _bazel_reports(events)
        if is_good:
            is_good = _run(
                sys.executable, "tests/package_test.py", f"--xml_output_file={package_xml}"
            )
            reports.append(package_xml)
        passed, failed, skipped = count(reports)
    if not is_good and not failed:
        failed = 1  # a target that could not be built, or a process that died
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


def _run(*command):
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def _bazel_reports(events):
    """The test.xml of each target that was run, or has not changed since."""
    if not events.exists():
        return []
    lines = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
    return [
        pathlib.Path(urllib.parse.urlparse(output["uri"]).path)
        for line in lines
        for output in line.get("testResult", {}).get("testActionOutput", [])
        if output["name"] == "test.xml"
    ]


def count(reports):
    passed = failed = skipped = 0
    for report in reports:
        # What was killed, as after a time limit, leaves none or an empty one.
        if not report.exists() or not report.stat().st_size:
            failed += 1
            continue
        for case in ElementTree.parse(report).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
            elif case.find("skipped") is not None or case.get("status") == "notrun":
                skipped += 1
            else:
                passed += 1
    return passed, failed, skipped


if __name__ == "__main__":
    sys.exit(main())
