"""What the workers of replicas_test.py run: several replicas in each worker, as with several GPUs.

A worker's replicas are logical CPU devices. Every function runs in all workers at the same time,
and returns plain values.
"""

import contextlib
from unittest import mock

import numpy as np
import tensorflow as tf
from tf_gc.strategy import tensorflow_internals as internals

import tf_gc
from tests import strategy_programs
from tests.strategy_programs import fingerprint, gaussian, rank

REPLICAS = 2
# A process makes its devices once, so that these workers cannot be those of other tests: clusters
# are shared by environment.
ENVIRONMENT = {"TF_NUM_INTEROP_THREADS": "8"}


@contextlib.contextmanager
def _replicas():
    """Strategies made in this context have REPLICAS devices in each worker."""
    cpus = tf.config.list_physical_devices("CPU")
    if len(tf.config.get_logical_device_configuration(cpus[0]) or ()) != REPLICAS:
        device = tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(cpus[0], [device] * REPLICAS)

    def local_devices(extended, resolver, worker_device):
        del extended, resolver
        return tuple(f"{worker_device}/device:CPU:{i}" for i in range(REPLICAS)), "CPU"

    owner = internals.CollectiveAllReduceExtended
    with mock.patch.object(owner, "_initialize_local_devices", local_devices):
        yield


def run(function, *args, **kwargs):
    """Runs a program of strategy_programs, say, with several replicas."""
    with _replicas():
        return function(*args, **kwargs)


def _copies(strategy, value):
    """The values of all replicas of this worker."""
    return [local.numpy() for local in strategy.experimental_local_results(value)]


def replica_gradient(step, worker, replica):
    """What a replica reduces at a step; the test computes it too."""
    return gaussian(step, worker=REPLICAS * worker + replica)


def reduce_value(value, reduce_op, dtype="float32", is_shared=False):
    """Reduces a value that all replicas have, perhaps as one tensor; returns what it becomes."""
    with _replicas():
        strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    with strategy.scope():
        variable = tf.Variable(tf.zeros([1], dtype), name="variable")
    shared = tf.constant([value], dtype)

    @tf.function
    def replica_step():
        gradient = shared if is_shared else tf.identity(shared)
        return strategy.reduce_gradients([(gradient, variable)], reduce_op)[0][0]

    reduced = strategy.run(replica_step)
    return float(_copies(strategy, reduced)[0][0])


def reduce_steps(compression, reduce_op, steps):
    """Reduces Gaussian gradients; returns what each replica got, and the residual after it."""
    with _replicas():
        strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    with strategy.scope():
        variable = tf.Variable(tf.zeros(gaussian(0).shape), name="variable")

    @tf.function
    def reduce(gradients):
        def replica_step(gradient):
            return strategy.reduce_gradients([(gradient, variable)], reduce_op)[0][0]

        return strategy.run(replica_step, args=(gradients,))

    delivered = []
    for step in range(steps):
        gradients = strategy.experimental_distribute_values_from_function(
            lambda context, step=step: tf.constant(
                replica_gradient(step, rank(), context.replica_id_in_sync_group % REPLICAS)
            )
        )
        delivered.append(_copies(strategy, reduce(gradients)))
    residuals = [value.numpy() for value in strategy.residuals.of(variable).values]
    return np.stack(delivered), sum(residuals)


def reduce_rows(reduce_op):
    """Each replica has row 7 of a table and one of its own; returns what each of them got."""
    with _replicas():
        strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.EmbeddingRows(bits=32))
    with strategy.scope():
        table = tf.Variable(tf.zeros([20, 3]), name="table")

    @tf.function
    def reduce():
        def replica_step():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            indices = tf.convert_to_tensor([replica, 7])
            values = tf.cast(replica + 1, tf.float32) * tf.ones([2, 3])
            slices = tf.IndexedSlices(values, indices, tf.constant([20, 3]))
            reduced = strategy.reduce_gradients([(slices, table)], reduce_op)[0][0]
            return tf.identity(reduced.indices), reduced.values

        return strategy.run(replica_step)

    indices, values = reduce()
    return list(zip(_copies(strategy, indices), _copies(strategy, values), strict=True))


def fit(compression, optimizer="Adam", **arguments):
    """Trains, evaluates and predicts; returns also what a fingerprint of each replica's is."""
    with _replicas():
        result, model = strategy_programs.fit_model(compression, optimizer=optimizer, **arguments)
    strategy = model.distribute_strategy
    copies = zip(*(_copies(strategy, _native(w)) for w in model.trainable_variables), strict=True)
    return {**result, "replicas": [fingerprint(weights) for weights in copies]}


def _native(variable):
    """TensorFlow's variable: mirrored, where Keras 3 has its own around it."""
    return getattr(variable, "value", variable) if hasattr(variable, "path") else variable
