"""Times one all-reduce of Gaussian gradients: TensorFlow's beside tf_gc's.

    tf_gc-launch --workers 2 benchmarks/all_reduce_benchmark.py
    tf_gc-launch --workers 2 --bandwidth 100mbit benchmarks/all_reduce_benchmark.py

All run in turn in the same processes, on fresh values every step; the figures
are whole steps (a `tf.function` with one `strategy.run`), and the ratio is
TensorFlow's median over tf_gc's.
"""

import json
import statistics
import time

import tensorflow as tf
from absl import app, flags, logging
from rich.console import Console
from rich.table import Table

import tf_gc

_MEBIBYTES = flags.DEFINE_multi_float("mebibytes", [16], "Sizes of the gradient in MiB of float32.")
_STEPS = flags.DEFINE_integer("steps", 10, "Timed steps in each turn.", lower_bound=1)
_TURNS = flags.DEFINE_integer("turns", 3, "Turns of every contender.", lower_bound=1)
_MULTIPLIERS = flags.DEFINE_multi_float(
    "sparsity_multiplier", [1.0, 1.75], "3LC's sparsity multipliers."
)
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")

_WARM_UP_STEPS = 5
_DIFFERENT_VALUES = 4  # gradients that take turns


def _contender(strategy, compressor, shape):
    """Returns step(gradient), and the variable that it belongs to."""
    with strategy.scope():
        variable = tf.Variable(tf.zeros(shape), trainable=False)

    @tf.function
    def step(gradient):
        def replica_step(gradient):
            context = tf.distribute.get_replica_context()
            if compressor is None:
                return context.all_reduce("SUM", tf.identity(gradient))
            with strategy.compressing_with(compressor):
                return strategy.reduce_gradients([(gradient, variable)])[0][0]

        return strategy.run(replica_step, args=(gradient,))

    return step


def main(argv):
    del argv
