"""What the workers of exchange_ops_test.py run.

Every function runs in all workers at the same time, and returns plain values.
"""

import ctypes
import functools
import itertools
import pathlib
import resource

import numpy as np
import tensorflow as tf

import tf_gc
from tests import testing

_GROUP_KEY = 0x7467_6378  # of these tests alone

_bucket_keys = itertools.count()
_strategies = []


def rank():
    return tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id


def vector(size, worker, dtype="float32"):
    """Integers whose sums are exact in every dtype; the test computes them too."""
    return np.random.default_rng([size, worker]).integers(-25, 26, size).astype(dtype)


def data(size, worker):
    return np.random.default_rng([size, worker]).integers(0, 256, size, np.uint8)


class _Group:
    """The arguments that all exchanges of one bucket share."""

    def __init__(self, timeout_seconds=60.0):
        if not _strategies:  # it sets up the collective runtime
            _strategies.append(tf_gc.MultiWorkerMirroredStrategy())
        strategy = _strategies[0]
        self.workers = strategy.extended._num_workers
        self.device = f"{strategy.extended._worker_device}/device:CPU:0"
        with tf.device(self.device):
            self.bucket = tf_gc.ops.bucket(key=f"test{next(_bucket_keys)}", variables=2)
        self.arguments = {
            "bucket": self.bucket,
            "group_key": _GROUP_KEY,
            "group_size": self.workers,
            "timeout_seconds": timeout_seconds,
        }

    def traffic(self):
        counts = tf_gc.ops.bucket_traffic(self.bucket)
        return {name: value.numpy().tolist() for name, value in counts._asdict().items()}

    def run(self, body, eager):
        """body() on the worker's CPU."""
        with tf.device(self.device):
            return body() if eager else tf.function(body)()


def exchange_sum(size, topology, rows, dtype="float32", eager=False):
    group = _Group()
    values = vector(size, rank()).astype(tf.as_dtype(dtype).as_numpy_dtype)
    total = group.run(
        lambda: tf_gc.ops.exchange_sum(
            tf.constant(values), topology=topology, rows=rows, **group.arguments
        ),
        eager,
    )
    return total.numpy(), group.traffic()


def carried(op, size, carried_size, eager=False, dtype="float32", **attributes):
    """Does an exchange alone, and then with a vector of `carried_size` values that it carries.

    Returns:
      Of each the result and the bytes sent, and then the sums of what was carried.
    """
    group = _Group()
    values = tf.constant(vector(size, rank()))
    arguments = {
        "exchange_sum": [tf.cast(values, dtype)],
        "exchange_sign_merge": [tf_gc.ops.sign_pack(values), size, [7, 1]],
        "exchange_sign_majority": [tf_gc.ops.sign_pack(values), size],
        "exchange_cascading_sign": [values, [7, 1]],
    }[op]
    attributes = {**attributes, **group.arguments}
    exchange = functools.partial(getattr(tf_gc.ops, op), *arguments, **attributes)
    alone = group.run(exchange, eager)
    bytes_alone = group.traffic()["shared_bytes_sent"]
    own = vector(carried_size, rank() + 10)
    together, sums = group.run(lambda: exchange(carried=tf.constant(own)), eager)
    bytes_together = group.traffic()["shared_bytes_sent"] - bytes_alone
    return alone.numpy(), bytes_alone, together.numpy(), bytes_together, sums.numpy()


def gradients_in_units(row_units, column_units, worker):
    """A matrix whose values are as large as their units, and a vector."""
    rng = np.random.default_rng(worker)
    matrix = rng.standard_normal([len(row_units), len(column_units)])
    matrix *= np.outer(row_units, column_units)
    return [matrix.astype(np.float32), rng.standard_normal(7).astype(np.float32)]


def three_lc_in_units(row_units, column_units, eager=False, scale="max", known=False, first=None):
    """Reduces the matrix in units and the vector without, from residuals of 0.

    `known` says whether the op gets the matrix's statistics, and `first` the matrix's first value
    on worker 1. Returns the sums and the new residuals.
    """
    group = _Group()
    gradients = gradients_in_units(row_units, column_units, rank())
    if first is not None and rank() == 1:
        gradients[0][0, 0] = first
    with tf.device(group.device):
        residuals = [tf.Variable(tf.zeros_like(gradient)) for gradient in gradients]

    def body():
        inputs = [tf.constant(gradient) for gradient in gradients]
        known_squares = tf_gc.ops.mean_squares(inputs[:1], [len(row_units)])
        return tf_gc.ops.three_lc_all_reduce(
            inputs,
            [residual.handle for residual in residuals],
            1.0,
            units=[tf.constant([*row_units, *column_units]), tf.zeros([0])],
            rows=[len(row_units), 1],
            scale=scale,
            statistics=[known_squares, tf.zeros([0], tf.bfloat16)] if known else None,
            **group.arguments,
        )

    reduced = group.run(body, eager)
    return [x.numpy() for x in reduced], [x.numpy() for x in residuals]


def _use_small_pages():
    """Lets the kernel count pages one by one, also where it would make huge ones."""
    set_thp_disable = 41  # PR_SET_THP_DISABLE of <linux/prctl.h>
    ctypes.CDLL(None).prctl(set_thp_disable, 1, 0, 0, 0)


def fresh_tensors(size):
    """Returns of how many float32 tensors of `size` a step with 3LC takes fresh pages.

    Two are the gradients, which nothing else needs.
    """
    _use_small_pages()
    group = _Group()
    with tf.device(group.device):
        residuals = [tf.Variable(tf.zeros([size])) for _ in range(2)]
        values = tf.random.stateless_normal([size], [1, rank()])

    @tf.function
    def step():
        reduced = tf_gc.ops.three_lc_all_reduce(
            [2.0 * values, 3.0 * values],
            [residual.handle for residual in residuals],
            1.0,
            **group.arguments,
        )
        return reduced[0][0] + reduced[1][0]

    def faults():
        with tf.device(group.device):
            step().numpy()
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    pages = 4 * size / resource.getpagesize()
    seen = [faults() for _ in range(8)]
    return float(np.median(np.diff(seen[2:]))) / pages


def gather_more_than_memory_holds():
    group = _Group()
    with tf.device(group.device):
        own = tf.zeros([256 << 20], tf.uint8)
        with testing.limited_memory(64 << 20):
            tf_gc.ops.exchange_all_gather(own, **group.arguments)


def all_gather(sizes, eager=False):
    group = _Group()
    own = data(sizes[rank()], rank())
    gathered = group.run(
        lambda: tf_gc.ops.exchange_all_gather(tf.constant(own), **group.arguments), eager
    )
    return gathered.gathered.numpy(), gathered.sizes.numpy().tolist(), group.traffic()


def broadcast(sizes, root, eager=False):
    group = _Group()
    own = data(sizes[rank()], rank())
    received = group.run(
        lambda: tf_gc.ops.exchange_broadcast(tf.constant(own), root, **group.arguments), eager
    )
    return received.numpy(), group.traffic()


def sum_in_a_loop(size, iterations):
    """Every iteration adds up what the one before has left; returns the last sum."""
    group = _Group()

    def iteration(i, values):
        total = tf_gc.ops.exchange_sum(values, topology="ring", **group.arguments)
        return i + 1, total / 4 + tf.cast(rank(), tf.float32)

    def body():
        _, values = tf.while_loop(
            lambda i, _: i < iterations, iteration, (0, tf.constant(vector(size, rank())))
        )
        return tf_gc.ops.exchange_sum(values, **group.arguments)

    return group.run(body, eager=False).numpy(), group.traffic()


def under_a_condition(size, conditions):
    """One branch gathers, the other one broadcasts; returns what each step gives."""
    group = _Group()
    own = tf.constant(data(size, rank()))

    @tf.function(input_signature=[tf.TensorSpec([], tf.bool)])
    def step(condition):
        return tf.cond(
            condition,
            lambda: tf_gc.ops.exchange_all_gather(own, **group.arguments).gathered,
            lambda: tf_gc.ops.exchange_broadcast(own, 1, **group.arguments),
        )

    with tf.device(group.device):
        return [step(tf.constant(condition)).numpy() for condition in conditions]


def largest_broadcasts(numbers, size):
    """The worker with the largest number is the root, as all learn at run time."""
    group = _Group()
    own = tf.constant(data(size, rank()))
    number = tf.constant([numbers[rank()]])

    def body():
        gathered = tf_gc.ops.exchange_all_gather(
            tf.bitcast(number, tf.uint8)[0], **group.arguments
        ).gathered
        everyones = tf.bitcast(tf.reshape(gathered, [group.workers, 4]), tf.float32)
        root = tf.argmax(everyones, output_type=tf.int32)
        return tf_gc.ops.exchange_broadcast(own, root, **group.arguments)

    return group.run(body, eager=False).numpy()


def two_buckets_at_once(size):
    """Exchanges of different buckets do not wait for each other."""
    groups = [_Group(), _Group()]
    values = [tf.constant(vector(size, rank())), tf.constant(vector(size, rank() + 10))]

    def body():
        order = [0, 1] if rank() == 0 else [1, 0]  # the graph does not order them
        totals = {
            i: tf_gc.ops.exchange_sum(values[i], topology="ring", **groups[i].arguments)
            for i in order
        }
        return totals[0], totals[1]

    return [total.numpy() for total in groups[0].run(body, eager=False)]


def bad_exchange(op, **arguments):
    """Calls one op with an argument that it must refuse."""
    group = _Group(timeout_seconds=20.0)
    group.run(lambda: getattr(tf_gc.ops, op)(**arguments, **group.arguments), eager=True)


def different_exchanges():
    """Worker 0 gathers where the others add up."""
    group = _Group(timeout_seconds=20.0)

    def body():
        if rank() == 0:
            return tf_gc.ops.exchange_all_gather(tf.zeros([10], tf.uint8), **group.arguments)
        return tf_gc.ops.exchange_sum(tf.zeros([10]), **group.arguments)

    group.run(body, eager=True)


def one_never_comes(absent_rank, timeout_seconds):
    """All add up once; then one does not come to the all-gather."""
    group = _Group(timeout_seconds)
    group.run(lambda: tf_gc.ops.exchange_sum(tf.zeros([10]), **group.arguments), eager=True)
    if rank() != absent_rank:
        group.run(
            lambda: tf_gc.ops.exchange_all_gather(tf.zeros([10], tf.uint8), **group.arguments),
            eager=True,
        )


def exchange_for_ever(directory):
    """Exchanges until an error ends it; returns the error's type.

    After each step it touches a file in the directory that is named after its rank.
    """
    group = _Group(timeout_seconds=0.0)

    def body():
        gathered = tf_gc.ops.exchange_all_gather(tf.zeros([5000], tf.uint8), **group.arguments)
        received = tf_gc.ops.exchange_broadcast(gathered.gathered, 0, **group.arguments)
        return tf_gc.ops.exchange_sum(tf.cast(received, tf.float32), **group.arguments)

    step = tf.function(body)
    try:
        with tf.device(group.device):
            while True:
                step()
                pathlib.Path(directory, str(rank())).touch()
    except tf.errors.OpError as error:
        return type(error).__name__
