"""The plans that steps may have, and what the cost model predicts of them."""

import collections
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

from tf_gc.adaptive.computation import seconds_per_value
from tf_gc.adaptive.cost_model import Network, Prediction, predict

# Of the collectives of a system those are worth a try that the model takes for so close to the best
# one: it knows of no work that a message makes.
_SIMILAR = 1.25
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


class Plans:
    """Makes plans for the buckets of a model, and predicts what their exchanges take.

    Attributes:
      ratio: what systems with a ratio send in the plans that are made; None without any.
    """

    def __init__(
        self,
        systems: Sequence[System],
        sizes: Sequence[int],
        workers: int,
        ratio: float | None = None,
        rates: Mapping[str, float] | None = None,
    ):
        """The arguments are those of `Chooser`."""
        self.ratio = ratio
        self._systems = tuple(systems)
        self._sizes = tuple(max(1, size) for size in sizes)
        self._workers = workers
        self._rates = rates
        # With each report most are asked for again.
        self._known_costs = functools.lru_cache(_MOST_COSTS)(self._costs_of_size)

    def make(self, choices: tuple[int, ...]) -> Plan:
        """Returns the plan with these choices and the present ratio."""
        has_ratio = any(self._systems[choice].has_ratio for choice in choices)
        return Plan(choices, self.ratio if has_ratio else None)

    def predict(self, network: Network, known: Iterable[Plan | None] = ()) -> dict[Plan, float]:
        """Returns the seconds of the exchanges of each plan that may be worth it.

        For each system that is one in which all buckets have it, by its best collective or another
        one that is close, and one in which only those have it that it makes faster.

        Args:
          network: the links.
          known: plans that are among them in any case.
        """
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
            seconds = {c: _seconds(_chosen(costs, c)) for c in alike}
            choices |= {c for c in alike if seconds[c] <= _SIMILAR * min(seconds.values())}
        choices |= {plan.choices for plan in known if plan is not None}
        return {self.make(c): _seconds(_chosen(costs, c)) for c in choices}

    def exchanges(self, network: Network, plan: Plan, ratio: float | None = None):
        """Returns a `Prediction` for each bucket of a plan; by default with the present ratio."""
        return _chosen([self._costs(network, size, ratio) for size in self._sizes], plan.choices)

    def lag(self, before: Network, now: Network, plan: Plan) -> float:
        """Returns how many seconds longer a plan's exchanges should be now than before."""
        then, now = (_seconds(self.exchanges(n, plan, plan.ratio)) for n in (before, now))
        return now - then

    def seconds_of_ratios(
        self, network: Network, ratios: Sequence[float]
    ) -> dict[float, tuple[float, float]]:
        """Returns, by ratio, what compression and what communication take of all values."""
        with_ratio = {
            (system.name, system.collective) for system in self._systems if system.has_ratio
        }
        seconds = {}
        for ratio in ratios:
            costs = self._known_costs(network, sum(self._sizes), ratio)
            own = [cost for cost in costs if (cost.system, cost.collective) in with_ratio]
            best = min(own, key=lambda cost: cost.seconds)
            seconds[ratio] = (best.computation, best.latency + best.transfer)
        return seconds

    def loss(self, plan: Plan) -> int:
        """Returns how much a plan changes gradients, to be compared with others."""
        return sum(
            self._systems[choice].loss * size
            for choice, size in zip(plan.choices, self._sizes, strict=True)
        )

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

    def _costs(self, network, size, ratio=None):
        """Returns a `Prediction` of each system for a bucket."""
        costs = self._known_costs(network, size, ratio or self.ratio)
        known = {(cost.system, cost.collective): cost for cost in costs}
        # One that the model does not know may be the fastest.
        best = min(known.values(), key=lambda cost: cost.seconds)
        return [known.get((system.name, system.collective), best) for system in self._systems]

    def _costs_of_size(self, network, size, ratio):
        ratio = ratio or 1.0
        computation = self._rates and seconds_per_value(self._rates, self._workers, ratio)
        return predict(network, size, self._workers, ratio, computation)


def _chosen(costs, choices):
    return [of_bucket[choice] for of_bucket, choice in zip(costs, choices, strict=True)]


def _seconds(exchanges: Sequence[Prediction]):
    """Returns what the exchanges of all buckets take, which share a link, and wait side by side."""
    own = sum(exchange.transfer + exchange.computation for exchange in exchanges)
    return own + max(exchange.latency for exchange in exchanges)
