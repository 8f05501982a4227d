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


def sum_of_replicas(strategy, gradient):
    """Returns the sum of the gradients that a worker's replicas have."""
    replicas = strategy.experimental_local_results(gradient)
    if len(replicas) == 1:
        return replicas[0]
    if isinstance(replicas[0], tf.IndexedSlices):
        return tf.IndexedSlices(
            tf.concat([g.values for g in replicas], 0),
            tf.concat([g.indices for g in replicas], 0),
            replicas[0].dense_shape,
        )
    return tf.add_n(replicas)
