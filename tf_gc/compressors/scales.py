"""What compressors share that have a number for each variable or block: a scale, a norm."""

from collections.abc import Callable

import tensorflow as tf

from tf_gc import ops, schedules
from tf_gc.exchange import Exchange
from tf_gc.second_moments import matrix_shape

_ROW = 1 << 12  # values whose sum is not cut


def per_variable(
    statistic: Callable[[tf.Tensor], tf.Tensor], values: tf.Tensor, exchange: Exchange
) -> tf.Tensor:
    """Returns a statistic, a scalar, of each variable's values, as float32 [variables].

    Args:
      statistic: of a vector, which may be empty.
      values: float32 [n].
      exchange: the bucket whose values they are.
    """
    return tf.stack([statistic(part) for part in tf.split(values, exchange.sizes)])


def spread(scales: tf.Tensor, exchange: Exchange) -> tf.Tensor:
    """Returns a number for each value of a bucket, [n], from one for each variable."""
    parts = zip(tf.unstack(scales, len(exchange.sizes)), exchange.sizes, strict=True)
    return tf.concat([tf.fill([size], scale) for scale, size in parts], 0)


def in_units(values: tf.Tensor, exchange: Exchange) -> tf.Tensor:
    """Returns the values of a bucket, [n], in their units (`Compressor.units`)."""
    return values if exchange.units is None else values / _spread_units(exchange)


def from_units(magnitudes: tf.Tensor, exchange: Exchange) -> tf.Tensor:
    """Returns magnitudes, a scalar or [n], that are in units, as those of values, [n]."""
    return magnitudes if exchange.units is None else magnitudes * _spread_units(exchange)


def _spread_units(exchange):
    rows = [max(1, matrix_shape(shape)[0]) for shape in exchange.shapes]
    return ops.spread_units(exchange.units, rows, exchange.sizes)


def total(values: tf.Tensor) -> tf.Tensor:
    """Returns the sums of float32 [..., n] over the last axis; 0 where n is 0.

    They have the same bits on any number of threads: TensorFlow cuts the sum of a
    long vector into as many parts as there are threads, but not the sum of a row.
    """
    size = values.shape[-1]
    row = _ROW if size is None else max(1, min(size, _ROW))
    uncut = [[0, 0]] * (values.shape.rank - 1)
    padded = tf.pad(values, [*uncut, [0, -tf.shape(values)[-1] % row]])
    rows = tf.reshape(padded, [*values.shape[:-1], -1, row])
    return tf.reduce_sum(tf.reduce_sum(rows, axis=-1), axis=-1)


def norm(values: tf.Tensor) -> tf.Tensor:
    """Returns the Euclidean norms of float32 [..., n] over the last axis."""
    # In units of the largest value, as squares may be too large or too small for float32.
    largest = max_abs(values)
    parts = tf.math.divide_no_nan(values, largest[..., tf.newaxis])
    return largest * tf.sqrt(total(tf.square(parts)))


def max_abs(values: tf.Tensor) -> tf.Tensor:
    """Returns max |v| of float32 [..., n] over the last axis; 0 where n is 0."""
    return tf.maximum(tf.reduce_max(tf.abs(values), axis=-1), 0.0)


def mean_magnitudes(values: tf.Tensor, exchange: Exchange) -> tf.Tensor:
    """Returns the mean of |v| of each variable, [variables], from the values of a bucket, [n]."""
    return ops.mean_magnitudes(values, sizes=exchange.sizes)


def root_mean_square(values: tf.Tensor) -> tf.Tensor:
    """Returns the root of the mean of v^2 of a vector; 0 if it is empty."""
    return norm(values / max(values.shape[0], 1) ** 0.5)  # the norm itself may overflow


def to_blocks(values: tf.Tensor, block: int) -> tf.Tensor:
    """Cuts a vector in rows of `block` values, the last one padded with zeros."""
    size = values.shape.num_elements()
    padded = tf.pad(values, [[0, -size % block]])
    return tf.reshape(padded, [-1, block])


def check_step_size(name: str, eta: schedules.Hyperparameter | str) -> None:
    """Raises ValueError unless `eta` is "mean_abs", a schedule, or positive and finite."""
    if eta != "mean_abs":
        schedules.check(
            name, eta, "'mean_abs', or greater than 0", lambda eta: 0 < eta < float("inf")
        )


def step_size_statistics(
    eta: schedules.Hyperparameter | str, values: tf.Tensor, exchange: Exchange
) -> tf.Tensor | None:
    """Returns the `statistics` of a compressor that uses `step_size`."""
    if eta != "mean_abs":
        return None
    return mean_magnitudes(in_units(values, exchange), exchange)


def step_size(eta: schedules.Hyperparameter | str, exchange: Exchange) -> tf.Tensor:
    """Returns what a worker's share of one sign is worth: [variables], or in units [n].

    Args:
      eta: magnitude of the reduced gradient's values as the optimizer gets them,
        or "mean_abs": the workers' mean of the mean of |v|, for each variable;
        in the bucket's units.
      exchange: the bucket, with the `step_size_statistics` of all workers.
    """
    if eta == "mean_abs":
        share = tf.reduce_mean(exchange.statistics, axis=0)
    else:
        eta = schedules.at_step(eta, exchange.step)
        share = eta if exchange.reduce_op == "MEAN" else eta / exchange.workers
        share = tf.fill([len(exchange.sizes)], tf.cast(share, tf.float32))
    return share if exchange.units is None else from_units(spread(share, exchange), exchange)
