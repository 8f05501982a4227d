"""What the workers of systems_test.py run, all at the same time."""

import dataclasses

import numpy as np
import tensorflow as tf

import tf_gc
from tests import testing


@dataclasses.dataclass(frozen=True)
class Moments(tf_gc.OneBitAdam):
    """Delivers what the optimizer is to use in place of the square."""

    def all_reduce(self, gradients, exchange):
        return self.second_moments(exchange, super().all_reduce(gradients, exchange))


@dataclasses.dataclass(frozen=True)
class ZeroOneMoments(tf_gc.ZeroOneAdam):
    """The same of 0/1 Adam."""

    def all_reduce(self, gradients, exchange):
        return self.second_moments(exchange, super().all_reduce(gradients, exchange))


def rank():
    return tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id


def gradients(shapes, step, worker):
    """What a worker has at a step: Gaussian values of different sizes."""
    rng = np.random.default_rng([step, worker])
    return [
        (rng.standard_normal(shape) * rng.choice([0.1, 1], shape)).astype(np.float32)
        for shape in shapes
    ]


class Reducer:
    """Reduces the gradients of some variables in one bucket, step by step."""

    def __init__(self, compressor, shapes, reduce_op="SUM", dtype=tf.float32):
        policy = tf_gc.Policy(default=compressor, min_elements=0, compress_vectors=True)
        self.strategy = tf_gc.MultiWorkerMirroredStrategy(compression=policy)
        with self.strategy.scope():
            self.variables = [
                tf.Variable(tf.zeros(shape, dtype), name=f"variable{i}")
                for i, shape in enumerate(shapes)
            ]
        self.traces = 0

        @tf.function
        def step(*values):
            self.traces += 1

            def replica_step(*values):
                pairs = zip(values, self.variables, strict=True)
                return [g for g, _ in self.strategy.reduce_gradients(pairs, reduce_op)]

            return self.strategy.run(replica_step, args=values)

        self._step = step

    def __call__(self, values):
        """Returns the reduced gradients, as one vector in the order of the bucket."""
        return in_bucket_order([g.numpy() for g in self._step(*map(tf.constant, values))])

    def slot(self, name):
        """Returns what this worker keeps, as one vector in the order of the bucket."""
        residuals = self.strategy.residuals
        return in_bucket_order([residuals.of(v, name).values[0].numpy() for v in self.variables])

    def residual(self):
        return self.slot("residual")


def overflow(compressor, shapes, slot="residual"):
    """A step, and one in which the sum of the first value of the first variable overflows.

    Returns the last step's reduced gradients, and a slot before and after it.
    """
    reduce = Reducer(compressor, shapes)
    reduce(gradients(shapes, 0, rank()))
    before = reduce.slot(slot)
    values = gradients(shapes, 1, rank())
    values[0].flat[0] = 1.7e38  # of each of four workers
    return reduce(values), before, reduce.slot(slot)


def zeros_after_an_overflow(compressor, shape):
    """Reduces zeros after a step whose sum overflows; there is a residual of 1."""
    reduce = Reducer(compressor, [shape])
    reduce.strategy.residuals.of(reduce.variables[0]).values[0].assign(tf.ones(shape))
    reduce([np.full(shape, 1.7e38, np.float32)])  # of each of four workers
    return reduce([np.zeros(shape, np.float32)])


def overflow_of_float16(compressor, shape, steps):
    """A value whose sum float16 cannot hold, then steps without gradients; all that is reduced."""
    reduce = Reducer(compressor, [shape], dtype=tf.float16)
    values = np.zeros(shape, np.float16)
    values.flat[0] = 3e4  # of each of four workers
    return np.stack([reduce([values if step == 0 else 0 * values]) for step in range(steps)])


def in_bucket_order(values):
    """Buckets are filled from the last variable on."""
    return np.concatenate([np.ravel(v) for v in reversed(values)])


def steps(compressor, shapes, count):
    """Returns what was delivered in each step, and this worker's residual after it."""
    reducer = Reducer(compressor, shapes)
    delivered, residuals = [], []
    for step in range(count):
        delivered.append(reducer(gradients(shapes, step, rank())))
        residuals.append(reducer.residual())
    return np.stack(delivered), np.stack(residuals)


def go_on(directory, compressor, shape, reduce_op, steps):
    """Restores what another job has saved, if one has; returns what steps deliver, and saves."""
    reduce = Reducer(compressor, [shape], reduce_op)
    checkpoint = tf.train.Checkpoint(residuals=reduce.strategy.residuals)
    if tf.train.latest_checkpoint(f"{directory}/0"):
        checkpoint.read(tf.train.latest_checkpoint(f"{directory}/0"))
    delivered = [reduce(gradients([shape], step, rank())) for step in steps]
    checkpoint.save(f"{directory}/{rank()}/checkpoint")
    return np.stack(delivered)


def given(compressor, values, reduce_op="SUM"):
    """Reduces values[rank] once; returns what was delivered."""
    value = np.asarray(values[rank()], np.float32)
    return Reducer(compressor, [value.shape], reduce_op)([value])


def repeated(compressor, values, count, reduce_op="SUM"):
    """Reduces values[rank] again and again; returns what was delivered each time."""
    value = np.asarray(values[rank()], np.float32)
    reducer = Reducer(compressor, [value.shape], reduce_op)
    return np.stack([reducer([value]) for _ in range(count)])


def of_a_late_variable(compressor, shape, steps, late):
    """Returns what is delivered of a variable whose gradients begin late, beside another one's."""
    reduce = Reducer(compressor, [shape, shape])
    for step in range(late):
        values = gradients([shape, shape], step, rank())
        pairs = [(tf.constant(values[0]), reduce.variables[0])]
        reduce.strategy.run(reduce.strategy.reduce_gradients, args=(pairs,))
    delivered = [reduce(gradients([shape, shape], step, rank())) for step in range(late, steps)]
    return np.split(np.stack(delivered), 2, axis=1)[0]  # the last variable is first in a bucket


def row_comes_late(compressor, shape, steps):
    """Reduces Gaussian values, with zeros in row 0 but for the last step.

    Returns:
      This worker's residual after it, of `shape`.
    """
    reducer = Reducer(compressor, [shape])
    for step in range(steps):
        values = np.random.default_rng([step, rank()]).standard_normal(shape, np.float32)
        if step < steps - 1:
            values[0] = 0
        reducer([values])
    return reducer.residual().reshape(shape)


def second_moments(compressor, shape, count):
    """Returns what units come from after each step, the weight last, and the squares of each."""
    reduce = Reducer(compressor, [shape])
    slots, squares = [], []
    for step in range(count):
        reduce(gradients([shape], step, rank()))
        slots.append(reduce.slot("second_moment"))
        of_workers = [gradients([shape], step, worker)[0] ** 2 for worker in range(4)]
        squares.append(float(np.mean(of_workers)))
    return slots, squares


def in_turn(compressor, shape, lists, steps):
    """Reduces lists of gradients in turn, each given by which variables have one.

    They are ones in a part of the rows that no other worker has, and zeros in all others.

    Returns:
      By variable, what this worker has given, and the sum of its residual.
    """
    policy = tf_gc.Policy(default=compressor, min_elements=0)
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=policy)
    names = [f"variable_{index}" for index in range(len(lists[0]))]
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape), name=name) for name in names]
    rows = shape[0] // strategy.num_replicas_in_sync
    own = np.zeros(shape, np.float32)
    own[rows * rank() : rows * (rank() + 1)] = 1

    @tf.function
    def step(have_gradients):
        def replica_step():
            gradients = [tf.constant(own) if has_one else None for has_one in have_gradients]
            reduced = strategy.reduce_gradients(zip(gradients, variables, strict=True))
            return [gradient for gradient, _ in reduced if gradient is not None]

        return strategy.run(replica_step)

    turns = [lists[number % len(lists)] for number in range(steps)]
    for have_gradients in turns:
        step(have_gradients)
    residuals = [strategy.residuals.of(v).values[0].numpy() for v in variables]
    given = [sum(of_variable) * own.sum() for of_variable in zip(*turns, strict=True)]
    return list(zip(given, [float(r.sum()) for r in residuals], strict=True))


def traffic(compressor, shape, count):
    """Returns the traffic of some steps with Gaussian gradients, as a dict."""
    reducer = Reducer(compressor, [shape])
    for step in range(count):
        reducer([testing.gaussian(shape, seed=100 * step + rank())])
    return reducer.strategy.traffic.as_dict()
