"""What steps of each plan have taken on one network, and what so few of them can tell."""

import collections
import math
import statistics
from collections.abc import Mapping, Sequence

from tf_gc.adaptive.plans import Plan

# Measured steps after which a plan is compared. Those that come close to the best one are measured
# longer, and anew where they were measured when the program began: in its first steps all plans
# take more, and so many do not count at all. So many of the last steps are remembered.
FIRST_STEPS = 6
FINAL_STEPS = 12
_WARM_UP_STEPS, _SLOW_STEPS = 12, 24
LAST_STEPS = 16
# A plan whose first steps take so many times the best plan's is given up at once, and so is one of
# which each of so many takes more than so many times.
_HOPELESS = 1.5
_FEW_STEPS, _BEHIND = 3, 1.1
# So many steps in a row tell of a change, by such factors: who else uses the machine or the links
# makes small ones; a large one is of the machine, or the links, themselves.
RECENT_STEPS = 3
SMALL_CHANGE, LARGE_CHANGE = 1.25, 1.5
# The standard error of the median of n normal numbers is _ERROR times their median absolute
# deviation, over the root of n.
_ERROR = 1.2533 * 1.4826


class MeasuredSteps:
    """The last steps of each plan since all began anew.

    Attributes:
      total: the number of all steps that the program has measured.
    """

    def __init__(self):
        self.total = 0
        self._steps = collections.defaultdict(lambda: collections.deque(maxlen=LAST_STEPS))
        self._early = set()  # the plans that were measured when the program began

    def begin_anew(self, known: Mapping[Plan, Sequence[float]]):
        """Forgets all but what is known."""
        self._steps.clear()
        self._early.clear()
        for plan, steps in known.items():
            self._steps[plan].extend(steps)

    def add(self, plan: Plan, seconds: Sequence[float], counts_anew: bool):
        """Adds steps; `counts_anew` leaves those out that the plan had when the program began."""
        if counts_anew and plan in self._early:
            self._early.remove(plan)
            self._steps[plan].clear()
        elif self.total < _SLOW_STEPS:
            self._early.add(plan)
        self._steps[plan].extend(seconds[max(0, _WARM_UP_STEPS - self.total) :])
        self.total += len(seconds)

    def all(self) -> dict[Plan, tuple[float, ...]]:
        """Returns the seconds of the last steps of each plan that has some."""
        return {plan: tuple(steps) for plan, steps in self._steps.items() if steps}

    def medians(self) -> dict[Plan, float]:
        """Returns the median of each plan that has steps."""
        return {plan: statistics.median(steps) for plan, steps in self.all().items()}

    def last(self, plan: Plan, count: int = RECENT_STEPS) -> list[float]:
        """Returns the last steps of a plan."""
        return list(self._steps[plan])[-count:]

    def is_early(self, plan: Plan) -> bool:
        """Whether it was measured when the program began, and not since."""
        return plan in self._early

    def has_few(self, plan: Plan) -> bool:
        """Whether a plan has so few steps that more may have been on their way."""
        return len(self._steps[plan]) < _FEW_STEPS

    def is_measured(self, plan: Plan, best: float) -> bool:
        """Whether a plan can be compared with the best one, whose steps take so many seconds."""
        steps = self._steps[plan]
        # The lower one of two, as the other may be a pause, as for evaluation.
        is_hopeless = len(steps) >= 2 and statistics.median_low(steps) > _HOPELESS * best
        return len(steps) >= FIRST_STEPS or is_hopeless or self._is_behind(plan, best)

    def is_measured_longer(self, plan: Plan, best: float) -> bool:
        """Whether it can be told from one that is close to it."""
        is_enough = len(self._steps[plan]) >= FINAL_STEPS or self._is_behind(plan, best)
        return is_enough and plan not in self._early

    def error(self, plan: Plan, other: Plan) -> float:
        """Returns the standard error of the difference of two medians; 0 of too few steps."""
        steps = self._steps[plan], self._steps[other]
        if min(map(len, steps)) < FIRST_STEPS:
            return 0.0
        return math.hypot(*map(_standard_error, steps))

    def have_changed(self, plan: Plan) -> bool:
        """Whether the last steps of a plan took another time than all those before."""
        steps = list(self._steps[plan])
        before, recent = steps[:-RECENT_STEPS], steps[-RECENT_STEPS:]
        if len(before) < RECENT_STEPS:
            return False
        before = statistics.median(before)
        return min(recent) > LARGE_CHANGE * before or max(recent) < before / LARGE_CHANGE

    def _is_behind(self, plan, best):
        return not self.has_few(plan) and min(self._steps[plan]) > _BEHIND * best


def times(a: float, b: float) -> float:
    """Returns how many times one is the other, infinity where one of them is nothing."""
    return max(a / b, b / a) if a > 0 and b > 0 else math.inf


def _standard_error(seconds):
    """Returns that of the median."""
    median = statistics.median(seconds)
    deviation = statistics.median(abs(s - median) for s in seconds)
    return _ERROR * deviation / math.sqrt(len(seconds))
