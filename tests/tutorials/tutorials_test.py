"""TensorFlow's tutorials for several workers, with one line changed: make tutorials.

Each is a program of its own, on real data, that `tf_gc-launch` starts.
"""

import collections
import json
import math
import os
import pathlib
import sys
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

from tf_gc import launch

_HERE = pathlib.Path(__file__).parent
_DATA = "/usr/share/datasets/fashion-mnist"
_LAST_LINES = 60
_ON_WORKERS = (
    "ThreeLC()",
    "THC()",
    "Marsit()",
    "ARTopK(ratio=0.05, start_step=20)",
    "ScaleCom(chunk=20, start_step=20)",
)
_ON_SERVERS = ("ThreeLC()", "THC()")
# More than a program that learns nothing from the others' data has after so few steps.
_ACCURACY = {
    "multi_worker_with_keras": 0.4,
    "multi_worker_with_ctl": 0.8,
    "parameter_server_training": 0.75,
    "callbacks": 0.7,
}


def run(program, *arguments, workers=2, ps=0, legacy_keras=False):
    """Returns the reports of all processes that run a program, in the workers' order."""
    environment = ["env", f"TF_USE_LEGACY_KERAS={int(legacy_keras)}"] if legacy_keras else []
    reports = {}
    lines = collections.deque(maxlen=_LAST_LINES)

    def on_line(line):
        lines.append(f"{line.process}: {line.text}")
        if line.text.startswith("REPORT "):
            reports[line.process] = json.loads(line.text.removeprefix("REPORT "))

    command = [*environment, sys.executable, "-u", str(_HERE / f"{program}.py"), *arguments]
    code = launch.launch(command, workers=workers, ps=ps, on_line=on_line)
    if code:
        raise AssertionError(f"{program}: exit code {code}\n" + "\n".join(lines))
    return [reports[process] for process in sorted(reports)]


def scalars(directory):
    """Returns what TensorBoard shows of a folder: {(run, tag): values in their order}."""
    events = EventMultiplexer().AddRunsFromDirectory(str(directory)).Reload()
    return {
        (run, tag): np.array([tf.make_ndarray(event.tensor_proto) for event in found])
        for run, tags in events.Runs().items()
        for tag in tags["tensors"]
        for found in [events.Tensors(run, tag)]
        if events.SummaryMetadata(run, tag).plugin_data.plugin_name == "scalars"
    }


class TutorialsTest(parameterized.TestCase):
    def assert_trained(self, program, reports, processes):
        self.assertLen(reports, processes)
        self.assertLen({r["weights"] for r in reports}, 1, "workers have different models")
        for report in reports:
            self.assertGreater(report["accuracy"], _ACCURACY[program])
            self.assertBetween(report["bits_per_value"], 0.01, 20)
        print(program, reports[0])

    @parameterized.product(
        program=["multi_worker_with_keras", "multi_worker_with_ctl"],
        compressor=_ON_WORKERS,
        legacy_keras=[False, True],
    )
    def test_on_workers(self, program, compressor, legacy_keras):
        if legacy_keras and compressor not in _ON_SERVERS:
            self.skipTest("two systems are enough with tf_keras")
        with tempfile.TemporaryDirectory() as directory:
            reports = run(program, compressor, directory, legacy_keras=legacy_keras)
        self.assert_trained(program, reports, 2)
        for report in reports:
            self.assertTrue(report.get("restored", True))

    @parameterized.product(compressor=_ON_SERVERS, legacy_keras=[False, True])
    def test_on_parameter_servers(self, compressor, legacy_keras):
        program = "parameter_server_training"
        reports = run(program, compressor, ps=2, legacy_keras=legacy_keras)
        self.assert_trained(program, reports, 1)

    def test_embeddings_on_parameter_servers(self):
        program = "parameter_server_embeddings"
        [exact], [packed] = (
            run(program, compressor, ps=2, legacy_keras=True)
            for compressor in ("none", "EmbeddingRows(8)")
        )
        self.assertAlmostEqual(exact["accuracy"], packed["accuracy"], delta=0.02)
        self.assertEqual(exact["updates"], packed["updates"])
        # Rows are added up in both pushes, as a batch has more than the table. The network behind
        # it has as many values as a row, and is not compressed.
        network = packed["updates"] * 16384 * 4
        table, packed_table = (found["bytes_pushed"] - network for found in (exact, packed))
        self.assertGreater(table, 3.9 * packed_table)
        print(program, exact, packed)


class CallbacksTest(parameterized.TestCase):
    @parameterized.parameters(
        ("SGD", "ThreeLC()"),
        ("Adam", "ThreeLC()"),
        ("AdamW", "THC()"),
        ("RMSprop", "Marsit(start_step=30)"),
        ("Nadam", "ARTopK(ratio=0.05, start_step=30)"),
        ("Adafactor", "ScaleCom(chunk=20, start_step=30)"),
    )
    def test_all_together(self, optimizer, compressor):
        for legacy_keras in (False, True):
            with self.subTest(legacy_keras=legacy_keras):
                self._check(compressor, optimizer, legacy_keras)

    @parameterized.parameters(False, True)
    def test_eagerly(self, legacy_keras):
        with tempfile.TemporaryDirectory() as directory:
            reports = run(
                "callbacks", "ThreeLC()", directory, "Adam", "eagerly", legacy_keras=legacy_keras
            )
        self.assertLen({r["weights"] for r in reports}, 1)
        self.assertLess(min(reports[0]["history"]["loss"]), 1.9)  # of 2.3

    def _check(self, compressor, optimizer, legacy_keras):
        with tempfile.TemporaryDirectory() as directory:
            reports = run("callbacks", compressor, directory, optimizer, legacy_keras=legacy_keras)
            for worker, report in enumerate(reports):
                epochs, history = report["epochs"], report["history"]
                folder = pathlib.Path(directory, f"worker_{worker}")
                saves = worker == 0 or not legacy_keras  # tf_keras removes the others'
                self.assertLen(list(folder.glob("*.weights.h5")), epochs if saves else 0)
                self.assert_shown(history, pathlib.Path(directory, "logs"), worker, folder, saves)
                rows = pathlib.Path(directory, f"{worker}.csv").read_text().splitlines()
                self.assertIn("bits_per_value_up", rows[0])
                self.assertLen(rows, 1 + epochs)
                self.assertEqual(history["val_loss"], reports[0]["history"]["val_loss"])
                self.assertTrue(all(map(math.isfinite, history["compression_error"])))
        self.assertLen(reports, 2)
        self.assertLen({r["weights"] for r in reports}, 1)
        self.assertGreater(reports[0]["accuracy"], _ACCURACY["callbacks"])
        print("callbacks", optimizer, reports[0])

    def assert_shown(self, history, logs, worker, folder, saves):
        """Checks what TensorBoard finds of both callbacks against the logs of `fit`."""
        traffic = scalars(logs)
        shown = scalars(folder / "tensorboard")
        for name in ("bits_per_value_up", "bytes_sent_per_step", "compression_error"):
            expected = np.float32(history[name])
            written = traffic[f"worker_{worker}", f"traffic/{name}"]
            np.testing.assert_array_equal(written, expected)
            if saves:
                np.testing.assert_array_equal(shown["train", f"epoch_{name}"], expected)
        if not saves:
            self.assertEmpty(shown)
            return
        for run, name in (("train", "loss"), ("validation", "val_loss")):
            np.testing.assert_allclose(shown[run, "epoch_loss"], history[name], rtol=1e-6)


if __name__ == "__main__":
    if not os.path.isdir(_DATA):
        sys.exit(f"no {_DATA}: apt-get install dataset-fashion-mnist")
    absltest.main()
