"""What compressors share that send some of the values, and where they lie."""

import tensorflow as tf

from tf_gc import schedules


def check_ratio(ratio: schedules.Hyperparameter) -> None:
    """Raises ValueError unless `ratio` is a schedule, or in (0, 1]."""
    schedules.check("ratio", ratio, "in (0, 1]", lambda r: 0 < r <= 1)


def count(ratio: schedules.Hyperparameter, size: int, step: tf.Tensor) -> tf.Tensor:
    """Returns how many of `size` values a ratio is, but one at least, as an int32 scalar."""
    share = tf.cast(schedules.at_step(ratio, step), tf.float64) * size
    return tf.minimum(tf.maximum(tf.cast(tf.round(share), tf.int32), 1), size)


def scatter(indices: tf.Tensor, values: tf.Tensor, size: int) -> tf.Tensor:
    """Returns a vector [size] with the values at the indices, and zeros elsewhere."""
    return tf.scatter_nd(indices[:, tf.newaxis], values, [size])


def without(values: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Returns the vector with zeros at the indices."""
    zeros = tf.zeros(tf.shape(indices), values.dtype)
    return tf.tensor_scatter_nd_update(values, indices[:, tf.newaxis], zeros)


def broadcast_indices(select, count, root, exchange):
    """Returns the indices that one worker selects.

    Args:
      select: function that returns int32 [count], ascending; called by `root` only.
      count: int scalar, the same on all workers.
      root: int scalar, the rank of the worker that selects.
      exchange: the bucket whose values the indices are of.
    """
    from tf_gc import ops

    packed = tf.cond(
        tf.equal(tf.cast(root, tf.int32), exchange.rank),
        lambda: ops.pack_indices(select(), exchange.size),
        lambda: tf.zeros([0], tf.uint8),
    )
    return ops.unpack_indices(exchange.broadcast(packed, root), count, exchange.size)


def gather_sparse(indices, values, count, size, exchange):
    """Returns the sum of all workers' sparse vectors, dense.

    Args:
      indices: int32 [count], ascending; each worker has its own.
      values: float [count], of these indices.
      count: int scalar, the same on all workers.
      size: the number of values of the dense vectors.
      exchange: the way to the other workers.

    Returns:
      float32 [size].
    """
    from tf_gc import ops

    packed = exchange.all_gather(ops.pack_indices(indices, size))
    values = tf.cast(exchange.all_gather(values), tf.float32)
    total = tf.zeros([size])
    for worker in range(exchange.workers):
        where = ops.unpack_indices(packed[worker], count, size)
        total = tf.tensor_scatter_nd_add(total, where[:, tf.newaxis], values[worker])
    return total
