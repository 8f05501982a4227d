"""Memory and time of steps on a large model: TensorFlow's strategy beside tf_gc's systems.

    python benchmarks/memory_benchmark.py
    python benchmarks/memory_benchmark.py --parameters 250e6 --systems TensorFlow,3LC

Each system has processes of its own, one after the other. A step computes a Gaussian
gradient for each variable, reduces all, and subtracts them. Memory is what the first
worker's process has resident beyond what it had when the variables were made, over the
size of the variables: what stays between steps (residuals, buffers), and the most that
there ever was in a step, which includes the gradients, one more copy of the model.
"""

import gc
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import psutil
import tensorflow as tf
from absl import app, flags
from rich.console import Console
from rich.table import Table

import tf_gc

_WORKERS = flags.DEFINE_integer("workers", 2, "Number of workers.", lower_bound=2)
_PARAMETERS = flags.DEFINE_float("parameters", 64e6, "Of the model.", lower_bound=1)
_STEPS = flags.DEFINE_integer(
    "steps", 10, "Steps, of which the first three warm up.", lower_bound=4
)
_WARM_UP_STEPS = 3

_POLICIES = {
    "TensorFlow": None,
    "uncompressed": tf_gc.Policy(),
    "3LC": tf_gc.ThreeLC(),
    "THC": tf_gc.THC(),
    "Marsit": tf_gc.Marsit(),
    "AR-Topk": tf_gc.ARTopK(0.01),
    "ScaleCom": tf_gc.ScaleCom(100),
    "top-k": tf_gc.TopK(0.01),
}
_SYSTEMS = flags.DEFINE_list("systems", list(_POLICIES), f"Of {', '.join(_POLICIES)}.")
flags.register_validator(
    "systems", lambda names: set(names) <= set(_POLICIES), f"are of {', '.join(_POLICIES)}"
)
_REPORT = flags.DEFINE_string("report", None, "For workers: the file to write the figures to.")

# As those of large models; malloc gives back to the system what is larger than 32 MiB.
_ROWS, _COLUMNS = 4096, 4096


def _count():
    """Returns how many variables have about the parameters that were asked for."""
    return max(1, round(_PARAMETERS.value / (_ROWS * _COLUMNS)))


def _strategy(system):
    if system == "TensorFlow":
        return tf.distribute.MultiWorkerMirroredStrategy()
    return tf_gc.MultiWorkerMirroredStrategy(compression=_POLICIES[system])


class _Step:
    """A step of SGD on Gaussian gradients."""

    def __init__(self, strategy):
        self._strategy = strategy
        with strategy.scope():
            self.variables = [tf.Variable(tf.zeros([_ROWS, _COLUMNS])) for _ in range(_count())]

    @tf.function
    def __call__(self, number):
        self._strategy.run(self._replica_step, args=(number,))

    def _replica_step(self, number):
        rank = self._strategy.cluster_resolver.task_id
        gradients = [
            tf.random.stateless_normal(v.shape, [number, i * _WORKERS.value + rank])
            for i, v in enumerate(self.variables)
        ]
        for gradient, variable in zip(self._reduced(gradients), self.variables, strict=True):
            variable.assign_sub(1e-3 * gradient)

    def _reduced(self, gradients):
        if not isinstance(self._strategy, tf_gc.MultiWorkerMirroredStrategy):
            return tf.distribute.get_replica_context().all_reduce("SUM", gradients)
        pairs = zip(gradients, self.variables, strict=True)
        return [gradient for gradient, _ in self._strategy.reduce_gradients(pairs)]


def _measure(system):
    step = _Step(_strategy(system))
    size = sum(4 * v.shape.num_elements() for v in step.variables)
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    seconds, resident = [], []
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak
    for number in range(_STEPS.value):
        begin = time.perf_counter()
        step(tf.constant(number))
        seconds.append(time.perf_counter() - begin)
        resident.append(process.memory_info().rss)
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii").split()
    peak = 1024 * int(status[status.index("VmHWM:") + 1])
    return {
        "system": system,
        "kept": (statistics.median(resident[_WARM_UP_STEPS:]) - before) / size,
        "peak": (peak - before) / size,
        "seconds": statistics.median(seconds[_WARM_UP_STEPS:]),
    }


def _launch(system):
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        subprocess.run(
            [
                *(sys.executable, "-m", "tf_gc.launch", "--workers", str(_WORKERS.value), __file__),
                *(f"--workers={_WORKERS.value}", f"--parameters={_PARAMETERS.value}"),
                *(f"--steps={_STEPS.value}", f"--systems={system}", f"--report={report}"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"},
        )
        return json.loads(pathlib.Path(report).read_text(encoding="utf-8"))


def _print(rows):
    parameters = _count() * _ROWS * _COLUMNS
    table = Table(title=f"{_WORKERS.value} workers, {parameters / 1e6:.1f} M parameters")
    table.add_column("system")
    for column in ("kept, models", "peak, models", "s a step", "ratio"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row["system"],
            f"{row['kept']:.2f}",
            f"{row['peak']:.2f}",
            f"{row['seconds']:.3f}",
            f"{rows[0]['seconds'] / row['seconds']:.2f}",
        )
    Console(width=90).print(table)


def main(argv):
    del argv
    if "TF_CONFIG" not in os.environ:
        console = Console(stderr=True)
        rows = []
        for system in _SYSTEMS.value:
            with console.status(system):
                rows.append(_launch(system))
        _print(rows)
        return
    figures = _measure(_SYSTEMS.value[0])
    if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
        pathlib.Path(_REPORT.value).write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    app.run(main)
