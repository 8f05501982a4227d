"""Times one all-reduce of Gaussian gradients: TensorFlow's beside tf_gc's.

    tf_gc-launch --workers 2 benchmarks/all_reduce_benchmark.py
    sudo tf_gc-launch --workers 2 --bandwidth 100mbit benchmarks/all_reduce_benchmark.py
    tf_gc-launch --workers 12 benchmarks/all_reduce_benchmark.py --mebibytes 4 --variables 10

All run in turn in the same processes, with other values every step; the figures
are whole steps (a `tf.function` with one `strategy.run`), and the ratio is
TensorFlow's median over tf_gc's. "CPU ms" is the processor time of a worker's
process in a step, all threads together, which says more than milliseconds where
other programs run. Bits a value are of the last turn, when the residuals have
settled: before the first turn each compressor takes --settling_steps.
"""

import json
import statistics
import time

import tensorflow as tf
from absl import app, flags, logging
from rich.console import Console
from rich.table import Table

import tf_gc

_MEBIBYTES = flags.DEFINE_multi_float("mebibytes", [16], "Sizes of the gradient, in MiB.")
_VARIABLES = flags.DEFINE_integer(
    "variables", 1, "In how many variables a gradient is cut.", lower_bound=1
)
_STEPS = flags.DEFINE_integer("steps", 10, "Timed steps in each turn.", lower_bound=1)
_TURNS = flags.DEFINE_integer("turns", 3, "Turns of every contender.", lower_bound=1)
_GRADIENTS = flags.DEFINE_integer(
    "gradients",
    24,
    "Different gradients of each worker, which stay in memory. With 24, the residuals have "
    "forgotten one before it comes again.",
    lower_bound=1,
)
_SETTLING_STEPS = flags.DEFINE_integer(
    "settling_steps",
    200,
    "Steps of each compressor before its first turn, in which residuals grow to what they stay at.",
    lower_bound=1,
)
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")

_TENSORFLOW = "TensorFlow"
_TENSORFLOW_FLOAT16 = "TensorFlow, float16"  # as Horovod's Compression.fp16
_CONTENDERS = {
    _TENSORFLOW: None,
    _TENSORFLOW_FLOAT16: None,
    "tf_gc, uncompressed": tf_gc.Policy(),
    "3LC, in units": tf_gc.ThreeLC(),
    "3LC, s = 1": tf_gc.ThreeLC(1.0),
    "3LC, s = 1.75": tf_gc.ThreeLC(1.75),
    "THC": tf_gc.THC(),
    "THC, nearest": tf_gc.THC(rounding="nearest"),
    "THC, nearest, in units": tf_gc.THC(rounding="nearest", units="second_moment"),
    "Uniform THC, ring": tf_gc.UniformTHC(topology="ring"),
    "Marsit": tf_gc.Marsit(full_precision_every=0),
    "AR-Topk, 1 %": tf_gc.ARTopK(0.01),
    "top-k, 1 %": tf_gc.TopK(0.01),
    "ScaleCom, 1 %": tf_gc.ScaleCom(100),
}
_NAMES = flags.DEFINE_multi_enum(
    "contender",
    list(_CONTENDERS)[1:],
    list(_CONTENDERS)[1:],
    "Who is timed beside TensorFlow; may be given several times.",
)
_WARM_UP_STEPS = 5  # of what has no residuals
_COLUMNS = 1024


def _policy():
    """Each contender's variables are named after it."""
    rules = {
        name: contender
        for name, contender in _CONTENDERS.items()
        if isinstance(contender, tf_gc.Compressor)
    }
    return tf_gc.Policy(rules={f"^{_slug(name)}/": c for name, c in rules.items()})


def _slug(name):
    return "".join(character if character.isalnum() else "_" for character in name)


def _all_reduce(gradients):
    return tf.distribute.get_replica_context().all_reduce("SUM", gradients)


class _Contender:
    """One way to reduce gradients of one size, and its times so far."""

    def __init__(self, strategy, name, rows):
        self.name = name
        self.seconds, self.cpu_seconds = [], []
        self._strategy = strategy
        with strategy.scope():
            self._variables = [
                tf.Variable(tf.zeros([rows, _COLUMNS]), trainable=False, name=f"{_slug(name)}/{i}")
                for i in range(_VARIABLES.value)
            ]
        self._taken = self._bytes = self._values = 0
        self._bits = 16.0 if name == _TENSORFLOW_FLOAT16 else 32.0
        self._step = tf.function(lambda gradients: strategy.run(self._reduce, args=(gradients,)))

    def _reduce(self, gradients):
        if self.name == _TENSORFLOW:
            return _all_reduce([tf.identity(gradient) for gradient in gradients])
        if self.name == _TENSORFLOW_FLOAT16:
            sums = _all_reduce([tf.cast(gradient, tf.float16) for gradient in gradients])
            return [tf.cast(gradient, tf.float32) for gradient in sums]
        reduced = self._strategy.reduce_gradients(zip(gradients, self._variables, strict=True))
        return [gradient for gradient, _ in reduced]

    def take_turn(self, gradients, steps, timed=True):
        for _ in range(steps):
            of_step = gradients[self._taken % len(gradients)]
            self._taken += 1
            begin, cpu_begin = time.perf_counter(), time.process_time()
            self._step(of_step)
            if timed:
                self.seconds.append(time.perf_counter() - begin)
                self.cpu_seconds.append(time.process_time() - cpu_begin)
        self._read_traffic()

    def _read_traffic(self):
        traffic = self._strategy.traffic
        mine = [v for v in traffic.variables if v.name.startswith(f"{_slug(self.name)}/")]
        sent, values = sum(v.bytes_sent for v in mine), sum(v.values_sent for v in mine)
        if values > self._values:
            self._bits = 8 * (sent - self._bytes) / (values - self._values)
        self._bytes, self._values = sent, values

    def figures(self):
        return {
            "name": self.name,
            "median_seconds": statistics.median(self.seconds),
            "min_seconds": min(self.seconds),
            "max_seconds": max(self.seconds),
            "median_cpu_seconds": statistics.median(self.cpu_seconds),
            "bits_per_value": self._bits,
        }


def _measure(strategy, rank, mebibytes):
    rows = max(1, round(mebibytes * 2**20 / 4 / _COLUMNS / _VARIABLES.value))
    shape = [_VARIABLES.value, rows, _COLUMNS]
    gradients = [
        tf.unstack(tf.random.stateless_normal(shape, [i, rank])) for i in range(_GRADIENTS.value)
    ]
    contenders = [_Contender(strategy, name, rows) for name in (_TENSORFLOW, *_NAMES.value)]
    for contender in contenders:
        has_residuals = isinstance(_CONTENDERS[contender.name], tf_gc.Compressor)
        steps = _SETTLING_STEPS.value if has_residuals else _WARM_UP_STEPS
        contender.take_turn(gradients, steps, timed=False)
    for _ in range(_TURNS.value):
        for contender in contenders:
            contender.take_turn(gradients, _STEPS.value)
    return [contender.figures() for contender in contenders]


def _print(workers, mebibytes, figures):
    table = Table(title=f"{workers} workers, {mebibytes:g} MiB of gradients")
    columns = ("all-reduce", "median ms", "min ms", "max ms", "CPU ms", "bits a value", "ratio")
    for column in columns:
        table.add_column(column, justify="left" if column == "all-reduce" else "right")
    for row in figures:
        table.add_row(
            row["name"],
            *(
                f"{1e3 * row[f'{key}_seconds']:.1f}"
                for key in ("median", "min", "max", "median_cpu")
            ),
            f"{row['bits_per_value']:.2f}",
            f"{figures[0]['median_seconds'] / row['median_seconds']:.2f}",
        )
    Console(width=90).print(table)


def main(argv):
    del argv
    logging.set_verbosity(logging.WARNING)  # TensorFlow tells of every collective it traces
    tf.get_logger().setLevel("WARNING")
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=_policy())
    rank = strategy.cluster_resolver.task_id or 0
    results = []
    for mebibytes in _MEBIBYTES.value:
        figures = _measure(strategy, rank, mebibytes)
        results.append({"mebibytes": mebibytes, "figures": figures})
        if rank == 0:
            _print(strategy.num_replicas_in_sync, mebibytes, figures)
    if _JSON.value and rank == 0:
        with open(_JSON.value, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    app.run(main)
