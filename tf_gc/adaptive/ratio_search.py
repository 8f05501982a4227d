"""The compression ratio: a knee between time and gain, searched for when something has changed."""

import importlib
import math
from collections.abc import Mapping

import numpy as np

from tf_gc import checks
from tf_gc.adaptive.cost_model import Network

# Of the paper on AR-Topk, section 3-E.
CANDIDATES = (0.1, 0.033, 0.011, 0.004, 0.001)

# What differs by less than this, relatively, decides nothing.
_INDISTINCT = 0.01


def knee(gain_of: Mapping[float, float], seconds_of: Mapping[float, tuple[float, float]]) -> float:
    """Returns the ratio at the knee of the front of three objectives.

    The objectives, all to be small, are the seconds of compression, the seconds
    of communication, and 1 / gain (Tyagi and Swany, "Flexible Communication",
    section 3-E, equation 6). NSGA-II (Deb et al., 2002; pymoo) finds the front.
    As there are few candidates, all of them are its first generation, so that the
    front is exact and the same on every worker.

    The knee is the point that lies deepest below the plane through the front's
    extremes, the fastest and the one of the highest gain (Das, "On
    characterizing the knee of the Pareto curve", 1999):

        max  1 - (t - min t) / range t - (l - min l) / range l

    with t the seconds of both kinds and l = 1 / gain. Seconds are added up, not
    brought to ranges of their own, as one of compression is worth one of
    communication; a range of mere noise would else count as much as the other.
    (pymoo's high-tradeoff points are those whose trade-off deviates by two
    standard deviations, of which five points often have none.)

    A ratio whose objectives are not all finite is left out. If all are, the
    smallest ratio is returned, which sends least. If the times on the front are
    within 1 %, that of the highest gain; if the gains are, the fastest; of equal
    ones, the largest ratio.

    Args:
      gain_of: by ratio, the gain, as `gains` computes it.
      seconds_of: by the same ratios, the seconds of compression and of
        communication.

    Raises:
      ValueError: there is no ratio, one is out of (0, 1], or the mappings have
        different ones.
      ImportError: pymoo is not installed.
    """
    _check(gain_of, seconds_of)
    ratios = sorted(gain_of, reverse=True)
    loss_of = {ratio: 1 / gain if gain > 0 else math.inf for ratio, gain in gain_of.items()}
    objectives = np.array([(*seconds_of[ratio], loss_of[ratio]) for ratio in ratios])
    is_finite = np.isfinite(objectives).all(axis=1)
    if not is_finite.any():
        return ratios[-1]
    ratios = np.array(ratios)[is_finite]
    objectives = objectives[is_finite]
    front = _front(objectives)
    ratios, seconds, losses = ratios[front], objectives[front, :2].sum(1), objectives[front, 2]
    if np.ptp(seconds) <= _INDISTINCT * seconds.max():
        return float(ratios[np.argmin(losses)])
    if np.ptp(losses) <= _INDISTINCT * losses.max():
        return float(ratios[np.argmin(seconds)])
    return float(ratios[np.argmin(_in_range(seconds) + _in_range(losses))])


class RatioSearch:
    """The ratio to use now: searched for again when gain or network have changed.

    It has no randomness and reads no clock: workers that update theirs with the
    same numbers have the same ratio. A search takes some milliseconds.

    Attributes:
      ratio: of the last search; None before the first.
      searches: how many there have been.
    """

    def __init__(self, gain_change: float = 0.1, network_change: float = 0.2):
        """Searches again when a number has changed, relative to the last search.

        Args:
          gain_change: by so much, the gain at the ratio in use (the paper's: 10 %).
          network_change: by so much, the latency or the bandwidth.

        Raises:
          ValueError: a change is not above 0.
          ImportError: pymoo is not installed.
        """
        checks.number("gain_change", gain_change, "above 0", lambda c: c > 0)
        checks.number("network_change", network_change, "above 0", lambda c: c > 0)
        _front(np.eye(2))  # what pymoo imports then takes a quarter of a second: not in some step
        self._gain_change = gain_change
        self._network_change = network_change
        self._network: Network | None = None
        self._gain_of: Mapping[float, float] = {}
        self.ratio: float | None = None
        self.searches = 0

    def update(
        self,
        network: Network,
        gain_of: Mapping[float, float],
        seconds_of: Mapping[float, tuple[float, float]],
    ) -> float:
        """Returns the ratio to use, that of a new `knee` if something has changed.

        Args:
          network: the links, as measured now.
          gain_of: by ratio, the gain now. Other ratios than the last time's ask
            for a search, too.
          seconds_of: by the same ratios, the seconds of compression and of
            communication.

        Raises:
          ValueError: as in `knee`.
        """
        _check(gain_of, seconds_of)
        if self._is_due(network, gain_of):
            self.ratio = knee(gain_of, seconds_of)
            self.searches += 1
            self._network = network
            self._gain_of = dict(gain_of)
        return self.ratio

    def _is_due(self, network, gain_of):
        if self._network is None or gain_of.keys() != self._gain_of.keys():
            return True
        return (
            _has_changed(self._gain_of[self.ratio], gain_of[self.ratio], self._gain_change)
            or _has_changed(self._network.latency, network.latency, self._network_change)
            or _has_changed(self._network.bandwidth, network.bandwidth, self._network_change)
        )


def _has_changed(before, now, threshold):
    # A little less, so that 0.9 has changed by 10 % from 1.0. NaN has changed.
    return before != now and not abs(now - before) < (1 - 1e-9) * threshold * abs(before)


def _check(gain_of, seconds_of):
    if not gain_of or gain_of.keys() != seconds_of.keys():
        raise ValueError(
            "gain_of and seconds_of must have the same ratios, at least one, got "
            f"{sorted(gain_of)} and {sorted(seconds_of)}"
        )
    for ratio in gain_of:
        checks.number("ratio", ratio, "in (0, 1]", lambda c: 0 < c <= 1)


def _in_range(values):
    return (values - values.min()) / np.ptp(values)


def _front(objectives):
    """Returns the indices, ascending, of the rows that no other one dominates."""
    candidates = len(objectives)
    problem = _pymoo("problems.functional").FunctionalProblem(
        n_var=1,
        objs=[lambda x, column=column: column[int(x[0])] for column in objectives.T],
        xl=0,
        xu=candidates - 1,
    )
    algorithm = _pymoo("algorithms.moo.nsga2").NSGA2(
        pop_size=candidates, sampling=np.arange(candidates)[:, np.newaxis]
    )
    result = _pymoo("optimize").minimize(problem, algorithm, ("n_gen", 1), seed=0)
    return np.sort(result.opt.get("X")[:, 0].astype(int))


def _pymoo(module):
    try:
        return importlib.import_module(f"pymoo.{module}")
    except ModuleNotFoundError as error:
        raise ImportError(
            "a search for the ratio needs pymoo: pip install 'tf-gc[adaptive]'"
        ) from error
