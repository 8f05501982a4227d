"""Which plan the next steps should have: predicted, then measured in steps that train."""

import collections
import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from tf_gc.adaptive.cost_model import Network
from tf_gc.adaptive.measured_steps import (
    FINAL_STEPS,
    FIRST_STEPS,
    LARGE_CHANGE,
    LAST_STEPS,
    RECENT_STEPS,
    SMALL_CHANGE,
    MeasuredSteps,
    times,
)
from tf_gc.adaptive.plans import Plan, Plans, System
from tf_gc.adaptive.ratio_search import RatioSearch
from tf_gc.adaptive.trials import Trial, Trials

# Plans whose steps take no more than so many times the best one's are measured longer.
_CLOSE, _CLOSE_AT_FIRST = 1.1, 1.35
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
# times as long as the best plan's, going by what both took there.
_NEAR = 1.1
# Bytes may have taken such a part of a step, though latency seems to be all of it.
_LEAST_TRANSFER = 0.1
# Of two plans that differ by less, or by no more than the standard error of what was measured and
# less than the second factor, the more faithful one is taken.
_EQUAL, _EQUAL_IN_NOISE = 1.03, 1.05
# After a first change between measured plans each is kept for so many of its steps at least, and
# after each further change for twice as many: else noise would have them alternate for ever.
_LEAST_KEPT, _MOST_KEPT = 16, 1024
# The network, or the machine, is another one when steps take so many times as long, or as short,
# after so many settled steps for one that was spent on trying, and at most so many in all: a
# machine that others use changes all the time, and what changes everything is worth a try at once.
# Where steps are longer now, as many count as fill the time that trying took.
_CHANGES = ((SMALL_CHANGE, 20, math.inf), (LARGE_CHANGE, 1, RECENT_STEPS))
# What links seem to be is what they are where it has not changed for so many steps.
_STEADY_STEPS = 8
# So many of the last tried steps may be of another network than those before, if it has changed.
_DOUBTFUL_STEPS = 12


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
        ratio = ratios[len(ratios) // 2] if ratios else None
        self._plans = Plans(systems, sizes, workers, ratio, rates)
        self._search = RatioSearch() if ratios else None
        self._ratios = tuple(ratios)
        self._gains = {}
        self._links = _Links(self._plans)
        self._steps = MeasuredSteps()
        self._finalists = None  # the plans that are measured longer, once all have been measured
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
        self._trials = Trials(self._plans)
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
            self._steps.add(used, seconds, counts_anew=used in (self._finalists or ()))
            self._links.see(network, seconds, used, is_trial)
        # Without steps to correct it, as after each change of plan, it may seem another one.
        network = self._links.seen or network
        self._count(seconds, used, is_trial)
        recalled = None
        if self._begins_anew(network, used if len(seconds) else None):
            recalled = self._begin_anew(network, used)
        elif self._settled_steps >= FIRST_STEPS:
            self._is_recalled = False
        self._find_ratio(gains)
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

    def measured(self) -> dict[Plan, float]:
        """Returns the median seconds of the steps of each plan that was tried."""
        return self._steps.medians()

    @property
    def wants_links(self) -> bool:
        """Whether the next plan depends on what links are now: they should be known soon."""
        if self._links.steady_steps < _STEADY_STEPS:
            return True
        if not self.is_settled:  # what links seem to be does not count while a later plan is tried
            return self._trial is None
        return times(self._took(), self._settled[self.plan]) > SMALL_CHANGE

    @property
    def gain(self) -> float | None:
        """The compression gain of the plan's ratio, where it is known."""
        return self._gains.get(self.plan.ratio)

    def _count(self, seconds, used, is_trial):
        """Counts steps, which plans that are tried have, or the one that was settled on."""
        self.steps_since_change += len(seconds)
        if self.is_settled:
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

    def _remember_shorter(self):
        """Keeps what the first steps of a plan take, if they are shorter than when it was tried.

        Fewer of them wait for a report.
        """
        if 0 < self._steps_of_plan <= LAST_STEPS:
            first = self._steps.last(self.plan, self._steps_of_plan)
            self._settled[self.plan] = min(self._settled[self.plan], statistics.median(first))

    def _find_ratio(self, gains):
        if gains is not None and self._search is not None:
            self._gains = dict(zip(self._ratios, gains, strict=True))
        if self._gains:
            of_ratios = self._plans.seconds_of_ratios(self._network, self._ratios)
            self._plans.ratio = self._search.update(self._network, self._gains, of_ratios)

    def _predict(self, network):
        """Returns the predicted seconds of the exchanges of each plan that may be worth it."""
        return self._plans.predict(network, (*self.measured(), self.plan, self._settled_plan))

    def _with_present_ratio(self, plan):
        return self._plans.make(plan.choices)

    # Whether all begins anew.

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
            if self._steps.have_changed(used):
                return True
            # One report alone may tell of messages that have waited for a busy machine.
            seemed_changed = self._seems_changed
            self._seems_changed = self._expected_change(network) > SMALL_CHANGE
            return seemed_changed and self._seems_changed
        self._seems_changed = False
        if self._is_recalled:
            # It was another network after all, or the machine is another one.
            is_known = self._steps_of_plan >= RECENT_STEPS
            return is_known and times(self._took(), self._settled[self.plan]) > SMALL_CHANGE
        change = self._change(network)
        tried = min(self._tried_steps, self._tried_seconds / self._took())
        return any(
            change > least and self._settled_steps >= min(steps * tried, most)
            for least, steps, most in _CHANGES
        )

    def _change(self, network):
        """Returns how many times longer or shorter steps are, or should be, than when measured."""
        step, took = self._settled[self.plan], self._took()
        then, now = self._predict(self._network), self._predict(network)
        plan = self._with_present_ratio(self.plan)
        expected = step + now[plan] - then[plan]
        if self.plan == self._trial.plan and times(expected, took) > SMALL_CHANGE:
            # Which refutes what links seem to be, unless it was not measured before they changed.
            return max(times(took, step), min(times(expected, took), LARGE_CHANGE))
        best = step + min(now.values()) - min(then.values())
        return max(times(other, step) for other in (expected, best, took))

    def _took(self):
        """Returns what steps take now, if all that are recent have changed.

        A pause, as for evaluation, makes one step long.
        """
        recent = self._steps.last(self.plan)
        return statistics.median((min(recent), self._settled[self.plan], max(recent)))

    def _expected_change(self, network):
        """Returns how many times longer or shorter the best plan's steps should be now."""
        if not (measured := self.measured()):
            return 1.0
        step = min(measured.values())
        then, now = (min(self._predict(n).values()) for n in (self._network, network))
        return times(step + now - then, step)

    def _begin_anew(self, network, used):
        """Forgets what was measured, or takes what was measured on such a network before.

        Returns:
          The plan of that time, or None.
        """
        expected = self._expected_change(network)
        recent = self._steps.last(used)
        earlier = self._trials.take(network if expected > SMALL_CHANGE else None, used, recent)
        self._remember_trial(used)
        kept = self.plan if self.is_settled or self._trial is None else self._settled_plan
        self._kept = kept if self._saves_little(network, recent, kept) else None
        self.steps_since_change = self._links.steady_steps = self._steps_to_keep = 0
        self._trial_steps.clear()
        self._seems_changed = False
        self._settled = {}
        self._settled_steps = 0
        self._trial = earlier
        self._steps.begin_anew({} if earlier is None else earlier.steps)
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
        return earlier.plan

    def _saves_little(self, network, recent, kept):
        """Whether no plan is predicted to make steps much shorter than those of the kept one."""
        if kept is None or not recent:
            return False
        predicted = self._predict(network)
        saving = predicted[self._with_present_ratio(kept)] - min(predicted.values())
        return saving < (1 - 1 / LARGE_CHANGE) * statistics.median(recent)

    # What is remembered of a network.

    def _has_ended_trial(self):
        """Whether there is a trial to remember, whose last steps have not met a change."""
        if self._trial is None or self._trial.has_other_ratio(self.plan):
            return True
        has_kept_to_it = self._steps_of_plan - self._own_steps >= FIRST_STEPS
        return has_kept_to_it and self._trial.tried_steps != self._tried_steps

    def _ended_trial(self, network):
        steps = self._steps.all()
        return Trial(network, self.plan, steps, self._tried_steps, self._tried_seconds)

    def _remember_trial(self, used):
        """Keeps what was measured, when all begins anew.

        Where plans were still tried, or the chosen one has not kept to what was measured, the
        network has changed meanwhile, and the last steps may be of the next one.
        """
        if self._network is None:
            return
        if self._is_recalled:  # and the plan is not what it was
            self._trials.add(dataclasses.replace(self._trial, plan=None))
            return
        if self._trial is not None and self._settled_steps - self._own_steps >= FIRST_STEPS:
            self._trials.add(self._trial)
            return
        trial = self._ended_trial(self._network)
        steps = {
            plan: of_plan
            for plan, of_plan in trial.steps.items()
            if self._tried_steps - self._tried_at.get(plan, 0) >= _DOUBTFUL_STEPS
        }
        if before := trial.steps.get(used, ())[:-RECENT_STEPS]:
            steps[used] = before
        if len(steps) > 1:
            self._trials.add(dataclasses.replace(trial, plan=None, steps=steps))

    # Which plan is next.

    def _best_of(self, network, predicted):
        """Returns the plan that the next steps should measure, or, at the end, the best one."""
        medians = {plan: median for plan, median in self.measured().items() if plan in predicted}
        was_settled, self.is_settled = self.is_settled, False
        if not medians:
            kept = self.plan if self.measured() else self._kept
            return self._with_present_ratio(kept) if kept else min(predicted, key=predicted.get)
        best = min(medians, key=medians.get)
        own = self._with_present_ratio(self.plan)
        if not self._steps.is_measured(own, medians[best]):
            return own
        plan = self._plan_to_try(network, predicted, medians, best)
        if plan is not None:
            self._finalists = None
            return plan
        plan = self._plan_to_measure_longer(predicted, medians, best)
        if plan is not None:
            return plan
        self.is_settled = True
        if was_settled and self._steps_of_plan < self._steps_to_keep:
            return own
        plan = self._most_faithful(medians, best)
        if was_settled and plan != own:
            self._steps_to_keep = min(max(2 * self._steps_to_keep, _LEAST_KEPT), _MOST_KEPT)
        return plan

    def _plan_to_try(self, network, predicted, medians, best):
        """Returns the plan that is most worth a trial, or None if none is, or not yet."""
        worth_trying = self._worth_trying(network, predicted, medians, best)
        plan = min(worth_trying, key=worth_trying.get, default=None)
        if plan is None or not self._can_afford(worth_trying[plan], medians, best):
            return None
        return plan

    def _worth_trying(self, network, predicted, medians, best):
        """Returns what steps should take of the plans that may be better than the best one."""
        limit = max(predicted[best] + _DOUBT * medians[best], _CHEAP_SECONDS / FIRST_STEPS)
        worth_trying = {}
        for plan in predicted:
            is_known = not self._steps.has_few(plan) or self._steps.is_measured(plan, medians[best])
            if plan in medians and is_known:
                continue
            expected = self._trials.expected(plan, best, network, medians[best])
            if expected is None and predicted[plan] <= limit:
                worth_trying[plan] = medians[best] + predicted[plan] - predicted[best]
            elif expected is not None and expected <= _NEAR * medians[best]:
                worth_trying[plan] = expected
        return worth_trying

    def _can_afford(self, seconds, medians, best):
        """Whether a trial of a plan whose steps take so long costs no more than trials may."""
        trials = [(self._trial_steps[p], medians[p]) for p in medians if p in self._trial_steps]
        trials.append((FIRST_STEPS if seconds > medians[best] else FINAL_STEPS, seconds))
        cost = sum(_SWITCHING + steps * (s / medians[best] - 1) for steps, s in trials)
        return cost <= _PART_OF_TRIALS * self.steps_since_change

    def _plan_to_measure_longer(self, predicted, medians, best):
        """Returns a plan that is close to the best one, and has not had enough steps; or None."""
        if self._finalists is None:
            closeness = {p: _CLOSE_AT_FIRST if self._steps.is_early(p) else _CLOSE for p in medians}
            close = [p for p in medians if medians[p] <= closeness[p] * medians[best]]
            self._finalists = sorted(close, key=predicted.get) if len(close) > 1 else ()
        own = self._with_present_ratio(self.plan)
        for plan in self._finalists:
            if plan not in medians or self._steps.is_measured_longer(plan, medians[best]):
                continue
            if plan in (best, own) or self._can_afford(medians[plan], medians, best):
                return plan
        return None

    def _most_faithful(self, medians, best):
        """Returns the one of least loss of those that may be as fast as the best one."""
        lag = {plan: median - medians[best] for plan, median in medians.items()}
        error = {plan: self._steps.error(plan, best) for plan in medians}
        least, most = ((factor - 1) * medians[best] for factor in (_EQUAL, _EQUAL_IN_NOISE))
        equal = [p for p in medians if lag[p] <= min(max(least, error[p]), most)]
        return min(equal, key=lambda plan: (self._plans.loss(plan), medians[plan]))

    def _explain(self, network, predicted):
        """Returns in words what the plan is, and what speaks for it."""

        def in_words(seconds):
            plans = (f"{self._plans.describe(p)} {1e3 * s:.3g} ms" for p, s in seconds.items())
            return ", ".join(plans)

        expected = dict(sorted(predicted.items(), key=lambda item: item[1]))
        return (
            f"{self._plans.describe(self.plan)}; links of {network.bandwidth / 1e6:.3g} Mbit/s and "
            f"{1e3 * network.latency:.3g} ms; predicted exchanges: {in_words(expected)}; "
            f"measured steps: {in_words(self.measured()) or 'none yet'}"
        )


class _Links:
    """The links as steps show them.

    Attributes:
      seen: the network at the last steps; None before the first.
      steady_steps: for so many steps it has not changed by much.
    """

    def __init__(self, plans):
        self._plans = plans
        self._steady = None  # the network that it was then
        self.seen = None
        self.steady_steps = 0

    def see(self, network, seconds, used, is_trial):
        """Takes what links seem to be, and the steps that have measured them."""
        self.steady_steps += len(seconds)
        if self._steady is None or self._differs(network, seconds, used):
            self._steady, self.steady_steps = network, 0
        # Steps that are shorter than predicted speak for the plan that is tried, not for links.
        if not is_trial or self.seen is None:
            self.seen = self._as_seen(network, seconds, used)

    def _differs(self, network, seconds, used):
        """Whether a step should take another time now than with the links as they were."""
        lag = self._plans.lag(self._steady, network, used)
        return abs(lag) > (SMALL_CHANGE - 1) * statistics.median(seconds)

    def _as_seen(self, network, seconds, used):
        """Returns the network with links that are at least as fast as these steps need.

        Where latency is long, TCP takes some round trips for the bytes of a short message, and
        their bandwidth is that of no long one. On a busy machine, a short message takes long.
        """
        exchanges = self._plans.exchanges(network, used)
        transfer = sum(exchange.transfer for exchange in exchanges)
        latency = max(exchange.latency for exchange in exchanges)
        step = min(seconds)
        most = max(step - latency, _LEAST_TRANSFER * step)  # that its bytes can have taken
        return dataclasses.replace(
            network,
            bandwidth=network.bandwidth * max(1.0, transfer / most),
            latency=network.latency / max(1.0, latency / step),
        )
