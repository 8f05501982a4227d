"""Which plan the next steps should have: predicted, then measured in steps that train."""

import collections
import dataclasses
import functools
import math
import statistics
from collections.abc import Mapping, Sequence

from tf_gc.adaptive.computation import seconds_per_value
from tf_gc.adaptive.cost_model import Network, predict
from tf_gc.adaptive.ratio_search import RatioSearch

# Measured steps after which a plan is compared. Those that come close to the best one are measured
# longer, and anew where they were measured when the program began: in its first steps all plans
# take more, and so many do not count at all. So many of the last steps are remembered.
_FIRST_STEPS = 6
_FINAL_STEPS = 12
_CLOSE, _CLOSE_AT_FIRST = 1.1, 1.35
_WARM_UP_STEPS, _SLOW_STEPS = 12, 24
_LAST_STEPS = 16
# A plan whose first steps take so many times the best plan's is given up at once, and so is one of
# which each of so many takes more than so many times.
_HOPELESS = 1.5
_FEW_STEPS, _BEHIND = 3, 1.1
# Plans are tried whose steps are predicted to be longer than the best plan's by no more than such
# a part of it, or whose first steps' exchanges take so many seconds together: where workers share
# processors, links are taken for slower than they are.
_DOUBT = 0.75
_CHEAP_SECONDS = 0.5
# What trials cost, in steps of the best plan, is no more than such a part of all steps since the
# last change. To take another plan, and to return, costs about so many of them: the first ones of
# each find what waited in the residuals.
_PART_OF_TRIALS = 0.05
_SWITCHING = 2.0
# A plan that was measured on other links is tried where its steps should be no more than so many
# times as long as the best plan's, going by what both took there. What links add may be so many
# times what is predicted, or one over that.
_NEAR = 1.1
_WRONG = 1.5
# Of the collectives of a system those are tried that the model takes for so close to the best one:
# it knows of no work that a message makes.
_SIMILAR = 1.25
# Bytes may have taken such a part of a step, though latency seems to be all of it.
_LEAST_TRANSFER = 0.1
# Of two plans that differ by less, or by no more than the standard error of what was measured and
# less than the second factor, the more faithful one is taken. The standard error of the median of n
# normal numbers is _ERROR times their median absolute deviation, over the root of n.
_EQUAL, _EQUAL_IN_NOISE = 1.03, 1.05
_ERROR = 1.2533 * 1.4826
# After a first change between measured plans each is kept for so many of its steps at least, and
# after each further change for twice as many: else noise would have them alternate for ever.
_LEAST_KEPT, _MOST_KEPT = 16, 1024
# The network, or the machine, is another one when steps take so many times as long, or as short,
# after so many settled steps for one that was spent on trying, and at most so many in all: a
# machine that others use changes all the time, and what changes everything is worth a try at once.
# Where steps are longer now, as many count as fill the time that trying took.
_RECENT_STEPS = 3
_LARGE_CHANGE = 1.5
_SMALL_CHANGE = 1.25
_CHANGES = ((_SMALL_CHANGE, 20, math.inf), (_LARGE_CHANGE, 1, _RECENT_STEPS))
# What links seem to be is what they are where it has not changed for so many steps.
_STEADY_STEPS = 8
# So many of the last tried steps may be of another network than those before, if it has changed.
_DOUBTFUL_STEPS = 12
# Of so many networks it is known what plans took.
_MOST_TRIALS = 8
# So many predictions are remembered.
_MOST_COSTS = 256


@dataclasses.dataclass(frozen=True)
class System:
    """What may be chosen for a bucket.

    Attributes:
      name: as in `predict`.
      collective: as in `predict`.
      loss: orders systems by what they change in a gradient, 0 for nothing.
      has_ratio: whether it sends the ratio of the values that was searched for.
      arguments: its own, where they are not the default ones. The model knows nothing of them.
    """

    name: str
    collective: str
    loss: int
    has_ratio: bool = False
    arguments: str = ""

    def __str__(self):
        if self.name == "uncompressed":
            return self.name
        return f"{self.name}{self.arguments} ({self.collective})"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do in a step.

    Attributes:
      choices: the index of the system of each bucket.
      ratio: what systems with a ratio send; None without any.
    """

    choices: tuple[int, ...]
    ratio: float | None = None


@dataclasses.dataclass(frozen=True)
class _Trial:
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


class Chooser:
    """Finds the plan with the shortest steps.

    The cost model ranks the plans: for each system one in which every bucket has it, by its best
    collective, or another one that is close, and one in which only those have it that it is
    predicted to make faster. Plans that may be the best are then used for some steps each, which
    are measured: at once where they should save more than the trial costs, else when so many steps
    have gone by that trials cost about 5 % of them (bandits are kept close to a safe choice like
    that: Wu et al., "Conservative Bandits", ICML 2016). No such step is lost: what one system has
    not delivered the next one finds in the residuals.

    When the network changes, all begins anew, unless it is one that was there before: then the best
    plan of that time is taken, and kept if its first steps are what they were.

    Attributes:
      plan: the plan of the next steps; None before the first network is known.
      is_settled: whether it is the best one of those that were tried; others may be tried later.
      steps_since_change: the number of steps since all began anew.
      why: what made it so, for people.
    """

    def __init__(
        self,
        systems: Sequence[System],
        sizes: Sequence[int],
        workers: int,
        ratios: Sequence[float] = (),
        rates: Mapping[str, float] | None = None,
    ):
        """Has no plan before the first network is known.

        Args:
          systems: what is chosen from, at least one.
          sizes: the number of values of each bucket, which may be 0.
          workers: their number, at least 2.
          ratios: what systems with a ratio may send, if there are any.
          rates: what computation takes, of `measure_rates`; None for nothing.
        """
        self._systems = tuple(systems)
        self._sizes = tuple(max(1, size) for size in sizes)
        self._workers = workers
        self._rates = rates
        # With each report most are asked for again.
        self._cost = functools.lru_cache(_MOST_COSTS)(self._predictions)
        self._search = RatioSearch() if ratios else None
        self._ratios = tuple(ratios)
        self._gains = {}
        self._ratio = ratios[len(ratios) // 2] if ratios else None
        self._steps = collections.defaultdict(lambda: collections.deque(maxlen=_LAST_STEPS))
        self._finalists = None  # the plans that are measured longer, once all have been measured
        self._slow = set()  # the plans that were measured when the program began
        self._measured_steps = 0
        self._steady = None  # the links, which have not changed by much since
        self._steady_steps = 0  # so many
        self._seen = None  # the network at the last steps
        self._network = None  # for which steps were measured
        self._kept = None  # the plan of before the last change, to see what its steps take now
        self._seems_changed = False  # by the last report, while plans are tried
        self._tried_steps = self._tried_seconds = self._settled_steps = 0
        self._trial_steps = collections.Counter()  # since the last change, after a plan was chosen
        self._tried_at = {}  # by plan: which of these its last ones were
        self._steps_of_plan = 0  # since it was settled on
        self._steps_to_keep = 0  # so many there are at least, if it has taken the place of another
        self._own_steps = 0  # of these, in the last report
        self._settled = {}  # by plan: what its steps took when it was chosen
        self._settled_plan = None  # the last one that was chosen
        self._trial = None  # after which it has settled
        self._trials = collections.deque(maxlen=_MOST_TRIALS)  # of earlier networks
        self._unended_trials = collections.deque(maxlen=_MOST_TRIALS)  # those that did not end
        self._is_recalled = False  # it is an earlier one, and the first steps are to confirm it
        self.is_settled = False
        self.steps_since_change = 0
        self.plan = None
        self.why = ""

    def update(
        self,
        network: Network,
        seconds: Sequence[float] = (),
        gains: Sequence[float] | None = None,
        used: Plan | None = None,
    ) -> Plan:
        """Returns the plan of the next steps.

        Args:
          network: the links, as measured; without steps, those of the last steps count.
          seconds: what steps have taken.
          gains: of each ratio, the compression gain of the present gradients, if it was measured.
          used: the plan that these steps had; by default what the last call has returned.
        """
        used = used or self.plan
        was_settled = self.is_settled
        is_trial = not was_settled and self._trial is not None
        if used is not None and len(seconds):
            self._take(seconds, used)
            self._steady_steps += len(seconds)
            if self._steady is None or self._differs(network, seconds, used):
                self._steady, self._steady_steps = network, 0
            # Steps that are shorter than predicted speak for the plan that is tried, not for links.
            if not is_trial or self._seen is None:
                self._seen = self._as_seen(network, seconds, used)
        # Without steps to correct it, as after each change of plan, it may seem another one.
        network = self._seen or network
        self.steps_since_change += len(seconds)
        if was_settled:
            self._own_steps = len(seconds) if used == self.plan else 0
            self._settled_steps += self._own_steps
            self._steps_of_plan += self._own_steps
            self._remember_shorter()
        else:
            self._tried_steps += len(seconds)
            self._tried_seconds += sum(seconds)
            self._tried_at[used] = self._tried_steps
            self._own_steps = 0
            if is_trial and (used == self.plan or used in self._trial_steps):
                self._trial_steps[used] += len(seconds)
        recalled = None
        if self._begins_anew(network, used if len(seconds) else None):
            recalled = self._begin_anew(network, used)
        elif self._settled_steps >= _FIRST_STEPS:
            self._is_recalled = False
        if gains is not None and self._search is not None:
            self._gains = dict(zip(self._ratios, gains, strict=True))
        if self._gains:
            of_ratios = self._seconds_of_ratios(self._network)
            self._ratio = self._search.update(self._network, self._gains, of_ratios)
        predicted = self._predict(network)
        plan = recalled or self._best_of(network, predicted)
        if plan != self.plan or (self.is_settled and not was_settled):
            self._steps_of_plan = 0
            self.plan = plan
            self.why = self._explain(network, predicted)
        if self.is_settled:
            self._settled.setdefault(self.plan, self.measured()[self.plan])
            self._settled_plan = self.plan
            if self._has_ended_trial():
                self._trial = self._ended_trial(network)
        return self.plan

    def _has_ended_trial(self):
        """Whether there is a trial to remember, whose last steps have not met a change."""
        if self._trial is None or self._trial.has_other_ratio(self.plan):
            return True
        has_kept_to_it = self._steps_of_plan - self._own_steps >= _FIRST_STEPS
        return has_kept_to_it and self._trial.tried_steps != self._tried_steps

    def _take(self, seconds, used):
        if used in self._slow and used in (self._finalists or ()):
            self._slow.remove(used)
            self._steps[used].clear()
        elif self._measured_steps < _SLOW_STEPS:
            self._slow.add(used)
        self._steps[used].extend(seconds[max(0, _WARM_UP_STEPS - self._measured_steps) :])
        self._measured_steps += len(seconds)

    def measured(self) -> dict[Plan, float]:
        """Returns the median seconds of the steps of each plan that was tried."""
        return {plan: statistics.median(steps) for plan, steps in self._steps.items() if steps}

    @property
    def wants_links(self) -> bool:
        """Whether the next plan depends on what links are now: they should be known soon."""
        if self._steady_steps < _STEADY_STEPS:
            return True
        if not self.is_settled:  # what links seem to be does not count while a later plan is tried
            return self._trial is None
        return _times(self._took(), self._settled[self.plan]) > _SMALL_CHANGE

    @property
    def gain(self) -> float | None:
        """The compression gain of the plan's ratio, where it is known."""
        return self._gains.get(self.plan.ratio)

    def describe(self, plan: Plan) -> str:
        """Returns a plan in words: how many values each system has."""
        values = collections.Counter()
        for choice, size in zip(plan.choices, self._sizes, strict=True):
            values[choice] += size
        return ", ".join(self._describe(c, plan, values) for c, _ in values.most_common())

    def _describe(self, choice, plan, values):
        system = self._systems[choice]
        ratio = f" at {plan.ratio:g}" if system.has_ratio else ""
        share = f" for {values[choice] / sum(values.values()):.0%}" if len(values) > 1 else ""
        return f"{system}{ratio}{share}"

    def _as_seen(self, network, seconds, used):
        """Returns the network with links that are at least as fast as these steps need.

        Where latency is long, TCP takes some round trips for the bytes of a short message, and
        their bandwidth is that of no long one. On a busy machine, a short message takes long.
        """
        costs = self._chosen(network, used.choices)
        transfer = sum(cost.transfer for cost in costs)
        latency = max(cost.latency for cost in costs)
        step = min(seconds)
        most = max(step - latency, _LEAST_TRANSFER * step)  # that its bytes can have taken
        return dataclasses.replace(
            network,
            bandwidth=network.bandwidth * max(1.0, transfer / most),
            latency=network.latency / max(1.0, latency / step),
        )

    def _differs(self, network, seconds, used):
        """Whether a step should take another time now than with the links as they were."""
        lag = self._lag(self._steady, used, network)
        return abs(lag) > (_SMALL_CHANGE - 1) * statistics.median(seconds)

    def _chosen(self, network, choices):
        """Returns a `Prediction` of each bucket."""
        return [
            self._costs(network, size)[choice]
            for size, choice in zip(self._sizes, choices, strict=True)
        ]

    def _begins_anew(self, network, used):
        """Whether what was measured before says so little about now that all is tried again.

        Args:
          network: the links.
          used: the plan of the last steps, if there were any.
        """
        if self._network is None:
            return True
        if not self.is_settled:
            if used is None:
                return False
            if self._steps_have_changed(used):
                return True
            # One report alone may tell of messages that have waited for a busy machine.
            seemed_changed = self._seems_changed
            self._seems_changed = self._expected_change(network) > _SMALL_CHANGE
            return seemed_changed and self._seems_changed
        self._seems_changed = False
        if self._is_recalled:
            # It was another network after all, or the machine is another one.
            is_known = self._steps_of_plan >= _RECENT_STEPS
            return is_known and _times(self._took(), self._settled[self.plan]) > _SMALL_CHANGE
        change = self._change(network)
        tried = min(self._tried_steps, self._tried_seconds / self._took())
        return any(
            change > least and self._settled_steps >= min(steps * tried, most)
            for least, steps, most in _CHANGES
        )

    def _steps_have_changed(self, plan):
        """Whether a plan that is being tried takes steps of another length now."""
        steps = list(self._steps[plan])
        before, recent = steps[:-_RECENT_STEPS], steps[-_RECENT_STEPS:]
        if len(before) < _RECENT_STEPS:
            return False
        before = statistics.median(before)
        return min(recent) > _LARGE_CHANGE * before or max(recent) < before / _LARGE_CHANGE

    def _begin_anew(self, network, used):
        """Forgets what was measured, or takes what was measured on such a network before.

        Returns:
          The plan of that time, or None.
        """
        expected = self._expected_change(network)
        earlier = self._earlier_trial(network if expected > _SMALL_CHANGE else None, used)
        if earlier is not None:
            self._trials.remove(earlier)
        self._remember_trial(used)
        kept = self.plan if self.is_settled or self._trial is None else self._settled_plan
        self._kept = kept if self._saves_little(network, used, kept) else None
        self.steps_since_change = self._steady_steps = self._steps_to_keep = 0
        self._trial_steps.clear()
        self._seems_changed = False
        self._slow.clear()
        self._settled = {}
        self._settled_steps = 0
        self._trial = earlier
        self._steps.clear()
        self._finalists = None if earlier is None else ()
        self.is_settled = self._is_recalled = earlier is not None
        if earlier is None:
            self._network = network
            self._tried_steps = self._tried_seconds = 0
            self._tried_at.clear()
            return None
        self._network = earlier.network
        self._steps_of_plan = 0
        self._tried_steps, self._tried_seconds = earlier.tried_steps, earlier.tried_seconds
        for plan, steps in earlier.steps.items():
            self._steps[plan].extend(steps)
        return earlier.plan

    def _saves_little(self, network, used, kept):
        """Whether no plan is predicted to make steps much shorter than those of the kept one."""
        if kept is None or not self._steps[used]:
            return False
        recent = list(self._steps[used])[-_RECENT_STEPS:]
        predicted = self._predict(network)
        saving = predicted[self._plan(kept.choices)] - min(predicted.values())
        return saving < (1 - 1 / _LARGE_CHANGE) * statistics.median(recent)

    def _ended_trial(self, network):
        steps = {plan: tuple(steps) for plan, steps in self._steps.items() if steps}
        return _Trial(network, self.plan, steps, self._tried_steps, self._tried_seconds)

    def _remember_trial(self, used):
        """Keeps what was measured, when all begins anew.

        Where plans were still tried, or the chosen one has not kept to what was measured, the
        network has changed meanwhile, and the last steps may be of the next one.
        """
        if self._network is None:
            return
        if self._is_recalled:  # and the plan is not what it was
            self._unended_trials.append(dataclasses.replace(self._trial, plan=None))
            return
        if self._trial is not None and self._settled_steps - self._own_steps >= _FIRST_STEPS:
            self._trials.append(self._trial)
            return
        trial = self._ended_trial(self._network)
        steps = {
            plan: of_plan
            for plan, of_plan in trial.steps.items()
            if self._tried_steps - self._tried_at.get(plan, 0) >= _DOUBTFUL_STEPS
        }
        if before := trial.steps.get(used, ())[:-_RECENT_STEPS]:
            steps[used] = before
        if len(steps) > 1:
            self._unended_trials.append(dataclasses.replace(trial, plan=None, steps=steps))

    def _earlier_trial(self, network, used):
        """Returns the last one of which steps, now or on this network, should take what they did.

        Without a network, only recent steps tell, of the plan that was used.
        """
        recent = list(self._steps[used])[-_RECENT_STEPS:]
        if network is None and not recent:
            return None
        for trial in reversed(self._trials):
            if network is None:
                plan, seconds = used, statistics.median(recent)
            else:
                plan = trial.plan
                seconds = trial.seconds(plan) + self._lag(trial.network, plan, network)
            before = trial.seconds(plan)
            if before is not None and _times(before, seconds) <= _SMALL_CHANGE:
                return trial
        return None

    def _lag(self, before, plan, network):
        """Returns how much longer a plan's exchanges should be than on the network of before."""
        then, now = (
            _seconds([self._costs(n, size, plan.ratio) for size in self._sizes], plan.choices)
            for n in (before, network)
        )
        return now - then

    def _expected_of_trials(self, plan, best, network, seconds):
        """Returns what a plan's steps should take here at least, by trials on other networks.

        Returns:
          None where no trial has measured both, or explains what the best one takes here.
        """
        expected = [
            self._expected(trial, plan, best, network, seconds)
            for trial in (*self._trials, *self._unended_trials)
            if plan in trial.steps
            and best in trial.steps
            # Else the machine is another one, too.
            and _times(self._expected(trial, best, best, network, seconds), seconds)
            <= _SMALL_CHANGE
        ]
        return min(expected, default=None)

    def _expected(self, trial, plan, best, network, seconds):
        """Returns what a plan's steps should take here, where those of the best take `seconds`.

        What the links add to them is as many times the prediction as it is of the best plan.
        """
        before, lag = trial.seconds(best), self._lag(trial.network, best, network)
        times = 1.0
        if abs(lag) > (_SMALL_CHANGE - 1) * before:
            times = min(max((seconds - before) / lag, 1 / _WRONG), _WRONG)
        return trial.seconds(plan) + times * self._lag(trial.network, plan, network)

    def _remember_shorter(self):
        """Keeps what the first steps of a plan take, if they are shorter than when it was tried.

        Fewer of them wait for a report.
        """
        if 0 < self._steps_of_plan <= _LAST_STEPS:
            first = list(self._steps[self.plan])[-self._steps_of_plan :]
            self._settled[self.plan] = min(self._settled[self.plan], statistics.median(first))

    def _change(self, network):
        """Returns how many times longer or shorter steps are, or should be, than when measured."""
        step, took = self._settled[self.plan], self._took()
        then, now = self._predict(self._network), self._predict(network)
        plan = self._plan(self.plan.choices)
        expected = step + now[plan] - then[plan]
        if self.plan == self._trial.plan and _times(expected, took) > _SMALL_CHANGE:
            # Which refutes what links seem to be, unless it was not measured before they changed.
            return max(_times(took, step), min(_times(expected, took), _LARGE_CHANGE))
        best = step + min(now.values()) - min(then.values())
        return max(_times(other, step) for other in (expected, best, took))

    def _took(self):
        """Returns what steps take now, if all that are recent have changed.

        A pause, as for evaluation, makes one step long.
        """
        recent = list(self._steps[self.plan])[-_RECENT_STEPS:]
        return statistics.median((min(recent), self._settled[self.plan], max(recent)))

    def _expected_change(self, network):
        """Returns how many times longer or shorter the best plan's steps should be now."""
        if not (measured := self.measured()):
            return 1.0
        step = min(measured.values())
        then, now = (min(self._predict(n).values()) for n in (self._network, network))
        return _times(step + now - then, step)

    def _predict(self, network):
        """Returns the predicted seconds of the exchanges of each plan that may be worth it."""
        costs = [self._costs(network, size) for size in self._sizes]
        families = collections.defaultdict(list)
        for index, system in enumerate(self._systems):
            families[system.name, system.arguments].append(index)
        exact = families.get(("uncompressed", ""), [])
        choices = {
            tuple(min(indices, key=lambda i: of_bucket[i].seconds) for of_bucket in costs)
            for family in families.values()
            for indices in (family, [*family, *exact])
        }
        for indices in families.values():
            alike = [(index,) * len(costs) for index in indices]
            seconds = {c: _seconds(costs, c) for c in alike}
            choices |= {c for c in alike if seconds[c] <= _SIMILAR * min(seconds.values())}
        measured = [plan for plan, steps in self._steps.items() if steps]
        known = (*measured, self.plan, self._settled_plan)
        choices |= {plan.choices for plan in known if plan is not None}
        return {self._plan(c): _seconds(costs, c) for c in choices}

    def _plan(self, choices):
        has_ratio = any(self._systems[choice].has_ratio for choice in choices)
        return Plan(choices, self._ratio if has_ratio else None)

    def _costs(self, network, size, ratio=None):
        """Returns a `Prediction` of each system for a bucket; by default at the present ratio."""
        ratio = ratio or self._ratio
        known = {(c.system, c.collective): c for c in self._cost(network, size, ratio)}
        # One that the model does not know may be the fastest.
        best = min(known.values(), key=lambda cost: cost.seconds)
        return [known.get((system.name, system.collective), best) for system in self._systems]

    def _predictions(self, network, size, ratio):
        ratio = ratio or 1.0
        computation = self._rates and seconds_per_value(self._rates, self._workers, ratio)
        return predict(network, size, self._workers, ratio, computation)

    def _seconds_of_ratios(self, network):
        """Returns, by ratio, what compression and what communication take of all values."""
        with_ratio = {
            (system.name, system.collective) for system in self._systems if system.has_ratio
        }
        seconds = {}
        for ratio in self._ratios:
            costs = self._cost(network, sum(self._sizes), ratio)
            own = [cost for cost in costs if (cost.system, cost.collective) in with_ratio]
            best = min(own, key=lambda cost: cost.seconds)
            seconds[ratio] = (best.computation, best.latency + best.transfer)
        return seconds

    def _best_of(self, network, predicted):
        """Returns the plan that the next steps should measure, or, at the end, the best one."""
        medians = {plan: median for plan, median in self.measured().items() if plan in predicted}
        was_settled, self.is_settled = self.is_settled, False
        if not medians:
            kept = self.plan if self.measured() else self._kept
            return self._plan(kept.choices) if kept else min(predicted, key=predicted.get)
        best = min(medians, key=medians.get)
        own = self._plan(self.plan.choices)  # perhaps with another ratio
        if not self._is_measured(own, medians, best):
            return own
        worth_trying = self._worth_trying(network, predicted, medians, best)
        if worth_trying:
            plan = min(worth_trying, key=worth_trying.get)
            if self._can_afford(worth_trying[plan], medians, best):
                self._finalists = None
                return plan
        if self._finalists is None:
            times = {plan: _CLOSE_AT_FIRST if plan in self._slow else _CLOSE for plan in medians}
            close = [plan for plan in medians if medians[plan] <= times[plan] * medians[best]]
            self._finalists = sorted(close, key=predicted.get) if len(close) > 1 else ()
        for plan in self._finalists:
            if plan not in medians or self._is_measured_longer(plan, medians, best):
                continue
            if plan in (best, own) or self._can_afford(medians[plan], medians, best):
                return plan
        self.is_settled = True
        if was_settled and self._steps_of_plan < self._steps_to_keep:
            return own
        lag = {plan: median - medians[best] for plan, median in medians.items()}
        error = {plan: self._error(plan, best) for plan in medians}
        least, most = ((times - 1) * medians[best] for times in (_EQUAL, _EQUAL_IN_NOISE))
        equal = [p for p in medians if lag[p] <= min(max(least, error[p]), most)]
        plan = min(equal, key=lambda plan: (self._loss(plan), medians[plan]))
        if was_settled and plan != own:
            self._steps_to_keep = min(max(2 * self._steps_to_keep, _LEAST_KEPT), _MOST_KEPT)
        return plan

    def _worth_trying(self, network, predicted, medians, best):
        """Returns what steps should take of the plans that may be better than the best one."""
        limit = max(predicted[best] + _DOUBT * medians[best], _CHEAP_SECONDS / _FIRST_STEPS)
        worth_trying = {}
        for plan in predicted:
            enough = len(self._steps[plan]) >= _FEW_STEPS  # fewer may have been on their way
            if plan in medians and (enough or self._is_measured(plan, medians, best)):
                continue
            expected = self._expected_of_trials(plan, best, network, medians[best])
            if expected is None and predicted[plan] <= limit:
                worth_trying[plan] = medians[best] + predicted[plan] - predicted[best]
            elif expected is not None and expected <= _NEAR * medians[best]:
                worth_trying[plan] = expected
        return worth_trying

    def _can_afford(self, seconds, medians, best):
        """Whether a trial of a plan whose steps take so long costs no more than trials may."""
        trials = [(self._trial_steps[p], medians[p]) for p in medians if p in self._trial_steps]
        trials.append((_FIRST_STEPS if seconds > medians[best] else _FINAL_STEPS, seconds))
        cost = sum(_SWITCHING + steps * (s / medians[best] - 1) for steps, s in trials)
        return cost <= _PART_OF_TRIALS * self.steps_since_change

    def _error(self, plan, other):
        """Returns the standard error of the difference of two medians; 0 of too few steps."""
        steps = self._steps[plan], self._steps[other]
        if min(map(len, steps)) < _FIRST_STEPS:
            return 0.0
        return math.hypot(*map(_standard_error, steps))

    def _is_measured(self, plan, medians, best):
        steps = self._steps[plan]
        # The lower one of two, as the other may be a pause, as for evaluation.
        limit = _HOPELESS * medians[best]
        is_hopeless = len(steps) >= 2 and statistics.median_low(steps) > limit
        return len(steps) >= _FIRST_STEPS or is_hopeless or self._is_behind(plan, medians, best)

    def _is_measured_longer(self, plan, medians, best):
        enough = len(self._steps[plan]) >= _FINAL_STEPS or self._is_behind(plan, medians, best)
        return enough and plan not in self._slow

    def _is_behind(self, plan, medians, best):
        steps = self._steps[plan]
        return len(steps) >= _FEW_STEPS and min(steps) > _BEHIND * medians[best]

    def _loss(self, plan):
        return sum(
            self._systems[choice].loss * size
            for choice, size in zip(plan.choices, self._sizes, strict=True)
        )

    def _explain(self, network, predicted):
        """Returns in words what the plan is, and what speaks for it."""
        measured = [
            f"{self.describe(p)} {1e3 * seconds:.3g} ms" for p, seconds in self.measured().items()
        ]
        expected = [
            f"{self.describe(p)} {1e3 * seconds:.3g} ms"
            for p, seconds in sorted(predicted.items(), key=lambda item: item[1])
        ]
        return (
            f"{self.describe(self.plan)}; links of {network.bandwidth / 1e6:.3g} Mbit/s and "
            f"{1e3 * network.latency:.3g} ms; predicted exchanges: {', '.join(expected)}; "
            f"measured steps: {', '.join(measured) or 'none yet'}"
        )


def _seconds(costs, choices):
    """Returns what the exchanges of all buckets take, which share a link, and wait side by side."""
    chosen = [of_bucket[choice] for of_bucket, choice in zip(costs, choices, strict=True)]
    return sum(c.transfer + c.computation for c in chosen) + max(c.latency for c in chosen)


def _standard_error(seconds):
    """Returns that of the median."""
    median = statistics.median(seconds)
    deviation = statistics.median(abs(s - median) for s in seconds)
    return _ERROR * deviation / math.sqrt(len(seconds))


def _times(a, b):
    """Returns how many times one is the other, infinity where one of them is nothing."""
    return max(a / b, b / a) if a > 0 and b > 0 else math.inf
