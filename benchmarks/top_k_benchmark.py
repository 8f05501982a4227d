"""Times top_k_indices beside TensorFlow's own way to the same indices.

    python benchmarks/top_k_benchmark.py
    python benchmarks/top_k_benchmark.py --threads 2 --fraction 0.001 --log_size 22

Both run in turn in the same process, on the same Gaussian values, with the same
number of intra-op threads, each as a `tf.function`; the ratio is TensorFlow's
median over tf_gc's. TensorFlow's indices come in the order of the magnitudes;
sorting them is not counted.
"""

import json
import statistics
import time

import numpy as np
import tensorflow as tf
from absl import app, flags
from rich.console import Console
from rich.table import Table

from tf_gc import ops

_LOG_SIZE = flags.DEFINE_multi_integer(
    "log_size",
    [20, 24],
    "Base-2 logarithms of the numbers of values.",
    lower_bound=0,
    upper_bound=30,
)
_FRACTION = flags.DEFINE_multi_float(
    "fraction", [0.01], "Which parts of the values are selected.", lower_bound=0, upper_bound=1
)
_THREADS = flags.DEFINE_integer("threads", 1, "Intra-op threads.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 5, "Timed steps in each turn.", lower_bound=1)
_TURNS = flags.DEFINE_integer("turns", 5, "Turns of both contenders.", lower_bound=1)
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")


def _contenders(k):
    return {
        "tf.math.top_k(tf.abs(x), k)": tf.function(
            lambda values: tf.math.top_k(tf.abs(values), k).indices
        ),
        "tf_gc.ops.top_k_indices(x, k)": tf.function(lambda values: ops.top_k_indices(values, k)),
    }


def _measure(n, k):
    values = tf.random.stateless_normal([n], [1, 2])
    contenders = _contenders(k)
    expected, selected = (function(values).numpy() for function in contenders.values())
    np.testing.assert_array_equal(selected, np.sort(expected))
    seconds = {name: [] for name in contenders}
    for _ in range(_TURNS.value):
        for name, function in contenders.items():
            for _ in range(_STEPS.value):
                begin = time.perf_counter()
                function(values)
                seconds[name].append(time.perf_counter() - begin)
    return [
        {
            "name": name,
            "median_seconds": statistics.median(times),
            "min_seconds": min(times),
            "max_seconds": max(times),
        }
        for name, times in seconds.items()
    ]


def _print(n, k, figures):
    title = f"{n} Gaussian values, k = {k}, intra-op threads: {_THREADS.value}"
    table = Table(title=title)
    for column in ("", "median ms", "min ms", "max ms", "ratio"):
        table.add_column(column, justify="left" if column == "" else "right")
    for row in figures:
        table.add_row(
            row["name"],
            *(f"{1e3 * row[key]:.2f}" for key in ("median_seconds", "min_seconds", "max_seconds")),
            f"{figures[0]['median_seconds'] / row['median_seconds']:.1f}",
        )
    Console(width=90).print(table)


def main(argv):
    del argv
    tf.config.threading.set_intra_op_parallelism_threads(_THREADS.value)
    results = []
    for log_size in _LOG_SIZE.value:
        for fraction in _FRACTION.value:
            n = 2**log_size
            k = round(fraction * n)
            figures = _measure(n, k)
            results.append({"n": n, "k": k, "threads": _THREADS.value, "figures": figures})
            _print(n, k, figures)
    if _JSON.value:
        with open(_JSON.value, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    app.run(main)
