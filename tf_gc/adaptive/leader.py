"""Worker 0, who decides for all."""

import collections
import concurrent.futures
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from tf_gc.adaptive.chooser import Chooser
from tf_gc.adaptive.cost_model import Network
from tf_gc.adaptive.run_record import ControlPoint, RunRecord

# From one exchange of reports to the next, while plans are tried, and later. Of 8 steps a report
# tells of 6 that a new plan has had, as many as it is tried in: not of the first, nor of its own.
_TRYING_SECONDS, _SECONDS = 0.15, 0.6
_MOST_TRYING_STEPS, _MOST_STEPS = 8, 60
_FIRST_STEPS = 3  # while it is not known how long steps take, which the last ones tell
_RECENT_STEPS = 5
# How many steps are looked back on: reports come with the first step of their plan that is due, and
# other steps may be in between.
KNOWN_STEPS = 2 * _MOST_STEPS
_LEAST_STEPS = 4  # between reports, when nothing is tried, however long steps are
_REPORTS_PER_GAIN = 10
# For so many steps after a change workers are told that the choice is open, between trials as well,
# so that second moments are not of another kind after each trial. Later trials are rare: by then
# even a plan whose steps are half as long again may be tried.
_OPEN_STEPS = 100
# A worker's link is slower than the others' if so many of its measurements in a row say so: one may
# be that of a busy machine.
_SURE = 4


class Report(NamedTuple):
    """What a worker tells all others, in float64.

    Attributes:
      latency: of its links, in seconds; NaN where it is not known.
      bandwidth: of its links, in bits per second; NaN where it is not known.
      is_restored: whether residuals were restored since its last report.
    """

    latency: float
    bandwidth: float
    is_restored: bool


class Decision(NamedTuple):
    """What worker 0 tells all others, before the index of the system of each bucket.

    Attributes:
      steps: how many there are from these reports to the next ones.
      is_restored: whether residuals were restored on any worker.
      is_settled: whether no plan is being tried, nor likely to be soon.
      wants_gain: whether gains are to be measured in the step of the next reports.
      measures_links: whether links are to be measured in the first step after each report.
      ratio: of systems without one of their own.
    """

    steps: int
    is_restored: bool
    is_settled: bool
    wants_gain: bool
    measures_links: bool
    ratio: float


class Leader:
    """Turns reports into decisions, in a thread of its own: no step waits for it."""

    def __init__(self, chooser: Chooser, record: RunRecord | None = None):
        self._chooser = chooser
        self._record = record
        self._pool = concurrent.futures.ThreadPoolExecutor(1, "tf_gc_auto")
        self._deciding = None
        self._is_settled = False  # the chooser, when it decided last
        self._reports = 0
        self._began = time.monotonic()
        self._logged = None  # the plan that was
        self._recorded = None  # why the last plan was taken
        self._heard = 0  # the step of the last reports
        # What is decided is told with the next reports, and done from the next step on.
        self._told = None
        # The last plans, and the first step of each.
        self._plans = collections.deque([(0, None)], maxlen=3)
        self._latency, self._bandwidth = _Slowest(), _Slowest()

    def hear(
        self,
        step: int,
        reports: Sequence[Report],
        gains: np.ndarray,
        times: np.ndarray,
        own_times: np.ndarray,
    ):
        """Begins to decide, after `decision` has told of these reports.

        Args:
          step: in which the reports were exchanged.
          reports: of all workers.
          gains: float64 [workers, ratios], NaN where they are not known.
          times: when steps have begun, in seconds, that of step s at s mod size; 0 for unknown.
          own_times: the same of the steps that had the leader's plans.
        """
        seconds, used = self._seconds(step, times, own_times)
        self._heard = step
        if self._told != self._plans[-1][1]:
            self._plans.append((step + 1, self._told))
        self._deciding = self._pool.submit(self._decide, step, reports, gains, seconds, used)

    def decision(self, step: int, times: np.ndarray) -> tuple[Decision, Sequence[int]] | None:
        """Returns what was decided last, to be told with the next reports; None before the first.

        Waits where it is not ready, and raises what has ended the thread.

        Args:
          step: in which the reports are exchanged.
          times: as of `hear`, up to this step.

        Returns:
          The decision, and the index of the system of each bucket.
        """
        if self._deciding is None:
            return None
        decision, plan = self._deciding.result()
        self._told = plan
        return decision._replace(steps=self._steps_apart(step, times)), plan.choices

    def _steps_apart(self, step, times):
        """Returns after how many steps reports are due again, if these take what the last did.

        A pause among the last ones, as for evaluation, does not count.
        """
        apart, least, most = _TRYING_SECONDS, 1, _MOST_TRYING_STEPS
        if self._is_settled:
            apart, least, most = _SECONDS, _LEAST_STEPS, _MOST_STEPS
        steps = np.arange(max(self._heard, step - _RECENT_STEPS), step + 1)
        begun = times[steps % times.size]
        took = np.diff(begun[begun > 0])
        if not took.size or np.median(took) <= 0:
            return _FIRST_STEPS
        return round(min(max(apart / np.median(took), least), most))

    def _seconds(self, step, times, own_times):
        """Returns what steps have taken that ended since the last reports, and what plan they had.

        The first step of a plan does not count, nor what was left of the one before.
        """
        if not 0 <= step - self._heard < times.size:  # another part of the training
            self._plans = collections.deque([(step, self._told)], maxlen=3)
            return [], self._told
        first, used = next((p for p in reversed(self._plans) if p[0] < step), self._plans[0])
        steps = np.arange(max(self._heard, first + 1), step)
        begin, end = times[steps % times.size], times[(steps + 1) % times.size]
        is_own = own_times[steps % times.size] == begin
        return list((end - begin)[(begin > 0) & (end > begin) & is_own]), used

    def _decide(self, step, reports, gains, seconds, used):
        self._reports += 1
        network = Network(
            latency=self._latency.update([r.latency for r in reports], 1e-3),
            bandwidth=-self._bandwidth.update([-r.bandwidth for r in reports], -1e9),
        )
        known_gains = None if np.isnan(gains).any() else gains.mean(0)
        self._record_point(step, statistics.median(seconds) if seconds else None, network)
        plan = self._chooser.update(network, seconds, known_gains, used)
        self._log()
        self._is_settled = self._chooser.is_settled
        is_open = self._chooser.steps_since_change < _OPEN_STEPS
        decision = Decision(
            steps=0,  # for `decision` to say
            is_restored=any(report.is_restored for report in reports),
            is_settled=self._is_settled and not is_open,
            wants_gain=self._reports % _REPORTS_PER_GAIN == 1,
            measures_links=self._chooser.wants_links,
            ratio=plan.ratio or 1.0,
        )
        return decision, plan

    def _log(self):
        """Logs a plan that was settled on."""
        chooser = self._chooser
        if chooser.is_settled and chooser.plan != self._logged:
            self._logged = chooser.plan
            logging.warning("tf_gc.Auto takes %s", chooser.why)

    def _record_point(self, step, seconds, network):
        """Records what was decided last: these reports have told it, and the next step has it."""
        if self._record is None or step == 0:
            return
        chooser = self._chooser
        point = ControlPoint(
            step=step,
            seconds=time.monotonic() - self._began,
            step_seconds=seconds,
            latency=network.latency,
            bandwidth=network.bandwidth,
            choices=chooser.plan.choices,
            ratio=chooser.plan.ratio,
            gain=chooser.gain,
            why=None if chooser.why == self._recorded else chooser.why,
        )
        self._recorded = chooser.why
        try:
            self._record.append(point)
        except OSError as error:  # a full disk is no reason to end the training
            logging.warning("%s is not written any more: %s", self._record.path, error.strerror)
            self._record = None


class _Slowest:
    """What something is for all workers that makes steps the slower the higher it is.

    It is the median, of two in the middle the higher one, as one worker may be mistaken. But all
    wait for a worker that has measured more than that several times in a row.
    """

    def __init__(self):
        self._measured = collections.defaultdict(lambda: collections.deque(maxlen=_SURE))

    def update(self, values, otherwise):
        """Returns it by what each worker reports, NaN if it is not known, or `otherwise`."""
        known = {rank: value for rank, value in enumerate(values) if np.isfinite(value)}
        for rank, value in known.items():
            measured = self._measured[rank]
            if not measured or measured[-1] != value:  # else it was not measured again
                measured.append(value)
        sure = [min(values) for values in self._measured.values() if len(values) == _SURE]
        return max([statistics.median_high(known.values()), *sure]) if known else otherwise
