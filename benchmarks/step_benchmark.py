"""Times steps of models of given numbers of parameters, whose gradients cost nothing to compute.

    tf_gc-launch --workers 4 benchmarks/step_benchmark.py --compressor "ThreeLC()"
    sudo tf_gc-launch --workers 4 --bandwidth 10mbit benchmarks/step_benchmark.py --compressor none

A step is a `tf.function` with one `strategy.run`, in which Keras's SGD takes gradients that were
made before: Gaussian, of a matrix and a vector for each of ten layers. It waits for the other
workers, compresses, exchanges, and changes the parameters.
"""

import json
import pathlib
import statistics
import time

import keras
import tensorflow as tf
from absl import app, flags, logging

import tf_gc

_COMPRESSOR = flags.DEFINE_string(
    "compressor", "ThreeLC()", "One of tf_gc.compressors, with its hyper-parameters, or none."
)
_PARAMETERS = flags.DEFINE_multi_float("parameters", [0.1, 1], "Sizes of models, in millions.")
_WARM_UP_STEPS = flags.DEFINE_integer("warm_up_steps", 8, "Steps that are not timed.")
_STEPS = flags.DEFINE_integer("steps", 30, "The most that are timed.", lower_bound=1)
_WARM_UP_SECONDS = flags.DEFINE_float(
    "warm_up_seconds", 20, "About the longest time that steps which are not timed take."
)
_SECONDS = flags.DEFINE_float(
    "seconds", 20, "About the longest time that timed steps take, of which there is at least one."
)
_JSON = flags.DEFINE_string("json", None, "File that the first worker writes the figures to.")

_LAYERS = 10
_DIFFERENT_GRADIENTS = 3
_TIMEOUT_SECONDS = 1800  # TensorFlow's heartbeats wait behind gradients where links are slow


class _Model:
    """Parameters, an optimizer, and gradients to give it."""

    def __init__(self, strategy: tf.distribute.Strategy, parameters: float, rank: int):
        width = max(1, round((parameters / _LAYERS) ** 0.5))
        shapes = [[width, width], [width]] * _LAYERS
        with strategy.scope():
            self.variables = [tf.Variable(tf.zeros(shape)) for shape in shapes]
            self._optimizer = keras.optimizers.SGD(1e-3)
            self._optimizer.build(self.variables)
        self._gradients = [
            [tf.random.stateless_normal(shape, [i + j, rank]) for j, shape in enumerate(shapes)]
            for i in range(_DIFFERENT_GRADIENTS)
        ]
        self._steps = 0
        self._step = tf.function(lambda gradients: strategy.run(self._apply, args=(gradients,)))

    def _apply(self, gradients):
        self._optimizer.apply_gradients(zip(gradients, self.variables, strict=True))

    def seconds(self) -> float:
        """Does one step; returns how long it took."""
        gradients = self._gradients[self._steps % _DIFFERENT_GRADIENTS]
        self._steps += 1
        begin = time.perf_counter()
        self._step(gradients)
        self.variables[-1].numpy()
        return time.perf_counter() - begin


def _measure(strategy, parameters, rank):
    """Returns the figures of one model."""
    model = _Model(strategy, parameters, rank)
    model.seconds()  # traces
    first = _mean(strategy, model.seconds())
    # All workers know the same mean, and so take as many steps.
    for _ in range(min(_WARM_UP_STEPS.value, int(_WARM_UP_SECONDS.value / first))):
        model.seconds()
    affordable = max(1, int(_SECONDS.value / first))
    seconds = [model.seconds() for _ in range(min(_STEPS.value, affordable))]
    return {
        "parameters": sum(variable.shape.num_elements() for variable in model.variables),
        "seconds": seconds,
        "median_seconds": statistics.median(seconds),
    }


def _mean(strategy, value):
    """Returns the mean over the workers, the same bits on all."""

    @tf.function
    def reduce(value):
        return strategy.run(
            lambda: tf.distribute.get_replica_context().all_reduce("MEAN", tf.identity(value))
        )

    return float(reduce(tf.constant(value)))


def main(argv):
    del argv
    logging.set_verbosity(logging.WARNING)
    tf.get_logger().setLevel("WARNING")
    strategy = tf_gc.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            timeout_seconds=_TIMEOUT_SECONDS
        ),
        compression=tf_gc.compressors.from_string(_COMPRESSOR.value),
    )
    rank = strategy.cluster_resolver.task_id or 0
    models = []
    for millions in _PARAMETERS.value:
        models.append({"millions": millions, **_measure(strategy, 1e6 * millions, rank)})
        if rank == 0:
            print(
                f"{_COMPRESSOR.value}, {millions:g} million parameters: "
                f"{1000 * models[-1]['median_seconds']:.1f} ms a step, the median of "
                f"{len(models[-1]['seconds'])}"
            )
    if _JSON.value and rank == 0:
        path = pathlib.Path(_JSON.value)
        path.parent.mkdir(parents=True, exist_ok=True)
        report = {"compressor": _COMPRESSOR.value, "models": models}
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    app.run(main)
