"""Second moments of rows and columns in slow NumPy, bit for bit."""

import numpy as np
import tensorflow as tf

_BFLOAT16 = tf.bfloat16.as_numpy_dtype
_SMALLEST_UNIT = 1e-6


def to_bfloat16(values):
    """Returns values in float32, rounded to bfloat16."""
    return np.asarray(values).astype(_BFLOAT16).astype(np.float32)


def _add_up(parts):
    """The sum of arrays, one after the other, in their type."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def _sums_of_rows(squares):
    """In 16 lanes, then by halves."""
    rows, columns = squares.shape
    padded = np.zeros([rows, -(-columns // 16) * 16], np.float32)
    padded[:, :columns] = squares
    lanes = _add_up(np.split(padded, padded.shape[1] // 16, axis=1))
    for half in 8, 4, 2, 1:
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]


def mean_squares(values, rows):
    """float32 [rows + columns], added up in tiles of 64 rows and 1024 columns."""
    matrix = np.asarray(values, np.float32).reshape(rows, -1)
    columns = matrix.shape[1]
    squares = matrix * matrix
    of_rows = _add_up([_sums_of_rows(squares[:, j : j + 1024]) for j in range(0, columns, 1024)])
    of_columns = _add_up([_add_up(list(squares[i : i + 64])) for i in range(0, rows, 64)])
    return np.concatenate([of_rows / np.float32(columns), of_columns / np.float32(rows)])


def statistics(gradients, rows, scale=1.0):
    """What all workers know after an exchange of sums: float32, from bfloat16.

    Args:
      gradients: one for each worker.
      rows: of their matrix.
      scale: 1 over the number of workers for their mean, whose sum is rounded.
    """
    sent = [to_bfloat16(mean_squares(g, rows)) for g in gradients]
    return np.float32(scale) * to_bfloat16(_add_up(sent))


def _mean(values):
    return np.cumsum(values, dtype=np.float64)[-1] / values.size


def second_moments(values, rows, factor):
    """float32 [rows, columns]."""
    of_rows, of_columns = values[:rows], values[rows:]
    if not np.isfinite(values).all():
        return np.full([rows, of_columns.size], np.nan, np.float32)
    mean = _mean(of_rows)
    shares = np.zeros(rows) if mean == 0 else np.float32(factor) * (of_rows / mean)
    return shares.astype(np.float32)[:, np.newaxis] * of_columns


def units(means, rows):
    """float32 [rows + columns]: a, then b."""
    of_rows, of_columns = means[:rows].astype(np.float64), means[rows:].astype(np.float64)
    row_mean, column_mean = _mean(of_rows), _mean(of_columns)
    if row_mean == 0 or column_mean == 0:
        return np.ones(means.size, np.float32)
    a = np.sqrt(np.maximum(of_rows / row_mean, _SMALLEST_UNIT))
    b = np.sqrt(np.maximum(of_columns, _SMALLEST_UNIT * column_mean))
    return np.concatenate([a, b]).astype(np.float32)


def raised(of_units, rows):
    """Units of which none is less than a tenth of the root mean square, as THC has them."""
    halves = np.split(of_units.astype(np.float64), [rows])
    return np.concatenate([np.maximum(h, 0.1 * np.sqrt(np.mean(h**2))) for h in halves])


def update(slot, values, decay):
    """The slot after a step, float32: decayed means, and the weight of what is in them."""
    if not np.isfinite(values).all():
        return slot
    share = np.float32(1) - np.float32(decay)
    means, weight = slot[:-1], slot[-1]
    weight += share * (np.float32(1) - weight)
    return np.append(means + share / weight * (values - means), weight)


def spread(of_units, rows):
    """float32 [n], of the rows + columns factors of a matrix."""
    return np.outer(of_units[:rows], of_units[rows:]).ravel()
