"""Times steps of models of given numbers of parameters, whose gradients cost nothing to compute.

    tf_gc-launch --workers 4 benchmarks/step_benchmark.py
    sudo tf_gc-launch --workers 4 --bandwidth 10mbit benchmarks/step_benchmark.py \\
      --parameters 1 --compressor none --compressor "ThreeLC()" --compressor "Auto()"

A step is a `tf.function` with one `strategy.run`: gradients that were made before, Gaussian, of a
matrix and a vector for each of ten layers, are reduced, and subtracted from the parameters. All
compressors take turns in the same processes; "none" is TensorFlow's own all-reduce. "CPU ms" is
the processor time of a worker's process in a step, all threads together. Ratios are of medians.
"""

import json
import pathlib
import statistics
import time

import tensorflow as tf
from absl import app, flags, logging
from rich.console import Console
from rich.table import Table

import tf_gc

_COMPRESSORS = flags.DEFINE_multi_string(
    "compressor",
    ["none", "ThreeLC()", "Auto()"],
    'What compresses, for instance "THC(bits=3)", auto, or none; may be given several times.',
)
_PARAMETERS = flags.DEFINE_multi_float("parameters", [0.1, 1], "Sizes of models, in millions.")
_WARM_UP_STEPS = flags.DEFINE_integer("warm_up_steps", 8, "Steps that are not timed.")
_AUTO_STEPS = flags.DEFINE_integer(
    "auto_steps", 400, "The same of Auto, which tries its plans in them."
)
_TURNS = flags.DEFINE_integer("turns", 5, "Turns of each compressor.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 8, "The most that are timed in a turn.", lower_bound=1)
_SECONDS = flags.DEFINE_float(
    "seconds",
    20,
    "About the longest time that the timed steps of a compressor take, of which there is at least "
    "one; those before them take as long at most, Auto's four times as long.",
)
_JSON = flags.DEFINE_string("json", None, "File that the first worker writes the figures to.")

_LAYERS = 10
_DIFFERENT_GRADIENTS = 2
_TIMEOUT_SECONDS = 1800  # TensorFlow's heartbeats wait behind gradients where links are slow


def _shapes(parameters: float) -> list[list[int]]:
    width = max(1, round((parameters / _LAYERS) ** 0.5))
    return [[width, width], [width]] * _LAYERS


def _policy() -> tf_gc.Policy:
    """Each compressor has the matrices that are named after its place among them."""
    compressors = map(tf_gc.compressors.from_string, _COMPRESSORS.value)
    return tf_gc.Policy(rules={f"^matrix_{i}$": c for i, c in enumerate(compressors)})


class _Contender:
    """Parameters that one compressor reduces the gradients of, and the times of their steps."""

    def __init__(self, strategy: tf.distribute.Strategy, index: int, parameters: float):
        self.compressor = _COMPRESSORS.value[index]
        self.seconds, self.cpu_seconds = [], []
        self._strategy = strategy
        with strategy.scope():
            self._variables = [
                tf.Variable(
                    tf.zeros(shape), name=f"{'matrix' if len(shape) > 1 else 'vector'}_{index}"
                )
                for shape in _shapes(parameters)
            ]
        self._taken = 0
        self._step = tf.function(lambda gradients: strategy.run(self._update, args=(gradients,)))

    def _update(self, gradients):
        if self.compressor == "none":
            reduced = tf.distribute.get_replica_context().all_reduce("SUM", gradients)
            pairs = zip(reduced, self._variables, strict=True)
        else:
            pairs = self._strategy.reduce_gradients(zip(gradients, self._variables, strict=True))
        for gradient, variable in pairs:
            variable.assign_sub(1e-3 * gradient)

    def prepare(self, gradients) -> None:
        """Takes the steps that are not timed."""
        self._take(gradients)  # traces
        seconds = _mean(self._strategy, self._take(gradients))
        is_auto = isinstance(tf_gc.compressors.from_string(self.compressor), tf_gc.Auto)
        wanted, affordable = (
            (_AUTO_STEPS.value, 4 * _SECONDS.value)
            if is_auto
            else (_WARM_UP_STEPS.value, _SECONDS.value)
        )
        for _ in range(min(wanted, int(affordable / seconds))):
            self._take(gradients)
        if seconds < _SECONDS.value:
            seconds = _mean(self._strategy, self._take(gradients))
        # All workers know the same mean, and so take as many steps.
        self._affordable = max(1, int(_SECONDS.value / seconds))

    def take_turn(self, gradients) -> None:
        """Takes timed steps, while they can be afforded."""
        left = self._affordable - len(self.seconds)
        steps = min(_STEPS.value, left, -(-self._affordable // _TURNS.value))
        for _ in range(steps):
            cpu_begin = time.process_time()
            self.seconds.append(self._take(gradients))
            self.cpu_seconds.append(time.process_time() - cpu_begin)

    def _take(self, gradients) -> float:
        """Does one step; returns how long it took."""
        of_step = gradients[self._taken % len(gradients)]
        self._taken += 1
        begin = time.perf_counter()
        self._step(of_step)
        self._variables[-1].numpy()
        return time.perf_counter() - begin


def _measure(strategy, rank, parameters):
    """Returns the figures of one model."""
    gradients = [
        [
            tf.random.stateless_normal(shape, [i + j, rank])
            for j, shape in enumerate(_shapes(parameters))
        ]
        for i in range(_DIFFERENT_GRADIENTS)
    ]
    contenders = [_Contender(strategy, i, parameters) for i in range(len(_COMPRESSORS.value))]
    for contender in contenders:
        contender.prepare(gradients)
    for _ in range(_TURNS.value):
        for contender in contenders:
            contender.take_turn(gradients)
    return [
        {
            "compressor": contender.compressor,
            "seconds": contender.seconds,
            "median_seconds": statistics.median(contender.seconds),
            "median_cpu_seconds": statistics.median(contender.cpu_seconds),
        }
        for contender in contenders
    ]


def _mean(strategy, value):
    """Returns the mean over the workers, the same bits on all."""

    @tf.function
    def reduce(value):
        return strategy.run(
            lambda: tf.distribute.get_replica_context().all_reduce("MEAN", tf.identity(value))
        )

    return float(reduce(tf.constant(value)))


def _print(workers, parameters, figures):
    table = Table(title=f"{workers} workers, {parameters:g} million parameters")
    ratio = f"{figures[0]['compressor']} / it"
    for column in ("", "median ms", "min ms", "max ms", "CPU ms", "steps", ratio):
        table.add_column(column, justify="right" if column else "left")
    for row in figures:
        seconds, median = row["seconds"], row["median_seconds"]
        table.add_row(
            row["compressor"],
            *(
                f"{1e3 * s:.1f}"
                for s in (median, min(seconds), max(seconds), row["median_cpu_seconds"])
            ),
            f"{len(seconds)}",
            f"{figures[0]['median_seconds'] / median:.2f}",
        )
    Console(width=100).print(table)


def main(argv):
    del argv
    logging.set_verbosity(logging.WARNING)
    tf.get_logger().setLevel("WARNING")
    strategy = tf_gc.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            timeout_seconds=_TIMEOUT_SECONDS
        ),
        compression=_policy(),
    )
    rank = strategy.cluster_resolver.task_id or 0
    models = []
    for millions in _PARAMETERS.value:
        figures = _measure(strategy, rank, 1e6 * millions)
        models.append({"millions": millions, "figures": figures})
        if rank == 0:
            _print(strategy.num_replicas_in_sync, millions, figures)
    if _JSON.value and rank == 0:
        path = pathlib.Path(_JSON.value)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"models": models}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    app.run(main)
