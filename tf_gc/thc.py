"""THC's lookup tables (Li et al., NSDI 2024, section 5.2).

THC sends an index of a few bits for each value, and sums the integers that a
table has for the indices. The table says at which of granularity + 1 evenly
spaced values the quantisation values lie; which is best is known beforehand,
because after the randomized Hadamard transform values are nearly normal.
"""

import math
import statistics
from typing import NamedTuple

import numpy as np

# Narrower intervals are integrated numerically: the closed form would cancel.
_NARROW = 0.5
# Enough of them that what is left out is below float64's precision.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


class OptimalTable(NamedTuple):
    """What `optimal_table` returns.

    Attributes:
      table: the integers T[0] = 0 < T[1] < ... < T[2^bits - 1] = granularity.
      t_p: the largest quantisation value, in standard deviations.
      expected_squared_error: of one value, see `optimal_table`.
    """

    table: tuple[int, ...]
    t_p: float
    expected_squared_error: float


def optimal_table(bits: int, granularity: int, p: float) -> OptimalTable:
    """The table with the least error for standard normal values.

    Index z stands for the quantisation value

        q[z] = -t_p + 2 t_p T[z] / granularity,    t_p = Phi^-1(1 - p / 2)

    A value x in [q[z], q[z + 1]] becomes one of the two, so that it is x on
    average, with the expected squared error (x - q[z]) (q[z + 1] - x). The table
    has the least integral of that over the normal density from -t_p to t_p:

        sum over z of integral (x - q[z]) (q[z + 1] - x) phi(x) dx

    found exactly, by dynamic programming over (z, T[z]); the integral is not
    divided by the probability 1 - p of that range. What is cut off outside of it
    is not counted. A table and its mirror image, granularity - T, are equally
    good; the result is the one that is even where they first differ, or else the
    smaller there. THC (Li et al., NSDI 2024), section 5.2 and appendix B.

    Args:
      bits: bits sent for a value, 1 to 8.
      granularity: the largest integer of the table, at least 2^bits - 1, when
        the table is 0, 1, 2, ... . More of it lowers the error, and makes sums
        overflow sooner: N workers need N * granularity < 256 for sums in bytes.
      p: the part of the values that lies outside of [-t_p, t_p], 0 < p < 1.

    Returns:
      An `OptimalTable`.

    Raises:
      ValueError: an argument is out of range.
    """
    if not 1 <= bits <= 8:
        raise ValueError(f"bits must be 1 to 8, got {bits}")
    if granularity < 2**bits - 1:
        raise ValueError(
            f"granularity must be at least 2^bits - 1 = {2**bits - 1}, got {granularity}"
        )
    t_p = truncation(p)
    errors = _interval_errors(t_p * np.arange(-granularity, granularity + 1, 2) / granularity)
    # best[j] is the least error up to x_j with as many intervals as there have
    # been turns, the last of which ends in x_j; it begins in x_i, i = choice[j].
    best = errors[0]
    choices = []
    for _ in range(2**bits - 2):
        sums = best[:, np.newaxis] + errors
        choices.append(sums.argmin(axis=0))
        best = sums.min(axis=0)
    table = [granularity]
    for choice in reversed(choices):
        table.append(int(choice[table[-1]]))
    table = _of_mirror_images((0, *reversed(table)))
    return OptimalTable(table, t_p, math.fsum(errors[table[:-1], table[1:]]))


def truncation(p: float) -> float:
    """Returns t_p = Phi^-1(1 - p / 2): a standard normal value is beyond it with probability p.

    Raises:
      ValueError: `p` is not in (0, 1).
    """
    if not 0 < p < 1:
        raise ValueError(f"p must be greater than 0 and less than 1, got {p}")
    return -statistics.NormalDist().inv_cdf(p / 2)


def _of_mirror_images(table):
    """`table` or its mirror image: rounding errors must not decide which."""
    mirrored = tuple(table[-1] - value for value in reversed(table))
    return min(table, mirrored, key=lambda values: [(value % 2, value) for value in values])


def _interval_errors(x):
    """errors[i, j] = integral of (y - x_i) (x_j - y) phi(y) dy from x_i to x_j.

    Infinite where j <= i. `x` ascends, and is symmetric around 0; so are the
    errors, bit by bit.
    """
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    lower = np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in x])
    upper = lower[::-1]
    a, b = x[:, np.newaxis], x[np.newaxis, :]
    # Of two tails, the differences of the smaller ones are the more exact.
    probability = np.where(a + b > 0, upper[:, np.newaxis] - upper, lower - lower[:, np.newaxis])
    errors = b * density[:, np.newaxis] - a * density - (1 + a * b) * probability
    errors[b <= a] = np.inf
    i, j = np.nonzero((b > a) & (b - a < _NARROW))
    half = (x[j] - x[i])[:, np.newaxis] / 2
    y = ((x[i] + x[j]) / 2)[:, np.newaxis] + half * _NODES
    values = half**2 * (1 - _NODES**2) * np.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)
    errors[i, j] = half[:, 0] * (values @ _WEIGHTS)
    return errors
