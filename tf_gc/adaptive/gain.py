"""The compression gain of top-k, from one histogram of magnitudes."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tf_gc import checks


def gains(counts: npt.ArrayLike, squares: npt.ArrayLike, ratios: Sequence[float]) -> np.ndarray:
    """Returns the compression gain of top-k at every ratio.

        gain(c) = |g_c|^2 / |g_e|^2

    where g_e is the gradient plus the residual, n values, and g_c the k = c n of
    them with the largest magnitudes, rounded as tf_gc's sparse systems do (Tyagi
    and Swany, "Flexible Communication", section 2-C). The paper trains some steps
    at each ratio to learn it; here, one pass over g_e gives it for all ratios.

    Above the bin in which the k-th value lies all squares are known. Of its own,
    each value counts as their mean square, which those of the largest are not
    less than: the gain is never too high, and too low by at most

        ((33 / 32)^2 - 1) / 4 = 0.016

    times the share that this bin has of all squares.

    Histograms may be added up: of the buckets of a model, they give the gain of
    the largest values of the whole model.

    Args:
      counts: integers [bins], of `kernels.magnitude_histogram` or the op.
      squares: float64 [bins], of the same.
      ratios: in (0, 1].

    Returns:
      float64 [number of ratios], in [0, 1]. 1 where all values are 0, as nothing
      is lost.

    Raises:
      ValueError: a ratio is out of range, or the shapes differ.
    """
    for ratio in ratios:
        checks.number("ratio", ratio, "in (0, 1]", lambda c: 0 < c <= 1)
    counts, squares = np.asarray(counts), np.asarray(squares, np.float64)
    if counts.ndim != 1 or counts.shape != squares.shape:
        raise ValueError(
            "counts and squares must be vectors of one size, got shapes "
            f"{counts.shape} and {squares.shape}"
        )
    counts_above = np.cumsum(counts[::-1])
    squares_above = np.cumsum(squares[::-1])
    if not squares_above.size or squares_above[-1] == 0:
        return np.ones(len(ratios))
    values = counts_above[-1]
    k = np.clip(np.rint(np.asarray(ratios, np.float64) * values), 1, values)
    # The bin of the k-th value, and what of it is kept.
    bins = np.searchsorted(counts_above, k)
    in_bin, square = counts[::-1][bins], squares[::-1][bins]
    missing = (counts_above[bins] - k) / in_bin * square
    return (squares_above[bins] - missing) / squares_above[-1]
