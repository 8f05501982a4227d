"""The latency and bandwidth of the links between the workers, from how long transfers took."""

import collections
from collections.abc import Iterable

import numpy as np

from tf_gc.adaptive.cost_model import Network

# Bits per second beyond which the bytes of no message can be told from its latency.
FASTEST = 1e12
# What a message of so few bytes takes is latency, even on a link on which it is mostly bytes: no
# message is shorter by much.
_SHORT = 1 << 10
# So many bytes tell the bandwidth even where they take hardly longer than few: it is then so high
# that it does not matter how high.
_LONG = 1 << 18
# So many bytes TCP sends on a connection that was idle before it waits for an answer. What a few of
# them take more than others may be that of a busy machine.
_FIRST_WINDOW = 14_600
# The longest messages tell the bandwidth where bytes are such a part of what they take: the second
# one where no message has more than a first window, the third one where some are long. The shortest
# ones tell the latency where it is the first part of what they take.
_TOLD, _TOLD_BY_FEW, _TOLD_BY_MANY = 0.25, 0.75, 0.05
# So many of the latest samples count.
_WINDOW = 24
# This part of the samples takes less than the estimate.
_QUANTILE = 0.2
# So many of the latest arrivals count, and of the samples beside them that tell the latency. This
# part of the arrivals' bytes comes faster than the estimate.
_ARRIVALS, _SHORT_ONES = 6, 8
_FASTER = 0.25
# On a busy machine the times of arrivals, which few bytes begin and many end, are known to so much.
_TICK = 1e-3
# Sizes that differ by a smaller factor are one.
_SPREAD = 3.0
# So many samples tell what one alone, which may be an outlier, does not.
_ENOUGH = 3
# So many samples in a row that are slower, or faster, by such a factor are no outliers. On a busy
# machine what short ones take differs by more.
_RUN = 4
_DEVIATION, _DEVIATION_OF_SHORT = 1.5, 4.0


class LinkEstimator:
    """Estimates the network from samples of transfers, as they come.

    A sample (`tf_gc.ops.network_samples`), b bytes that are asked for and sent, is taken to last

        seconds = 2 latency + 8 b / bandwidth,

    or longer: TCP may wait for answers in between, other processes for the processor. So what is
    fitted to the latest samples is the line that a fifth of them are below, by quantile regression
    (Koenker and Bassett, "Regression Quantiles", Econometrica, 1978) of relative errors. What the
    samples do not tell stays as it was: the latency where the shortest consist mostly of bytes, the
    bandwidth where the longest consist mostly of latency. But these refute one with which they
    would consist mostly of bytes: it is then what they tell, or bounded by that.

    Arrivals, samples of more than 1 KiB whose time begins with their first bytes, have no latency
    in it. As soon as they are of three messages the latest 6 tell the bandwidth, as the line

        seconds = 8 b / bandwidth

    that a quarter of their bytes are below. So neither some whose first bytes were seen late count
    for much, nor the more that were held up, as by what their sender sends to others. Where they
    last less than a millisecond they show how high the bandwidth is at least. From then on samples
    of 256 KiB or more that were asked for count as arrivals, less two latencies, if they take twice
    as long as these, and the latest 8 of at most 14.6 KB tell the latency.

    Four samples in a row that take 1.5 times as long as expected, or less than 2 / 3, are a change
    of the network: what came before is forgotten, and of their kind once more after each further
    four. Of samples of no more than 1 KiB, which have a row of their own, it is 4 times, or less
    than a quarter.

    Attributes:
      network: the estimate; None until a short and a long message have been seen.
    """

    def __init__(self) -> None:
        self.network: Network | None = None
        # Of bytes and seconds; arrivals have a number of messages, too.
        self._samples = collections.deque(maxlen=_WINDOW)
        self._arrivals = collections.deque(maxlen=_ARRIVALS)
        # Of short samples and of others: how they deviate, -1, 0 or 1, and how many in a row.
        self._rows = {}

    def add(self, samples: Iterable) -> None:
        """Takes samples, the oldest first.

        Args:
          samples: rows of bytes and seconds; none, or as many as there are. A third column has the
            number of messages, 1 by default. In a fourth one 0 says that it is an arrival.

        Raises:
          ValueError: bytes are negative, seconds not above 0, or one of them is not finite.
        """
        samples = np.asarray(samples, np.float64)
        if samples.size == 0:
            return
        if samples.ndim != 2 or samples.shape[1] < 2:
            raise ValueError(f"samples must have the shape [n, 2 or more], got {samples.shape}")
        ones = np.ones(len(samples))
        messages = samples[:, 2] if samples.shape[1] > 2 else ones
        is_asked_for = samples[:, 3] if samples.shape[1] > 3 else ones
        samples = samples[:, :2]
        is_right = np.isfinite(samples).all(axis=1) & (samples[:, 0] >= 0) & (samples[:, 1] > 0)
        if not is_right.all():
            size, seconds = samples[np.argmin(is_right)]
            raise ValueError(
                "samples must be finite, with bytes of at least 0 and seconds above 0, got "
                f"{size:g} bytes in {seconds:g} s"
            )
        for (size, seconds), count, is_asked in zip(samples, messages, is_asked_for, strict=True):
            if not is_asked:
                if size > _SHORT:
                    self._arrivals.append((size, seconds, count))
                continue
            self._samples.append((size, seconds))
            length = self._deviates(size, seconds)
            if length > 0 and length % _RUN == 0:
                self._forget(size <= _SHORT, others=length == _RUN)
            elif self.network and self._arrivals and size >= _LONG:
                wait = 2 * self.network.latency
                if seconds > 2 * wait:
                    self._arrivals.append((size, seconds - wait, 1))
        if self._samples:
            self._fit()

    def _deviates(self, size, seconds):
        """Returns which in a row of samples that deviate this one is, 0 for none."""
        if self.network is None:
            return 0
        is_short = size <= _SHORT
        factor = _DEVIATION_OF_SHORT if is_short else _DEVIATION
        wait, slope = 2 * self.network.latency, 8 / self.network.bandwidth
        expected = wait + slope * size
        most = expected + _more_waiting(size, wait)
        deviation = int(seconds > most * factor) - int(seconds < expected / factor)
        before, length = self._rows.get(is_short, (0, 0))
        length = length + 1 if deviation == before else 1
        self._rows[is_short] = deviation, length
        return length * abs(deviation)

    def _forget(self, are_short, others):
        """Forgets what came before the last of the short samples, or of the longer ones.

        Where they still deviate after a first row, the network may have changed during it: then
        the others, which may be of now, stay.
        """
        samples = list(self._samples)
        own = [i for i, (size, _) in enumerate(samples) if (size <= _SHORT) == are_short]
        first = own[-_RUN:][0]
        dropped = set(range(first)) if others else {i for i in own if i < first}
        if others:
            self._arrivals.clear()
        self._samples.clear()
        self._samples.extend(s for i, s in enumerate(samples) if i not in dropped)

    def _fit(self):
        sizes, seconds = np.array(self._samples).T
        if self.network is None:
            self.network = _first_fit(sizes, seconds)
            return
        arrived, took, messages = np.reshape(self._arrivals, (-1, 3)).T
        if messages.sum() >= _ENOUGH:
            self.network = _fit_arrivals(sizes, seconds, arrived, took, self.network)
            return
        few = sizes > _SPREAD * np.sort(sizes)[-_ENOUGH:][0]
        self.network = _fit(sizes[~few], seconds[~few], self.network)


def _first_fit(sizes, seconds):
    """Returns the network, or None where the samples do not tell it.

    They are those of a probe, whose few longest messages alone may tell the bandwidth, so that the
    slope is the Theil-Sen estimator's, weighted with the differences in bytes (Sievers, "Weighted
    Rank Statistics for Simple Linear Regression", Journal of the American Statistical Association,
    1978).
    """
    if sizes.max() <= max(_SHORT, _SPREAD * sizes.min()):
        return None
    slope = max(theil_sen(sizes, seconds), 0.0)
    shortest = sizes <= max(_SPREAD * sizes.min(), np.sort(sizes)[:_ENOUGH][-1])
    wait = max(np.median(seconds[shortest] - slope * sizes[shortest]), 0.0)
    if not _tells_latency(sizes, wait, slope):
        return None
    least = _least_told(sizes, wait)
    if slope < least and sizes.max() < _LONG:
        return None
    return _network(wait, max(slope, least))


def _fit(sizes, seconds, known):
    """Returns the network; where samples do not tell its latency or bandwidth, with the known."""
    wait, slope = 2 * known.latency, 8 / known.bandwidth
    if sizes.max() <= _SHORT:
        return _network(_quantile(seconds - slope * sizes), slope)
    if sizes.max() > _SPREAD * sizes.min():
        new_wait, new_slope = _line(sizes, seconds)
        if new_slope < (least := _least_told(sizes, new_wait)):
            told = least
            if sizes.max() <= _FIRST_WINDOW:
                told = max(new_slope, _slope(_TOLD_BY_MANY, new_wait, sizes.max()))
            return _network(new_wait, slope if slope < least else told)
        if _tells_latency(sizes, new_wait, new_slope):
            return _network(new_wait, new_slope)
    elif sizes.max() <= _FIRST_WINDOW and slope * sizes.max() < _quantile(seconds) / 2:
        return _network(_quantile(seconds - slope * sizes), slope)
    elif sizes.min() > _SHORT and sizes.max() < _LONG:
        return known  # until short ones show whether it is the latency that has changed
    wait = min(wait, (1 - _TOLD) * _quantile(seconds))
    return _network(wait, _quantile((seconds - wait) / sizes))


def _fit_arrivals(sizes, seconds, arrived, took, known):
    """Returns the network of samples that were asked for, and of arrivals."""
    slopes = np.maximum(took, _TICK) / arrived
    told = _weighted_quantile(slopes, arrived, _FASTER)
    slope = slopes[told]
    if took[told] < _TICK:
        slope = min(slope, 8 / known.bandwidth)
    few = np.flatnonzero(sizes <= _FIRST_WINDOW)[-_SHORT_ONES:]
    wait = _quantile(seconds[few] - slope * sizes[few]) if few.size else 2 * known.latency
    return _network(wait, slope)


def _network(wait, slope):
    return Network(float(max(wait, 0.0) / 2), float(8 / max(slope, 8 / FASTEST)))


def _tells_latency(sizes, wait, slope):
    return sizes.min() <= _SHORT or wait >= _TOLD * (wait + slope * sizes.min())


def _least_told(sizes, wait):
    """Returns the least slope that the longest messages tell."""
    size = sizes.max()
    part = _TOLD_BY_FEW if size <= _FIRST_WINDOW else _TOLD if size < _LONG else _TOLD_BY_MANY
    return _slope(part, wait, size)


def _slope(part, wait, size):
    """Returns that with which bytes are such a part of what so many take."""
    return part / (1 - part) * wait / size


def _more_waiting(sizes, wait):
    """Returns how long messages may wait besides, as TCP may ask for another answer."""
    return np.where((sizes > _FIRST_WINDOW) & (sizes < _LONG), wait, 0.0)


def _line(x, y):
    """Returns the intercept and the slope, neither below 0, of the quantile's line."""
    first, second = np.triu_indices(len(x), 1)
    first, second = (a[x[first] != x[second]] for a in (first, second))
    slopes = (y[second] - y[first]) / (x[second] - x[first])
    intercepts = y[first] - slopes * x[first]
    is_right = (slopes >= 0) & (intercepts >= 0)
    # Such a line goes through two points, or, at a bound, through one.
    none = np.zeros(len(x))
    slopes = np.concatenate([slopes[is_right], y / np.maximum(x, 1), none])
    intercepts = np.concatenate([intercepts[is_right], none, y])
    lags = y - (intercepts[:, None] + slopes[:, None] * x)
    once, twice = (_loss(e / y) for e in (lags, lags - _more_waiting(x, intercepts[:, None])))
    best = np.minimum(once, twice).sum(axis=1).argmin()
    return intercepts[best], slopes[best]


def _loss(errors):
    return np.maximum(_QUANTILE * errors, (_QUANTILE - 1) * errors)


def _quantile(values):
    return np.quantile(values, _QUANTILE, method="lower")


def theil_sen(x: np.ndarray, y: np.ndarray) -> float:
    """Returns the median of the slopes between two points, weighted with their distances in x."""
    first, second = np.triu_indices(len(x), 1)
    distances = x[second] - x[first]
    first, second, distances = (a[distances != 0] for a in (first, second, distances))
    slopes = (y[second] - y[first]) / distances
    return slopes[_weighted_quantile(slopes, np.abs(distances), 0.5)]


def _weighted_quantile(values, weights, part):
    """Returns which one it is."""
    order = np.argsort(values)
    weights = np.cumsum(weights[order])
    return order[np.searchsorted(weights, part * weights[-1])]
