"""Builds and tests tf_gc with each TensorFlow and each Python that it has: make matrix.

`make matrix PAIRS="2.17-3.10 2.21-3.13"` takes those alone. Each pair has a virtual environment of
its own, in which its wheel is installed, and the suite below runs against that. A pair that has
passed with the same sources is not tested again. A run of all pairs writes the table of README.md.
"""

import json
import os
import re
import sys
import tempfile
import time

from environments import ROOT, Pair, StepError, fingerprint, interpreter, make_wheel, pairs, run
from progress import for_each
from run_tests import count
from supported import TENSORFLOWS

# Test program -> what of it is run; all of it if nothing is named. A few minutes in all.
SUITE = {
    "names_test.py": ("NamesTest", "ImportTest.test_tf_gc_is_imported_without_tensorflow"),
    "kernels/numpy_hadamard_test.py": (),
    "kernels/numpy_selection_test.py": (),
    "ops/three_lc_ops_test.py": (),
    "ops/fusion_ops_test.py": (),
    "keras_seams_test.py": (),
    "quick_conformance_test.py": (),
    "shards_test.py": (),  # with TensorFlow 2.17, by tensorflow-io
    "streaming_test.py": (),
    "strategy_test.py": (
        "KerasTest.test_fit_evaluate_and_predict_work1",  # two workers
        "KerasTest.test_tf_keras_fit_gives_the_same_weights_as_keras_3",
        "ReductionTest.test_without_compression_the_sum_is_tensorflows",
    ),
    "parameter_server_test.py": (
        "KerasTest.test_a_keras_3_model_learns_in_a_loop0",  # 3LC
        "KerasTest.test_a_keras_3_model_learns_in_a_loop1",  # THC, synchronous
        "KerasTest.test_tf_keras_fit_lazy",
    ),
}
_EXAMPLE = ("examples/digits.py", "--epochs=2", "--compressor=ThreeLC()")
_PROBE = """
import importlib.metadata as metadata, json, platform
names = ("tensorflow-cpu", "keras", "tf-keras", "numpy")
versions = {name: metadata.version(name) for name in names}
print(json.dumps({"python": platform.python_version(), **versions}))
"""


def main(names):
    is_good = for_each(names, "pairs", test)
    if not names:
        _write_table({pair: _result(pair) for pair in pairs()})
    return 0 if is_good else 1


def test(pair: Pair, say):
    """Returns what to say of a pair that has passed; raises StepError where it has not."""
    result = _result(pair)
    if result is None:
        result = _test(pair, say)
        (pair.folder / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    return f"{result['passed']} passed in {result['seconds']:.0f} s"


def _test(pair, say):
    say("compiling")
    wheel = make_wheel(pair)
    pip = (pair.environment, "-m", "pip", "install", "--disable-pip-version-check")
    run(pair.folder / "install.log", *pip, "--force-reinstall", "--no-deps", wheel)
    begin = time.monotonic()
    passed, failed, skipped = count(_run_suite(pair, say))
    if failed or skipped:
        raise StepError(f"{failed} failed, {skipped} skipped")
    say("the example of README.md")
    launch = pair.environment.with_name("tf_gc-launch")
    run(pair.folder / "example.log", launch, "--workers", "2", *_EXAMPLE, **_ENVIRONMENT)
    seconds = time.monotonic() - begin
    run(pair.folder / "versions.json", pair.environment, "-c", _PROBE)
    versions = json.loads((pair.folder / "versions.json").read_text(encoding="utf-8"))
    return {"sources": _sources(), "passed": passed, "seconds": seconds, "versions": versions}


def _run_suite(pair, say):
    """Returns the reports of the test programs; raises StepError where one fails."""
    reports = []
    with tempfile.TemporaryDirectory() as folder:
        # Beside the installed package, and without the sources of it.
        os.symlink(ROOT / "tests", os.path.join(folder, "tests"))
        for program, tests in SUITE.items():
            say(program)
            report = pair.folder / f"{program.replace('/', '_')}.xml"
            run(
                report.with_suffix(".log"),
                *(pair.environment, os.path.join(folder, "tests", program), *tests),
                f"--xml_output_file={report}",
                folder=folder,
                PYTHONPATH=folder,
                **_ENVIRONMENT,
            )
            reports.append(report)
    return reports


# As .bazelrc has it.
_ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}


def _sources():
    return fingerprint("tests", "examples")


def _result(pair):
    """Returns the result of a pair that has passed with these sources, or None."""
    path = pair.folder / "result.json"
    if not path.exists():
        return None
    result = json.loads(path.read_text(encoding="utf-8"))
    return result if result["sources"] == _sources() else None


def _write_table(results):
    pythons = sorted({pair.python for pair in results}, key=lambda python: int(python[2:]))
    rows = [
        ("TensorFlow", *(f"Python {python}" for python in pythons)),
        ("---",) * (len(pythons) + 1),
        *(
            (tensorflow, *(_cell(Pair(tensorflow, python), results) for python in pythons))
            for tensorflow in TENSORFLOWS
        ),
    ]
    begin, end = "<!-- matrix -->\n", "<!-- end of matrix -->"
    table = begin + "".join(f"| {' | '.join(row)} |\n" for row in rows) + end
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(f"{begin}.*{end}", lambda _: table, text, flags=re.S), encoding="utf-8")


def _cell(pair, results):
    if pair not in results:
        return "no such TensorFlow"
    if results[pair] is None:
        return "failed" if interpreter(pair.python) else "not tested"
    versions = results[pair]["versions"]
    return f"Keras {versions['keras']}, tf_keras {versions['tf-keras']}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
