"""What the workers of lane_sign_exchange_test.py run.

Every function runs in all workers at the same time, and returns NumPy arrays.
"""

import functools
import itertools

import numpy as np
import tensorflow as tf

import tf_gc

_GROUP_KEY = 0x7467_6379  # of these tests alone

_bucket_keys = itertools.count()
_strategies = []


def rank():
    return tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id


def indices(size, bits, worker):
    """The test computes them too."""
    return np.random.default_rng([size, worker]).integers(0, 2**bits, size, np.uint8)


def values(size, worker):
    return np.random.default_rng([size, worker]).standard_normal(size, np.float32)


def _exchange(call, eager):
    """call(**arguments that all exchanges share) on the worker's CPU."""
    if not _strategies:  # it sets up the collective runtime, before any other op
        _strategies.append(tf_gc.MultiWorkerMirroredStrategy())
    extended = _strategies[0].extended
    with tf.device(f"{extended._worker_device}/device:CPU:0"):
        bucket = tf_gc.ops.bucket(key=f"test{next(_bucket_keys)}", variables=1)
        body = functools.partial(
            call,
            bucket=bucket,
            group_key=_GROUP_KEY,
            group_size=extended._num_workers,
            timeout_seconds=60.0,
        )
        result = (body if eager else tf.function(lambda: body()))()
        return result.numpy(), int(tf_gc.ops.bucket_traffic(bucket).shared_bytes_sent)


def lane_sum(size, bits, table, lanes, topology, rows=1, eager=False):
    return _exchange(
        lambda **arguments: tf_gc.ops.exchange_lane_sum(
            tf_gc.ops.pack_bits(indices(size, bits, rank()), bits),
            table,
            size,
            bits=bits,
            lanes=lanes,
            topology=topology,
            rows=rows,
            **arguments,
        ),
        eager,
    )


def sign_merge(size, seed, topology, rows=1, eager=False):
    return _exchange(
        lambda **arguments: tf_gc.ops.exchange_sign_merge(
            tf_gc.ops.sign_pack(values(size, rank())),
            size,
            seed,
            topology=topology,
            rows=rows,
            **arguments,
        ),
        eager,
    )


def sign_majority(size, eager=False):
    return _exchange(
        lambda **arguments: tf_gc.ops.exchange_sign_majority(
            tf_gc.ops.sign_pack(values(size, rank())), size, **arguments
        ),
        eager,
    )


def cascading_sign(size, seed, eager=False):
    own = values(size, rank())
    total, sent = _exchange(
        lambda **arguments: tf_gc.ops.exchange_cascading_sign(own, seed, **arguments), eager
    )
    np.testing.assert_array_equal(own, values(size, rank()))  # it was not overwritten
    return total, sent


def cascading_signs(size, seeds):
    """The totals of several seeds."""
    return np.array([cascading_sign(size, seed, eager=True)[0] for seed in seeds])


def bad_exchange(op, inputs, **attributes):
    """Calls one op with an argument that it must refuse."""
    _exchange(
        lambda **arguments: getattr(tf_gc.ops, op)(*inputs, **attributes, **arguments), eager=True
    )
