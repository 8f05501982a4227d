"""What compressors share that send some of the values, and where they lie."""

import dataclasses

import tensorflow as tf

from tf_gc import checks, ops, schedules
from tf_gc.compressors import scales
from tf_gc.exchange import Exchange, to_bytes
from tf_gc.second_moments import has_statistics, matrix_shape


def check_ratio(ratio: schedules.Hyperparameter) -> None:
    """Raises ValueError unless `ratio` is a schedule, or in (0, 1]."""
    schedules.check("ratio", ratio, "in (0, 1]", lambda r: 0 < r <= 1)


def check_overshoot(overshoot: float) -> None:
    """Raises ValueError unless `overshoot` is in [0, 1]."""
    checks.number("overshoot", overshoot, "in [0, 1]", lambda h: 0 <= h <= 1)


def count(ratio: schedules.Hyperparameter, size: int, step: tf.Tensor) -> tf.Tensor:
    """Returns how many of `size` values a ratio is, but one at least, as an int32 scalar."""
    share = tf.cast(schedules.at_step(ratio, step), tf.float64) * size
    return tf.minimum(tf.maximum(tf.cast(tf.round(share), tf.int32), 1), size)


def to_compare(values: tf.Tensor, exchange: Exchange) -> tf.Tensor:
    """Returns what the values of a bucket, [n], are selected by: they, in their units.

    A variable that is no matrix has one unit, this worker's root mean square, so
    that it competes with those that have many.
    """
    if exchange.units is None:
        return values
    parts = tf.split(values, exchange.sizes)
    units = [
        units if has_statistics(shape) else _one_unit(part, matrix_shape(shape))
        for part, units, shape in zip(parts, exchange.units, exchange.shapes, strict=True)
    ]
    return scales.in_units(values, dataclasses.replace(exchange, units=units))


def _one_unit(values, matrix):
    rows, columns = matrix
    if rows * columns == 0:
        return tf.zeros([0])
    unit = scales.root_mean_square(values)
    return tf.concat([tf.fill([rows], tf.where(unit > 0, unit, 1.0)), tf.ones([columns])], 0)


def top_k(
    values: tf.Tensor, ratio: schedules.Hyperparameter, exchange: Exchange, per_variable: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the largest values, in their units, of a bucket or of each of its variables.

    Args:
      values: float32 [n].
      ratio: the fraction of the values to find.
      exchange: the bucket whose values they are.
      per_variable: whether so many of each variable are to be found.

    Returns:
      Their indices, int32 [k], ascending, and k, an int32 scalar.
    """
    values = to_compare(values, exchange)
    indices, counts, begin = [], [], 0
    for size in exchange.sizes if per_variable else [exchange.size]:
        counts.append(count(ratio, size, exchange.step))
        indices.append(begin + ops.top_k_indices(values[begin : begin + size], counts[-1]))
        begin += size
    return tf.concat(indices, 0), tf.add_n(counts)


def replace(
    values: tf.Tensor, indices: tf.Tensor, others: tf.Tensor, after: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns the vector with others at the indices.

    Args:
      values: float32 [n].
      indices: int32 [k].
      others: float32 [k].
      after: what is made of `values` before: then nothing else needs them, and they
        are not copied.
    """
    with tf.control_dependencies([] if after is None else [after]):
        return ops.scatter_update(values, indices, others)


def without(values: tf.Tensor, indices: tf.Tensor, after: tf.Tensor | None = None) -> tf.Tensor:
    """Returns the vector with zeros at the indices; see `replace`."""
    return replace(values, indices, tf.zeros(tf.shape(indices), values.dtype), after)


def deliver(selected: tf.Tensor, overshoot: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns what is delivered of selected values, and what is left of them.

    A value gathers for many steps until it is sent. Where it becomes 0 then, what
    has been delivered lags behind the gradients' sum at all times, by half of
    what a value gathers, on average. Where it becomes as much less than 0, it does
    not.

    Args:
      selected: v, float32 [k].
      overshoot: h; delivered is v + h min(|v|, mean |v|) sign(v).

    Returns:
      float32 [k], and float32 [k].
    """
    if not overshoot:
        return selected, tf.zeros_like(selected)
    # Not the sum over k, as that may overflow.
    mean = scales.total(tf.abs(selected) / tf.cast(tf.size(selected), tf.float32))
    delivered = selected + overshoot * tf.clip_by_value(selected, -mean, mean)
    left = selected - delivered  # exact
    return delivered, tf.where(tf.math.is_finite(left), left, 0.0)


def sum_at(
    indices: tf.Tensor,
    values: tf.Tensor,
    overshoot: float,
    exchange: Exchange,
    topology: str = "sharded",
) -> tuple[tf.IndexedSlices, tf.Tensor]:
    """Adds up the workers' values at indices that they share.

    Args:
      indices: int32 [k], the same on all workers.
      values: float32 [n], of the bucket.
      overshoot: of `deliver`.
      exchange: the bucket, and the way to the other workers.
      topology: of `Exchange.sum`.

    Returns:
      What is delivered, slices of a float32 [n], and what is left of this worker's values,
      float32 [n].
    """
    selected = tf.gather(values, indices)
    total = exchange.sum(selected, topology)
    delivered, left = deliver(total, overshoot)
    kept = replace(values, indices, left / exchange.workers, after=selected)
    return tf.IndexedSlices(delivered, indices, tf.constant([exchange.size])), kept


def broadcast_indices(select, count, size, root, exchange):
    """Returns the indices that one worker selects.

    Args:
      select: function that returns int32 [count], ascending; called by `root` only.
      count: int scalar, the same on all workers.
      size: int, all indices are less.
      root: int scalar, the rank of the worker that selects.
      exchange: the way to the other workers.
    """
    root = tf.cast(root, tf.int32)
    packed = tf.cond(
        tf.equal(root, exchange.rank),
        lambda: ops.pack_indices(select(), size),
        lambda: tf.zeros([0], tf.uint8),
    )
    return ops.unpack_indices(exchange.broadcast(packed, root), count, size, root)


def gather(selected, indices, count, exchange):
    """Returns the sum of what each worker has selected, zeros elsewhere.

    Args:
      selected: float32 [count], of the bucket's values.
      indices: int32 [count], ascending; each worker has its own.
      count: int scalar, the same on all workers.
      exchange: the bucket, and the way to the other workers.

    Returns:
      float32 [n].
    """
    packed = ops.pack_indices(indices, exchange.size)
    messages = exchange.all_gather(tf.concat([packed, to_bytes(selected)], 0))
    return ops.sum_selected(messages, count, exchange.size)
