"""Times updates with parameter servers: TensorFlow's strategy beside tf_gc's.

    tf_gc-launch --workers 3 --ps 1 benchmarks/parameter_server_benchmark.py
    sudo tf_gc-launch --workers 3 --ps 1 --bandwidth 100mbit \
        benchmarks/parameter_server_benchmark.py --variables 1 --rows 1024 --columns 1024

A step reads all variables, whose gradients are given, and SGD updates them. All
run in turn on the same servers; the figure is the time from one push that is
applied to the next while every worker is kept busy, and the ratio is
TensorFlow's median over tf_gc's.
"""

import json
import statistics
import time

import keras
import tensorflow as tf
from absl import app, flags, logging
from rich.console import Console
from rich.table import Table

import tf_gc

_VARIABLES = flags.DEFINE_integer("variables", 122, "Number of variables.", lower_bound=1)
_ROWS = flags.DEFINE_integer("rows", 32, "Rows of each.", lower_bound=1)
_COLUMNS = flags.DEFINE_integer("columns", 32, "Columns of each.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 60, "Timed steps in each turn.", lower_bound=1)
_TURNS = flags.DEFINE_integer("turns", 3, "Turns of every contender.", lower_bound=1)
_STEPS_PER_CALL = flags.DEFINE_integer(
    "steps_per_call", 10, "Steps that a worker takes when it is called.", lower_bound=1
)
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")

_CONTENDERS = {
    "TensorFlow": {"compression": None},
    "tf_gc, uncompressed": {"compression": tf_gc.Policy()},
    "3LC, s = 1": {"compression": tf_gc.ThreeLC(1.0)},
    "3LC, s = 1.75": {"compression": tf_gc.ThreeLC(1.75)},
    "8-bit integers": {"compression": tf_gc.Int8()},
    "3LC, s = 1, synchronous": {"compression": tf_gc.ThreeLC(1.0), "synchronous": True},
    "THC, synchronous": {"compression": tf_gc.THC(), "synchronous": True},
}


class _Contender:
    """One strategy, and its times so far."""

    def __init__(self, name):
        self.name = name
        self.seconds_per_push = []
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self._strategy = tf_gc.ParameterServerStrategy(resolver, **_CONTENDERS[name])
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        shape = (_ROWS.value, _COLUMNS.value)
        with self._strategy.scope():
            self._variables = [tf.Variable(tf.zeros(shape)) for _ in range(_VARIABLES.value)]
            self._optimizer = keras.optimizers.SGD(0.01)
            self._optimizer.build(self._variables)
        self._step = tf.function(self._take_steps)

    def take_turn(self, steps, timed=True):
        calls = max(1, steps // _STEPS_PER_CALL.value)
        late = self._strategy.traffic.dropped_pushes
        begin = time.perf_counter()
        for _ in range(calls):
            self._coordinator.schedule(self._step)
        self._coordinator.join()
        elapsed = time.perf_counter() - begin
        if timed:
            late = self._strategy.traffic.dropped_pushes - late
            self.seconds_per_push.append(elapsed / (calls * _STEPS_PER_CALL.value - late))

    def _take_steps(self):
        for _ in tf.range(_STEPS_PER_CALL.value):
            self._strategy.run(self._train)

    def _train(self):
        with tf.GradientTape():
            values = [tf.convert_to_tensor(variable) for variable in self._variables]
        # Of the values, lest nobody reads them.
        gradients = [tf.random.normal(tf.shape(value)) + 1e-6 * value for value in values]
        self._optimizer.apply(gradients, self._variables)

    def figures(self):
        traffic = self._strategy.traffic
        values = _VARIABLES.value * _ROWS.value * _COLUMNS.value
        pushes = max(1, traffic.pushes)
        uncompressed = _CONTENDERS[self.name]["compression"] is None
        return {
            "name": self.name,
            "median_seconds": statistics.median(self.seconds_per_push),
            "min_seconds": min(self.seconds_per_push),
            "max_seconds": max(self.seconds_per_push),
            "bytes_pushed": 4 * values if uncompressed else traffic.bytes_pushed / pushes,
            "bytes_pulled": 4 * values if uncompressed else traffic.bytes_pulled / pushes,
            "encodings": traffic.encodings / max(1, traffic.updates),
        }


def _print(figures):
    values = _VARIABLES.value * _ROWS.value * _COLUMNS.value
    table = Table(title=f"{_VARIABLES.value} variables, {values:,} values")
    columns = ("strategy", "median ms", "min ms", "max ms", "kB pushed", "pulled", "ratio")
    for column in columns:
        table.add_column(column, justify="left" if column == "strategy" else "right")
    for row in figures:
        table.add_row(
            row["name"],
            *(f"{1e3 * row[key]:.1f}" for key in ("median_seconds", "min_seconds", "max_seconds")),
            *(f"{row[key] / 1000:.1f}" for key in ("bytes_pushed", "bytes_pulled")),
            f"{figures[0]['median_seconds'] / row['median_seconds']:.2f}",
        )
    Console(width=100).print(table)


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    logging.set_verbosity(logging.WARNING)
    tf.get_logger().setLevel("WARNING")
    contenders = [_Contender(name) for name in _CONTENDERS]
    for contender in contenders:
        contender.take_turn(_STEPS.value, timed=False)
    for _ in range(_TURNS.value):
        for contender in contenders:
            contender.take_turn(_STEPS.value)
    figures = [contender.figures() for contender in contenders]
    _print(figures)
    if _JSON.value:
        with open(_JSON.value, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    app.run(main)
