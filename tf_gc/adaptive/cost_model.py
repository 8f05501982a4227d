"""The alpha-beta model of what collectives take.

A message of M bytes takes alpha + M beta seconds from one worker to another: alpha is the latency,
1 / beta the bandwidth. Costs of collectives are those of Tyagi and Swany, "Flexible Communication
for Optimal Distributed Learning over Unpredictable Networks" (2023), table I and equations 4a and
4b, and those of tf_gc's own topologies, counted in the same way: messages that a worker sends
at the same time share its bandwidth, and wait once.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tf_gc import checks

_BITS_OF_INDEX = 32
_BITS_OF_VALUE = 32


class Cost(NamedTuple):
    """What an exchange takes: `latencies` times alpha, plus beta for each of `bytes`."""

    latencies: float
    bytes: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.latencies + other.latencies, self.bytes + other.bytes)


@dataclasses.dataclass(frozen=True)
class Network:
    """The links between the workers, all alike.

    Attributes:
      latency: alpha, seconds that a message takes whatever its size.
      bandwidth: 1 / beta in bits per second, in each direction of a worker's link.
    """

    latency: float
    bandwidth: float

    def __post_init__(self):
        checks.number("latency", self.latency, "at least 0 and finite", _is_latency)
        checks.number("bandwidth", self.bandwidth, "above 0", lambda b: b > 0)

    def seconds(self, cost: Cost) -> float:
        """Returns latencies alpha + bytes beta."""
        return cost.latencies * self.latency + 8 * cost.bytes / self.bandwidth


def _is_latency(value):
    return value >= 0 and math.isfinite(value)


def parameter_server(size: float, workers: int) -> Cost:
    """One server for all: 2 alpha + 2 (N - 1) M beta (table I)."""
    return Cost(2, 2 * (workers - 1) * size)


def ring(size: float, workers: int) -> Cost:
    """Ring all-reduce: 2 (N - 1) alpha + 2 (N - 1) / N M beta (table I)."""
    return Cost(2 * (workers - 1), 2 * (workers - 1) / workers * size)


def tree(size: float, workers: int) -> Cost:
    """Tree all-reduce: 2 log2(N) (alpha + M beta) (table I)."""
    return Cost(2 * math.log2(workers), 2 * math.log2(workers) * size)


def broadcast(size: float, workers: int) -> Cost:
    """Broadcast along a tree: log2(N) (alpha + M beta) (table I)."""
    return Cost(math.log2(workers), math.log2(workers) * size)


def all_gather(size: float, workers: int) -> Cost:
    """All-gather of M bytes of each: log2(N) alpha + (N - 1) M beta (table I)."""
    return Cost(math.log2(workers), (workers - 1) * size)


def ar_top_k_ring(size: float, workers: int, ratio: float) -> Cost:
    """AR-Topk on a ring: alpha (2 (N - 1) + log N) + M c beta (2 (N - 1) / N + log N) (4a)."""
    return ring(ratio * size, workers) + broadcast(ratio * size, workers)


def ar_top_k_tree(size: float, workers: int, ratio: float) -> Cost:
    """AR-Topk on a tree: 3 log2(N) (alpha + M c beta) (4b)."""
    return tree(ratio * size, workers) + broadcast(ratio * size, workers)


def sharded(up: float, down: float, workers: int) -> Cost:
    """Every worker the server of a part: 2 alpha + (N - 1) / N (up + down) beta.

    Args:
      up: bytes of all values of a contribution.
      down: those of a sum.
      workers: N.
    """
    return Cost(2, (workers - 1) / workers * (up + down))


def torus(size: float, rows: int, columns: int) -> Cost:
    """All-reduce along rows, then columns: 2 (R + C - 2) alpha + 2 (R C - 1) / (R C) M beta."""
    workers = rows * columns
    return Cost(2 * (rows + columns - 2), 2 * (workers - 1) / workers * size)


class Prediction(NamedTuple):
    """What one exchange of all gradients takes.

    Attributes:
      system: its name.
      collective: what it runs on.
      seconds: communication and computation.
      latency: of them, those of latencies.
      transfer: of them, those of bytes.
      computation: of them, those of encoding, transforms and decoding.
    """

    system: str
    collective: str
    seconds: float
    latency: float
    transfer: float
    computation: float


def predict(
    network: Network,
    values: int,
    workers: int,
    ratio: float = 0.01,
    seconds_per_value: Mapping[str, float] | None = None,
) -> list[Prediction]:
    """Returns what each system takes for the gradients of one step, the fastest first.

    Args:
      network: the links.
      values: the number of gradient values.
      workers: N, at least 2.
      ratio: c of the sparse systems.
      seconds_per_value: by system, the computation that a worker does for a value, as measured;
        0 for those that are not named.

    Raises:
      ValueError: an argument is out of range, or a system is not known.
    """
    checks.integer("values", values, 1)
    checks.integer("workers", workers, 2)
    checks.number("ratio", ratio, "in (0, 1]", lambda c: 0 < c <= 1)
    seconds_per_value = seconds_per_value or {}
    unknown = set(seconds_per_value) - {system for system, _ in _COSTS}
    if unknown:
        raise ValueError(f"seconds_per_value: no system {', '.join(sorted(unknown))}")
    predictions = []
    for (system, collective), cost_of in _COSTS.items():
        cost = cost_of(values, workers, ratio)
        latency = cost.latencies * network.latency
        transfer = network.seconds(cost) - latency
        computation = values * seconds_per_value.get(system, 0.0)
        seconds = latency + transfer + computation
        predictions.append(Prediction(system, collective, seconds, latency, transfer, computation))
    return sorted(predictions, key=lambda prediction: prediction.seconds)


def _bytes(values, bits=_BITS_OF_VALUE):
    return values * bits / 8


# What workers agree on before a composed system's exchange: a message of a few bytes.
_AGREEMENT = Cost(1, 0)


def _thc(values, workers, ratio):
    del ratio
    lanes = 8 if 15 * workers < 1 << 8 else 16  # THC(): 4 bits, table up to 15
    return _AGREEMENT + sharded(_bytes(values, 4), _bytes(values, lanes), workers)


def _ar_top_k(reduce):
    # As in the paper, an index takes as much as a value.
    return lambda values, workers, ratio: _AGREEMENT + reduce(_bytes(values), workers, ratio)


# (system, collective) -> cost of (values, workers, ratio). Bits are those of settled states.
_COSTS: Mapping[tuple[str, str], Callable[[int, int, float], Cost]] = {
    ("uncompressed", "sharded"): lambda n, w, _: sharded(_bytes(n), _bytes(n), w),
    ("uncompressed", "ring"): lambda n, w, _: ring(_bytes(n), w),
    ("uncompressed", "tree"): lambda n, w, _: tree(_bytes(n), w),
    ("3LC", "sharded"): lambda n, w, _: sharded(_bytes(n, 1.6), _bytes(n, 1.6), w),
    ("THC", "sharded"): _thc,
    ("Marsit", "ring"): lambda n, w, _: _AGREEMENT + ring(_bytes(n, 1), w),
    ("AR-Topk", "ring"): _ar_top_k(ar_top_k_ring),
    ("AR-Topk", "tree"): _ar_top_k(ar_top_k_tree),
    ("top-k", "all-gather"): lambda n, w, c: (
        _AGREEMENT + all_gather(c * _bytes(n, _BITS_OF_VALUE + _BITS_OF_INDEX), w)
    ),
}
