"""Which system workers and parameter servers should use on a network."""

from collections.abc import Mapping, Sequence

from tf_gc.adaptive.computation import seconds_per_value
from tf_gc.adaptive.cost_model import BITS_OF_3LC, Network

# Bits a value of pushes and of pulls.
_BITS = {"uncompressed": (32, 32), "THC": (4, 8), "3LC": BITS_OF_3LC}
# A system has to be so much faster than one that changes gradients less.
_EQUAL = 1.03


def best_for_servers(
    systems: Sequence[str],
    network: Network,
    workers: int,
    servers: int,
    rates: Mapping[str, float],
) -> tuple[str, dict[str, float]]:
    """Returns the system to use, and what each takes.

    All workers share the links of the servers, of which each has its part of the model, and each
    worker's own link carries all of the model: for a value of the model, an update of N workers and
    S servers takes

        max(1, N / S) (push + pull) beta + computation

    seconds. Latencies are the same for all systems.

    Args:
      systems: "uncompressed", "THC" or "3LC", those first that change gradients less.
      network: of the servers' links.
      workers: N.
      servers: S.
      rates: what computation takes, of `measure_rates`.

    Returns:
      The name, and by name the seconds for a value.
    """
    computation = seconds_per_value(rates, max(workers, 2))
    models = max(1, workers / servers)  # that the busiest links carry
    seconds = {
        system: models * sum(_BITS[system]) / network.bandwidth + computation[system]
        for system in systems
    }
    least = min(seconds.values())
    return next(system for system in systems if seconds[system] <= _EQUAL * least), seconds
