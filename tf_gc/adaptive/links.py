"""The latency and bandwidth of the links between the workers, from how long transfers took."""

import collections
import math
from collections.abc import Iterable

import numpy as np

from tf_gc.adaptive.cost_model import Network

# Bits per second beyond which the bytes of no message can be told from its latency.
FASTEST = 1e12
# What a message of so few bytes takes is latency, even on a link on which it is mostly bytes: no
# message is shorter by much.
_SHORT = 1 << 10
# So many bytes tell the bandwidth even where they take no longer than few: it is then so high that
# it does not matter how high.
_LONG = 1 << 18
# Of a message in between that has more bytes, TCP sends no more than these on a connection that was
# idle before it waits for an answer: they may take another round trip.
_FIRST_WINDOW = 14_600
# So many of the latest short samples count, and of the long ones.
_WINDOW = 16
# Sizes that differ by a smaller factor are one.
_SPREAD = 4.0
# So many samples tell what one alone, which may be an outlier, does not.
_ENOUGH = 3
# So many samples in a row that are slower, or faster, by such a factor are no outliers. On a busy
# machine what short ones take differs by more.
_RUN = 4
_DEVIATION, _DEVIATION_OF_SHORT = 1.5, 4.0


class LinkEstimator:
    """Estimates the network from samples of transfers, as they come.

    A sample (`tf_gc.ops.network_samples`), b bytes that are asked for and sent, is taken to last

        seconds = 2 latency + 8 b / bandwidth

    8 / bandwidth is the weighted Theil-Sen slope over the latest samples: the median of the slopes
    between any two, weighted with their difference in bytes (Sievers, "Weighted Rank Statistics for
    Simple Linear Regression", Journal of the American Statistical Association, 1978). The latency
    is the median of what is left of the shortest samples. One outlier among three samples of a size
    moves neither. What the samples do not tell stays as it was: the latency while the shortest
    consist mostly of bytes, the bandwidth while the longest consist mostly of latency, which is
    twice as much where TCP may have waited for an answer in between.

    Four samples in a row that take 1.5 times as long as expected, or less than 2 / 3, are a change
    of the network: what came before them is forgotten. Of samples of no more than 1 KiB, which tell
    the latency alone, it is 4 times, or less than a quarter. These are one row, longer ones rows of
    their own, by powers of 4 bytes. Between 1 and 256 KiB, samples that deviate count only where
    short ones have come meanwhile whose latency does not explain it.

    Attributes:
      network: the estimate; None until a short and a long message have been seen.
    """

    def __init__(self) -> None:
        self.network: Network | None = None
        # Of bytes, seconds and how many samples came before.
        self._short = collections.deque(maxlen=_WINDOW)
        self._long = collections.deque(maxlen=_WINDOW)
        self._count = 0
        # By size: how samples deviate, -1, 0 or 1, how many have done so in a row, and how many of
        # all came before the row began.
        self._rows = {}

    def add(self, samples: Iterable) -> None:
        """Takes samples, the oldest first.

        Args:
          samples: rows of bytes, seconds and whatever else; none, or as many as there are.

        Raises:
          ValueError: bytes are negative, seconds not above 0, or one of them is not finite.
        """
        samples = np.asarray(samples, np.float64)
        if samples.size == 0:
            return
        if samples.ndim != 2 or samples.shape[1] < 2:
            raise ValueError(f"samples must have the shape [n, 2 or more], got {samples.shape}")
        samples = samples[:, :2]
        is_right = np.isfinite(samples).all(axis=1) & (samples[:, 0] >= 0) & (samples[:, 1] > 0)
        if not is_right.all():
            size, seconds = samples[np.argmin(is_right)]
            raise ValueError(
                "samples must be finite, with bytes of at least 0 and seconds above 0, got "
                f"{size:g} bytes in {seconds:g} s"
            )
        for size, seconds in samples:
            length, first = self._row(size, seconds)
            if length == 0 or size <= _SHORT or self._is_of_bandwidth(size, seconds, first):
                of_size = self._short if size <= _SHORT else self._long
                of_size.append((size, seconds, self._count))
                if length >= _RUN:
                    self._forget(first)
                    self._fit()
            self._count += 1
        self._fit()

    def _row(self, size, seconds):
        """Returns which in a row of samples that deviate this one is, 0 for none, and the first."""
        if self.network is None:
            return 0, 0
        deviation = self._deviation(size, seconds, self.network.latency)
        key = 0 if size <= _SHORT else math.frexp(size)[1] // 2
        before, length, first = self._rows.get(key, (0, 0, 0))
        if deviation != before:
            length, first = 0, self._count
        self._rows[key] = deviation, length + 1, first
        return (length + 1) * abs(deviation), first

    def _deviation(self, size, seconds, latency):
        expected = 8 * size / self.network.bandwidth
        least, most = 2 * latency + expected, _most_latency(size, latency) + expected
        factor = _DEVIATION_OF_SHORT if size <= _SHORT else _DEVIATION
        return int(seconds > most * factor) - int(seconds < least / factor)

    def _forget(self, first):
        """Forgets all before a sample."""
        for window in self._short, self._long:
            while window and window[0][2] < first:
                window.popleft()
        self._rows = {}

    def _is_of_bandwidth(self, size, seconds, first):
        """Whether it is not the latency why samples deviate since the given one."""
        if size >= _LONG:
            return True
        short = [seconds for _, seconds, number in self._short if number >= first]
        return bool(short) and self._deviation(size, seconds, np.median(short) / 2) != 0

    def _fit(self):
        sizes, seconds, _ = np.array([*self._short, *self._long]).T
        if self.network is None:
            self.network = _fit(sizes, seconds, None, None)
            return
        few = sizes > _SPREAD * np.sort(sizes)[-_ENOUGH:][0]
        latency, slope = self.network.latency, 8 / self.network.bandwidth
        self.network = _fit(sizes[~few], seconds[~few], latency, slope)


def _fit(sizes, seconds, latency, slope):
    """Returns the network; where samples do not tell its latency or slope, with the given one."""
    if sizes.max() > max(_SHORT, _SPREAD * sizes.min()):
        new_slope = max(theil_sen(sizes, seconds), 8 / FASTEST)
        shortest = sizes <= max(_SPREAD * sizes.min(), np.sort(sizes)[:_ENOUGH][-1])
        rest = np.median(seconds[shortest] - new_slope * sizes[shortest])
        if sizes[shortest].max() <= _SHORT or rest >= new_slope * np.median(sizes[shortest]):
            latency = max(0.0, rest / 2)
        if latency is not None and _tells_bandwidth(sizes.max(), latency, new_slope):
            slope = new_slope
    elif latency is not None and _tells_bandwidth(sizes.max(), latency, slope):
        slope = max(np.median((seconds - 2 * latency) / sizes), 8 / FASTEST)
    elif latency is not None:
        latency = max(0.0, np.median(seconds - slope * sizes) / 2)
    if latency is None or slope is None:
        return None
    return Network(float(latency), float(8 / slope))


def _tells_bandwidth(size, latency, slope):
    return size > _SHORT and (size >= _LONG or slope * size > _most_latency(size, latency))


def _most_latency(size, latency):
    """Returns how much of what a message takes may be waiting for answers."""
    return 2 * latency * (2 if _FIRST_WINDOW < size < _LONG else 1)


def theil_sen(x: np.ndarray, y: np.ndarray) -> float:
    """Returns the median of the slopes between two points, weighted with their distances in x."""
    first, second = np.triu_indices(len(x), 1)
    distances = x[second] - x[first]
    first, second, distances = (a[distances != 0] for a in (first, second, distances))
    slopes = (y[second] - y[first]) / distances
    order = np.argsort(slopes)
    weights = np.cumsum(np.abs(distances[order]))
    return slopes[order][np.searchsorted(weights, weights[-1] / 2)]
