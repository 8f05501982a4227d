"""What is computed of gradients, be they tensors or `tf.IndexedSlices`."""

import tensorflow as tf


def times(gradient, factor):
    """Returns a gradient, multiplied by a number, in its own type."""
    return with_values(gradient, lambda values: values * tf.cast(factor, values.dtype))


def with_values(gradient, function):
    """Returns a gradient whose values, all or those of its rows, are function(values)."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(function(gradient.values), gradient.indices, gradient.dense_shape)
    return function(gradient)


def sum_of_replicas(strategy, gradient, divisor=1.0):
    """Returns the sum of the gradients that a worker's replicas have, over `divisor`.

    It is of their type, and computed in float32 at least.
    """
    replicas = strategy.experimental_local_results(gradient)
    if len(replicas) == 1:  # of all, where they share a tensor
        factor = len(strategy.extended.worker_devices) / divisor
        return replicas[0] if factor == 1 else times(replicas[0], factor)
    if isinstance(replicas[0], tf.IndexedSlices):
        return tf.IndexedSlices(
            tf.concat([times(g, 1 / divisor).values for g in replicas], 0),
            tf.concat([g.indices for g in replicas], 0),
            replicas[0].dense_shape,
        )
    dtype = replicas[0].dtype
    wide = tf.float32 if dtype in (tf.float16, tf.bfloat16) else dtype
    total = tf.add_n([tf.cast(replica, wide) for replica in replicas])
    return tf.cast(total / tf.cast(divisor, wide), dtype)
