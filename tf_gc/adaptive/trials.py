"""What plans took on earlier networks."""

import collections
import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from tf_gc.adaptive.cost_model import Network
from tf_gc.adaptive.measured_steps import SMALL_CHANGE, times
from tf_gc.adaptive.plans import Plan, Plans

# Of so many networks it is known what plans took, and of so many where trials did not end.
_MOST_TRIALS = 8
# What links add may be so many times what is predicted, or one over that.
_WRONG = 1.5


@dataclasses.dataclass(frozen=True)
class Trial:
    """What was measured on a network.

    Attributes:
      network: the links at its end; those of its beginning, if it has not ended.
      plan: the one that was chosen, and has kept to what was measured; None without one.
      steps: what steps of each plan have taken.
      tried_steps: the number of all steps, those of plans that were given up included.
      tried_seconds: what they have taken.
    """

    network: Network
    plan: Plan | None
    steps: Mapping[Plan, Sequence[float]]
    tried_steps: int
    tried_seconds: float

    def seconds(self, plan: Plan) -> float | None:
        """Returns the median of the plan's steps; None if there are none."""
        return statistics.median(self.steps[plan]) if plan in self.steps else None

    def has_other_ratio(self, plan: Plan) -> bool:
        """Whether a plan is that which was chosen, with another ratio."""
        return plan.choices == self.plan.choices and plan.ratio != self.plan.ratio


class Trials:
    """Those of earlier networks."""

    def __init__(self, plans: Plans):
        self._plans = plans
        self._ended = collections.deque(maxlen=_MOST_TRIALS)
        self._unended = collections.deque(maxlen=_MOST_TRIALS)

    def add(self, trial: Trial):
        """Remembers a trial; one without a plan tells of its steps alone."""
        (self._unended if trial.plan is None else self._ended).append(trial)

    def take(self, network: Network | None, used: Plan, recent: Sequence[float]) -> Trial | None:
        """Removes and returns the last one whose plan should take, on this network, what it did.

        Without a network, only the recent steps tell, of the plan that was used.
        """
        if network is None and not recent:
            return None
        for trial in reversed(self._ended):
            if network is None:
                plan, seconds = used, statistics.median(recent)
            else:
                plan = trial.plan
                seconds = trial.seconds(plan) + self._plans.lag(trial.network, network, plan)
            before = trial.seconds(plan)
            if before is not None and times(before, seconds) <= SMALL_CHANGE:
                self._ended.remove(trial)
                return trial
        return None

    def expected(self, plan: Plan, best: Plan, network: Network, seconds: float) -> float | None:
        """Returns what a plan's steps should take here at least, by what they took elsewhere.

        Args:
          plan: the plan.
          best: the best one here.
          network: the links here.
          seconds: what steps of the best plan take here.

        Returns:
          None where no trial has measured both, or explains what the best one takes here.
        """
        expected = [
            self._expected(trial, plan, best, network, seconds)
            for trial in (*self._ended, *self._unended)
            if plan in trial.steps
            and best in trial.steps
            # Else the machine is another one, too.
            and times(self._expected(trial, best, best, network, seconds), seconds) <= SMALL_CHANGE
        ]
        return min(expected, default=None)

    def _expected(self, trial, plan, best, network, seconds):
        """Returns what a plan's steps should take here, where those of the best take `seconds`.

        What the links add to them is as many times the prediction as it is of the best plan.
        """
        before, lag = trial.seconds(best), self._plans.lag(trial.network, network, best)
        factor = 1.0
        if abs(lag) > (SMALL_CHANGE - 1) * before:
            factor = min(max((seconds - before) / lag, 1 / _WRONG), _WRONG)
        return trial.seconds(plan) + factor * self._plans.lag(trial.network, network, plan)
