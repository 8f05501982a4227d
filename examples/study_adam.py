"""Why compression and Adam do not go together, and what helps: small experiments in one process.

    python examples/study_adam.py                    # all of it: two hours or more
    python examples/study_adam.py --groups scale --steps 160 --seeds 0

One process computes the gradients of all workers and does with them what 3LC's workers and servers
would, in ways that tf_gc has and others that were left out. The model and the text are those of
bytes_lm.py, with short contexts and small batches. Writes adam/study.md in --docs, of which
docs/adam_study.md was made. What tf_gc's own processes reach is measured by evaluate_adam.py.
"""

import itertools
import math
import pathlib
import statistics
from typing import NamedTuple

import bytes_lm
import evaluations
import keras
import numpy as np
import rich.console
import rich.progress
import tensorflow as tf
from absl import app, flags

from tf_gc.second_moments import has_statistics, matrix_shape

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(evaluations)
flags.DEFINE_integer("workers", 4, "That the process stands for.", lower_bound=1)
flags.DEFINE_integer("steps", 320, "Of each training.", lower_bound=10)
flags.DEFINE_list("groups", None, "Of RUNS in this file; default: all.")
flags.DEFINE_list("seeds", ["0", "1"], "Trainings of each run.")
flags.register_validator("seeds", bool, "one or more")
FLAGS.set_default("batch_size", 4)
FLAGS.set_default("learning_rate", 4e-3)

_SMALLEST = 1024  # elements of a compressed variable
_LEAST_UNIT = 1e-6  # squared, of the mean square
_TEST_BATCH = 64


class Run(NamedTuple):
    """One row of the table."""

    group: str
    title: str
    # Of 3LC what the scale is a multiple of ("max", "mean", "rms" of all values, or the "unit" of
    # each, for one worker the part of a sum), and how many times; one of _SPARSE; "signs" or,
    # merged as in Marsit, "merged signs"; or None without compression.
    system: str | None = None
    multiplier: float = 6.0
    # Of what Adam's second moment is the mean: the squares of what is "delivered", or the workers'
    # own squares, of each "element" or of "rank-1" form, `factor` times; or "agreed", of rank-1
    # form with the squares of what the workers agree in, as the momentum tells.
    second_moment: str = "rank-1"
    factor: float = 1.0
    # In whose root values are measured: None, "element", "rank-1", "row", "column", or "block".
    units: str | None = None
    # What is kept in a step of the squares that units come from, and whether these are corrected
    # for their bias, or the first ones count for all before.
    decay: float = 0.99
    is_corrected: bool = True
    has_own_shard: bool = True
    # Of signs: times the mean magnitude; and the part of the last sum that is predicted: the change
    # is delivered.
    magnitude: float = 1.0
    prediction: float = 0.0
    # Of sparse systems.
    ratio: float = 0.05
    overshoot: float = 0.0
    # The share of the steps, the first ones, that are exact.
    start: float = 0.0


_SPARSE = ("own top-k", "leader's top-k", "leader's chunks", "leader's strided chunks")
_UNITS = ("rank-1", "row", "column", "block", "element")


def _three_lc(group, title, units="rank-1", **kwargs):
    return Run(group, title, "unit", units=units, **kwargs)


def _of_signs(system, title):
    yield Run("signs", title, system)
    yield Run("signs", f"{title}, in units", system, units="rank-1")
    yield Run("signs", f"{title}, in units, start", system, units="rank-1", start=0.1)
    for magnitude in 0.5, 2.0:
        yield Run(
            *("signs", f"{title}, in units, {magnitude:g} x the mean", system),
            units="rank-1",
            magnitude=magnitude,
        )
    for magnitude in 1.0, 1.4, 2.0:
        yield Run(
            *("signs", f"{title}, in units, predicted, {magnitude:g} x the mean", system),
            units="rank-1",
            start=0.1,
            magnitude=magnitude,
            prediction=0.9,
        )


def _of_sparse(system):
    yield Run("sparse", f"{system}, 5 %", system)
    yield Run("sparse", f"{system}, 5 %, overshoot", system, overshoot=1.0)
    yield Run("sparse", f"{system}, 5 %, overshoot, start", system, overshoot=1.0, start=0.1)
    yield Run("sparse", f"{system}, 1 %, start", system, ratio=0.01, start=0.1)
    yield Run(
        "sparse", f"{system}, 1 %, overshoot, start", system, ratio=0.01, overshoot=1.0, start=0.1
    )


def _agreed(title, *args, **kwargs):
    for second_moment, words in (("rank-1", ""), ("agreed", ", with what workers agree in")):
        yield Run("agreement", title + words, *args, second_moment=second_moment, **kwargs)


RUNS = (
    Run("second moment", "uncompressed, Keras's Adam", second_moment="delivered"),
    Run("second moment", "uncompressed, of each element", second_moment="element"),
    Run("second moment", "uncompressed, rank 1"),
    Run("second moment", "uncompressed, rank 1, doubled", factor=2.0),
    _three_lc("second moment", "3LC, Keras's Adam", second_moment="delivered"),
    _three_lc("second moment", "3LC, of each element", second_moment="element"),
    _three_lc("second moment", "3LC, rank 1"),
    _three_lc("second moment", "3LC, rank 1, doubled", factor=2.0),
    Run("scale", "1 x the largest value, Keras's Adam", "max", 1.0, second_moment="delivered"),
    Run("scale", "1 x the largest value", "max", 1.0),
    Run("scale", "0.5 x the largest value", "max", 0.5),
    Run("scale", "2 x the root mean square", "rms", 2.0),
    Run("scale", "2 x the mean", "mean", 2.0),
    Run("scale", "3 x the mean", "mean", 3.0),
    Run("scale", "4 x the mean", "mean", 4.0),
    *(_three_lc("scale", f"{k} units", multiplier=float(k)) for k in (2, 3, 4, 5, 6, 8, 12)),
    Run("units", "largest value, rank 1", "max", 0.5, units="rank-1"),
    *(Run("units", f"3 x the mean, {u}", "mean", 3.0, units=u) for u in _UNITS),
    *(_three_lc("units", f"6 units, {u}", units=u) for u in _UNITS),
    *(
        _three_lc("memory", f"{k} units, decay {decay}", multiplier=float(k), decay=decay)
        for k in (5, 6, 8)
        for decay in (0.99, 0.95, 0.9)
    ),
    *(
        _three_lc("memory", f"{k} units, not corrected", multiplier=float(k), is_corrected=False)
        for k in (5, 6, 8)
    ),
    _three_lc("shards", "6 units, no exact shard", has_own_shard=False),
    *itertools.chain.from_iterable(map(_of_sparse, _SPARSE)),
    Run(
        "sparse",
        "leader's top-k, 5 %, overshoot, in units",
        "leader's top-k",
        units="rank-1",
        overshoot=1.0,
    ),
    Run("agreement", "uncompressed, Keras's Adam", second_moment="delivered"),
    Run("agreement", "uncompressed, of each element", second_moment="element"),
    Run("agreement", "uncompressed, doubled", factor=2.0),
    *_agreed("uncompressed"),
    *_agreed("3LC", "unit", units="rank-1"),
    *_agreed(
        "EF-signSGD, in units, predicted, start",
        "signs",
        units="rank-1",
        is_corrected=False,
        prediction=0.9,
        start=0.1,
    ),
    *itertools.chain.from_iterable(
        _agreed(
            f"leader's top-k, {ratio:.0%}, overshoot, start",
            "leader's top-k",
            ratio=ratio,
            overshoot=1.0,
            start=0.1,
        )
        for ratio in (0.2, 0.05)
    ),
    *_of_signs("signs", "EF-signSGD"),
    *_of_signs("merged signs", "Marsit, never exact"),
)


class Variable:
    """A variable of the model as a matrix, and all that is kept of it."""

    def __init__(self, variable, first):
        shape = tuple(variable.shape)
        self.variable = variable
        self.is_compressed = has_statistics(shape) and math.prod(shape) >= _SMALLEST
        self.shape = matrix_shape(shape) if self.is_compressed else (1, math.prod(shape))
        size = math.prod(shape)
        self.places = np.arange(first, first + size).reshape(self.shape)
        self.residuals = [self._zeros() for _ in range(FLAGS.workers)]
        self.undelivered, self.squares = self._zeros(), self._zeros()
        self.last = self._zeros()  # sum
        self.momentum, self.velocity = self._zeros(), self._zeros()

    def _zeros(self):
        return tf.Variable(tf.zeros(self.shape))

    def units(self, kind):
        """Returns the roots of means of the squares so far; ones in the first step."""
        form = _FORMS[kind](self.squares)
        mean = tf.reduce_mean(form)
        roots = tf.sqrt(tf.maximum(form, _LEAST_UNIT * mean))
        return tf.where(mean > 0, roots, tf.ones(self.shape))

    def reduce(self, values, run, model_size, seed):
        """Returns what is delivered of the workers' values, and keeps the rest, by 3LC or signs."""
        units = self.units(run.units)
        if run.system == "signs":
            sent = [_to_signs(v, v, units, run) for v in values]
            self.keep([v - s for v, s in zip(values, sent, strict=True)])
            return tf.add_n(sent)
        if run.system == "merged signs":
            whose = tf.random.stateless_uniform(self.shape, seed, 0, FLAGS.workers, tf.int32)
            signs = tf.add_n([tf.where(whose == w, v, 0.0) for w, v in enumerate(values)])
            sent = _to_signs(signs, tf.stack(values), units, run)
            self.keep([v - sent for v in values])
            return FLAGS.workers * sent
        shards = self.places * FLAGS.workers // model_size
        total = self.undelivered + 0.0
        kept = []
        for worker, of_worker in enumerate(values):
            is_own = run.has_own_shard & (shards == worker)
            part = FLAGS.workers**-0.5
            sent = tf.where(is_own, of_worker, _quantize(of_worker, units, run, ~is_own, part))
            kept.append(of_worker - sent)
            total += sent
        self.keep(kept)
        delivered = _quantize(total, units, run, np.ones_like(shards, bool))
        self.undelivered.assign(total - delivered)
        return delivered

    def keep(self, residuals):
        """Assigns the workers' residuals."""
        for variable, residual in zip(self.residuals, residuals, strict=True):
            variable.assign(tf.reshape(residual, self.shape))

    def update(self, gradients, delivered, run, rate, step):
        """Adam's, with the second moment of the run."""
        squares = tf.add_n([tf.square(gradient) for gradient in gradients])
        weight = 1 - run.decay ** (step + 1)
        if not run.is_corrected:
            weight = tf.where(step > 0, 1.0, weight)
        self.squares.assign_add((1 - run.decay) / weight * (squares - self.squares))
        if self.is_compressed and run.second_moment == "agreed":
            momentum = tf.math.divide_no_nan(self.momentum, 1 - 0.9**step)
            share = 1 - 1 / FLAGS.workers
            moment = _rank_1(squares + share * tf.square(momentum))
        elif self.is_compressed and run.second_moment != "delivered":
            moment = run.factor * _FORMS[run.second_moment](squares)
        else:
            moment = tf.square(delivered)
        self.momentum.assign_add(0.1 * (delivered - self.momentum))
        self.velocity.assign_add(0.001 * (moment - self.velocity))
        rate *= tf.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        change = rate * self.momentum / (tf.sqrt(self.velocity) + 1e-7)
        self.variable.value.assign_sub(tf.reshape(change, self.variable.shape))


def _rank_1(squares):
    rows = tf.reduce_mean(squares, 1, keepdims=True)
    columns = tf.reduce_mean(squares, 0, keepdims=True)
    return tf.math.divide_no_nan(rows * columns, tf.reduce_mean(rows))


def _blocks(squares, size=128):
    padded = tf.pad(tf.reshape(squares, [-1]), [[0, -math.prod(squares.shape) % size]])
    means = tf.reduce_mean(tf.reshape(padded, [-1, size]), axis=1)
    return tf.reshape(tf.repeat(means, size)[: math.prod(squares.shape)], squares.shape)


_FORMS = {
    None: tf.zeros_like,
    "element": tf.identity,
    "rank-1": _rank_1,
    "row": lambda squares: tf.zeros_like(squares) + tf.reduce_mean(squares, 1, keepdims=True),
    "column": lambda squares: tf.zeros_like(squares) + tf.reduce_mean(squares, 0, keepdims=True),
    "block": _blocks,
}


def _quantize(values, units, run, counts, part=1.0):
    """Returns M u q of 3LC, with M from those magnitudes that count, or from a part of the unit."""
    magnitudes = tf.abs(values) / units
    counted = tf.where(counts, magnitudes, 0.0)
    number = float(max(1, counts.sum()))
    largest = tf.reduce_max(counted)
    statistic = {
        "unit": part,
        "max": largest,
        "mean": tf.reduce_sum(counted) / number,
        "rms": tf.sqrt(tf.reduce_sum(tf.square(counted)) / number),
    }[run.system]
    scale = run.multiplier * statistic
    if run.system != "max":
        scale = tf.minimum(scale, largest)
    return tf.where(magnitudes > scale / 2, scale * units * tf.sign(values), 0.0)


def _to_signs(signs, values, units, run):
    """Returns the signs of a matrix, with the mean magnitude of values in the units."""
    magnitude = run.magnitude * tf.reduce_mean(tf.abs(values) / units)
    return tf.where(signs >= 0, 1.0, -1.0) * units * magnitude


def _reduce_sparse(variables, values, run, leader):
    """Returns what is delivered of the values of variables, by worker, and keeps the rest."""
    units = tf.concat([tf.reshape(v.units(run.units), [-1]) for v in variables], 0)
    flat = [tf.concat([tf.reshape(v, [-1]) for v in of_worker], 0) for of_worker in values]
    sizes = [math.prod(variable.shape) for variable in variables]
    if run.system == "own top-k":
        masks = [_selected(v / units, run) for v in flat]
        sent = [_overshot(v, mask, run) for v, mask in zip(flat, masks, strict=True)]
        total = tf.add_n(sent)
        left = [v - s for v, s in zip(flat, sent, strict=True)]
    else:
        mask = _selected(tf.gather(tf.stack(flat), leader) / units, run)
        sums = tf.add_n(flat)
        total = _overshot(sums, mask, run)
        left = [tf.where(mask, (sums - total) / FLAGS.workers, v) for v in flat]
    by_worker = [tf.split(residual, sizes) for residual in left]
    for variable, residuals in zip(variables, zip(*by_worker, strict=True), strict=True):
        variable.keep(residuals)
    pairs = zip(variables, tf.split(total, sizes), strict=True)
    return [tf.reshape(delivered, variable.shape) for variable, delivered in pairs]


def _selected(values, run):
    """Returns which values a worker selects."""
    magnitudes, size = tf.abs(values), values.shape[0]
    if run.system.endswith("top-k"):
        return magnitudes >= tf.sort(magnitudes)[-round(run.ratio * size)]
    chunk = round(1 / run.ratio)
    shape, axis = ([chunk, -1], 0) if "strided" in run.system else ([-1, chunk], 1)
    padded = tf.reshape(tf.pad(magnitudes, [[0, -size % chunk]], constant_values=-1.0), shape)
    largest = tf.reduce_max(padded, axis, keepdims=True)
    return tf.reshape(padded == largest, [-1])[:size]


def _overshot(values, mask, run):
    """Returns the selected values, and h min(|v|, mean |v|) sign(v) more; zeros elsewhere."""
    values = tf.where(mask, values, 0.0)
    mean = tf.reduce_sum(tf.abs(values)) / tf.reduce_sum(tf.cast(mask, tf.float32))
    return values + run.overshoot * tf.clip_by_value(values, -mean, mean)


def train(run: Run, seed: int, advance) -> tuple[float, float]:
    """Returns the bits per byte of held-out text, and the mean density of what was delivered."""
    keras.utils.set_random_seed(seed)
    text, test_text = bytes_lm.load_text()
    inputs, labels = bytes_lm.windows(text)
    model = bytes_lm.build_model(FLAGS.layers, FLAGS.width)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    firsts = itertools.accumulate((v.shape.num_elements() for v in _values(model)), initial=0)
    variables = [Variable(v, f) for v, f in zip(model.trainable_variables, firsts, strict=False)]
    size = sum(v.places.size for v in variables)

    @tf.function(jit_compile=True)
    def step_function(x, y, rate, step):
        by_worker = []
        for worker in range(FLAGS.workers):
            with tf.GradientTape() as tape:
                loss = loss_function(y[worker], model(x[worker], training=True)) / FLAGS.workers
            by_worker.append(tape.gradient(loss, _values(model)))
        by_variable = [
            [tf.reshape(gradient, variable.shape) for gradient in gradients]
            for variable, *gradients in zip(variables, *by_worker, strict=True)
        ]
        exact = [tf.add_n(gradients) for gradients in by_variable]
        compressed = [i for i, variable in enumerate(variables) if variable.is_compressed]
        delivered, density = exact, 0.0
        if run.system:
            delivered, density = tf.cond(
                step < run.start * FLAGS.steps,
                lambda: (exact, 1.0),
                lambda: reduce(by_variable, exact, compressed, step),
            )
        for arguments in zip(variables, by_variable, delivered, strict=True):
            variable, gradients, total = arguments
            variable.update(gradients, total, run, rate, step)
        return density

    def reduce(by_variable, exact, compressed, step):
        delivered = list(exact)
        chosen = [variables[i] for i in compressed]
        predicted = [run.prediction * variable.last for variable in chosen]
        values = [
            [
                g + e + of_variable / FLAGS.workers
                for g, e in zip(by_variable[i], variables[i].residuals, strict=True)
            ]
            for i, of_variable in zip(compressed, predicted, strict=True)
        ]
        if run.system in _SPARSE:
            leader = tf.cast(step, tf.int32) % FLAGS.workers
            totals = _reduce_sparse(chosen, list(zip(*values, strict=True)), run, leader)
        else:
            seeds = [(tf.cast(step, tf.int32), i) for i in compressed]
            totals = [
                variable.reduce(of_variable, run, size, seed)
                for variable, of_variable, seed in zip(chosen, values, seeds, strict=True)
            ]
        for i, total, of_variable in zip(compressed, totals, predicted, strict=True):
            variables[i].last.assign(total)
            delivered[i] = total - of_variable
        sent = tf.add_n([tf.math.count_nonzero(total, dtype=tf.float32) for total in totals])
        return delivered, sent / sum(v.places.size for v in chosen)

    generator = np.random.default_rng(seed)
    densities = []
    for step in range(FLAGS.steps):
        chosen = generator.choice(len(inputs), (FLAGS.workers, FLAGS.batch_size), replace=False)
        rate = tf.constant(_rate(step), tf.float32)
        density = step_function(inputs[chosen], labels[chosen], rate, tf.constant(float(step)))
        densities.append(float(density))
        advance()
    return _bits_per_byte(model, loss_function, test_text), statistics.fmean(densities)


def _values(model):
    return [variable.value for variable in model.trainable_variables]


def _rate(step):
    """As `common.warm_up_and_decay`."""
    warm_up = FLAGS.steps // 10
    if step < warm_up:
        return FLAGS.learning_rate * step / warm_up
    share = (step - warm_up) / (FLAGS.steps - warm_up)
    return FLAGS.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * share)))


def _bits_per_byte(model, loss_function, text):
    inputs, labels = bytes_lm.windows(text)
    spread = np.linspace(0, len(inputs) - 1, 4 * _TEST_BATCH).astype(int)
    losses = [
        loss_function(labels[part], model(inputs[part], training=False))
        for part in np.split(spread, 4)
    ]
    return float(np.mean(losses)) / math.log(2)


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    if FLAGS.report_only:
        raise app.UsageError("--report_only: this study keeps no reports, and would train anew")
    groups = {run.group for run in RUNS}
    if unknown := set(FLAGS.groups or ()) - groups:
        raise app.UsageError(f"--groups: no {', '.join(unknown)}; {', '.join(sorted(groups))}")
    runs = [run for run in RUNS if FLAGS.groups is None or run.group in FLAGS.groups]
    console = rich.console.Console()
    rows = []
    with rich.progress.Progress(console=console) as progress:
        task = progress.add_task("", total=len(runs) * len(FLAGS.seeds) * FLAGS.steps)
        for run in runs:
            progress.update(task, description=run.title)
            results = [
                train(run, int(seed), lambda: progress.advance(task)) for seed in FLAGS.seeds
            ]
            bits, densities = zip(*results, strict=True)
            each = ", ".join(f"{value:.3f}" for value in bits)
            rows.append(
                [
                    f"{run.group}: {run.title}",
                    f"{statistics.fmean(bits):.3f} ({each})",
                    f"{statistics.fmean(densities):.2f}" if run.system else "-",
                ]
            )
    directory = pathlib.Path(FLAGS.docs, "adam")
    directory.mkdir(parents=True, exist_ok=True)
    headings = [f"{FLAGS.steps} steps", "bits a byte", "density of what is delivered"]
    evaluations.write_table(headings, rows, directory / "study.md", console)


if __name__ == "__main__":
    app.run(main)
