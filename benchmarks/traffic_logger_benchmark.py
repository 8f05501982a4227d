"""Times epochs of `fit` with and without tf_gc.keras.TrafficLogger.

    tf_gc-launch --workers 2 benchmarks/traffic_logger_benchmark.py

Two models of the same layers train in turn in the same processes, one of them with the logger. The
figures are the ratios of the medians of their epochs, less one, of seconds and of the process's
processor seconds: what the logger costs with norms of one step in each epoch.
"""

import tempfile
import time

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

import tf_gc

_COMPRESSOR = flags.DEFINE_string("compressor", "ThreeLC()", "One of tf_gc.compressors.")
_LAYERS = flags.DEFINE_integer("layers", 24, "Dense layers.", lower_bound=1)
_WIDTH = flags.DEFINE_integer("width", 256, "Of the layers.", lower_bound=1)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 64, "Of a worker.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 50, "Of an epoch.", lower_bound=1)
_TURNS = flags.DEFINE_integer("turns", 15, "Epochs of each model.", lower_bound=1)


def _model(strategy):
    with strategy.scope():
        layers = [keras.layers.Dense(_WIDTH.value, "relu") for _ in range(_LAYERS.value)]
        model = keras.Sequential([keras.Input((_WIDTH.value,)), *layers])
        model.compile(keras.optimizers.SGD(1e-4), "mse")
    return model


def main(argv):
    del argv
    tf.get_logger().setLevel("WARNING")
    strategy = tf_gc.MultiWorkerMirroredStrategy(
        compression=tf_gc.compressors.from_string(_COMPRESSOR.value)
    )
    size = _BATCH_SIZE.value * strategy.num_replicas_in_sync
    values = np.random.default_rng(0).standard_normal((size, _WIDTH.value), np.float32)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = tf.data.Dataset.from_tensors((values, values)).repeat().with_options(options)
    with tempfile.TemporaryDirectory() as directory:
        logger = tf_gc.keras.TrafficLogger(directory)
        seconds = {}
        contenders = {"without": (_model(strategy), []), "with": (_model(strategy), [logger])}
        for turn in range(_TURNS.value + 1):
            order = list(contenders)[:: 1 if turn % 2 else -1] if turn else list(contenders)
            for name in order:
                model, callbacks = contenders[name]
                before = _clocks()
                model.fit(dataset, steps_per_epoch=_STEPS.value, callbacks=callbacks, verbose=0)
                if turn:  # the first one traces
                    seconds.setdefault(name, []).append(_clocks() - before)
    if strategy.cluster_resolver.task_id == 0:
        without, with_ = (np.median(seconds[name], axis=0) for name in contenders)
        print(
            f"{_COMPRESSOR.value}, {_LAYERS.value} x {_WIDTH.value}: a step takes "
            f"{1000 * without[0] / _STEPS.value:.2f} ms, {1000 * without[1] / _STEPS.value:.2f} of "
            f"the processor; the logger costs {100 * (with_[0] / without[0] - 1):.2f} % and "
            f"{100 * (with_[1] / without[1] - 1):.2f} %"
        )


def _clocks():
    return np.array([time.perf_counter(), time.process_time()])


if __name__ == "__main__":
    app.run(main)
