"""What the processes of soak.py run: many steps, a part of them in each call."""

import functools

import numpy as np
import parameter_server_programs
import tensorflow as tf

import tf_gc

_SHAPES = ((128, 64), (64,), (3, 3, 8, 16), (64, 10))


@functools.cache
def _training(compressor):
    """Returns a step of training that TensorFlow traces once."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(
        compression=tf_gc.Policy(default=compressor, min_elements=0)
    )
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape)) for shape in _SHAPES]

    @tf.function
    def step(gradients):
        def replica_step(gradients):
            pairs = zip(gradients, variables, strict=True)
            for gradient, variable in strategy.reduce_gradients(pairs, "MEAN"):
                variable.assign_sub(0.1 * gradient)

        strategy.run(replica_step, args=(gradients,))

    return strategy, step


def workers(compressor, steps):
    """Takes steps as one of several workers; returns how many there have been."""
    strategy, step = _training(compressor)
    rng = np.random.default_rng()
    for _ in range(steps):
        step([tf.constant(rng.standard_normal(shape), tf.float32) for shape in _SHAPES])
    return strategy.traffic.steps


@functools.cache
def _loop(compressor, synchronous):
    rounds = {"synchronous": True, "replicas_to_aggregate": 2} if synchronous else {}
    return parameter_server_programs.Loop(_SHAPES, compression=compressor, **rounds)


def chief(compressor, synchronous, steps):
    """Lets workers push to a parameter server; returns how many updates there have been."""
    loop = _loop(compressor, synchronous)
    rng = np.random.default_rng()
    for _ in range(steps):
        loop.push([rng.standard_normal(shape).astype(np.float32) for shape in _SHAPES])
    loop.coordinator.join()
    return loop.strategy.traffic.updates
