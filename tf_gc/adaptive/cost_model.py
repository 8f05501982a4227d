"""The alpha-beta model of what collectives take.

A message of M bytes takes alpha + M beta seconds from one worker to another: alpha is the latency,
1 / beta the bandwidth. Costs of collectives are those of Tyagi and Swany, "Flexible Communication
for Optimal Distributed Learning over Unpredictable Networks" (2023), table I and equations 4a and
4b, and those of tf_gc's own topologies, counted in the same way: messages that a worker sends
at the same time share its bandwidth, and wait once.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

from tf_gc import checks

# Up and down, in settled training, with second moments and small variables.
BITS_OF_3LC = (1.6, 1.6)
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
        checks.number("latency", self.latency, "at least 0 and finite", _is_amount)
        checks.number("bandwidth", self.bandwidth, "above 0", lambda b: b > 0)

    def seconds(self, cost: Cost) -> float:
        """Returns latencies alpha + bytes beta."""
        return cost.latencies * self.latency + 8 * cost.bytes / self.bandwidth


def _is_amount(value):
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


def all_to_all(size: float, workers: int) -> Cost:
    """All-gather in one hop, each worker to all others: alpha + (N - 1) M beta."""
    return Cost(1, (workers - 1) * size)


def lanes_ring(up: float, lanes: float, workers: int) -> Cost:
    """Integer lanes on a ring: a hop of indices, then 2 N - 3 hops of sums.

        2 (N - 1) alpha + (up + (2 N - 3) lanes) / N beta

    Args:
      up: bytes of all indices of a contribution.
      lanes: those of a sum.
      workers: N.
    """
    return Cost(2 * (workers - 1), (up + (2 * workers - 3) * lanes) / workers)


class Prediction(NamedTuple):
    """What one exchange of a bucket's gradients takes.

    The exchanges of a step's buckets run side by side. They share a worker's link
    and processor, and wait together: of several, `transfer` and `computation` add
    up, and the largest `latency` counts.

    Attributes:
      system: its name.
      collective: what it runs on.
      seconds: latency, transfer and computation.
      latency: seconds of latencies.
      transfer: seconds of bytes.
      computation: seconds of encoding, transforms and decoding.
      bytes: that a worker's link carries in each direction, one after the other.
      rows: of a torus; 1 on all else.
    """

    system: str
    collective: str
    seconds: float
    latency: float
    transfer: float
    computation: float
    bytes: float
    rows: int = 1


def predict(
    network: Network,
    values: int,
    workers: int,
    ratio: float = 0.01,
    seconds_per_value: Mapping[str, float] | None = None,
    bits: tuple[float, float] = BITS_OF_3LC,
) -> list[Prediction]:
    """Returns what each system takes for the gradients of a bucket, the fastest first.

    Those are uncompressed on the sharded server, as tf_gc's exact buckets, and on
    a ring, as TensorFlow's own collectives; 3LC on the sharded server; THC's integer
    lanes on the sharded server and on a ring; Marsit's signs on a ring and, where
    the number of workers is not prime, on the torus that is nearest to a square;
    AR-Topk on a ring, a tree and the sharded server; ScaleCom, and top-k, whose
    choices all gather.

    Args:
      network: the links.
      values: the number of gradient values.
      workers: N, at least 2.
      ratio: c of the sparse systems.
      seconds_per_value: by system, the computation that a worker does for a value, as
        `adaptive.seconds_per_value` returns it; 0 for those that are not named.
      bits: that 3LC sends of a value up and down, as `strategy.traffic` shows them. The
        defaults are those of settled training.

    Raises:
      ValueError: an argument is out of range, or a system is not known.
    """
    checks.integer("values", values, 1)
    checks.integer("workers", workers, 2)
    checks.number("ratio", ratio, "in (0, 1]", lambda c: 0 < c <= 1)
    for of_direction in bits:
        checks.number("bits", of_direction, "at least 0 and finite", _is_amount)
    seconds_per_value = seconds_per_value or {}
    rows = _rows(workers)
    costs = _costs(values, workers, ratio, bits, rows)
    unknown = set(seconds_per_value) - {system for system, _ in costs}
    if unknown:
        raise ValueError(f"seconds_per_value: no system {', '.join(sorted(unknown))}")
    predictions = []
    for (system, collective), cost in costs.items():
        if collective == "torus" and rows == 1:
            continue
        latency = cost.latencies * network.latency
        transfer = network.seconds(cost) - latency
        computation = values * seconds_per_value.get(system, 0.0)
        predictions.append(
            Prediction(
                system,
                collective,
                latency + transfer + computation,
                latency,
                transfer,
                computation,
                cost.bytes,
                rows if collective == "torus" else 1,
            )
        )
    return sorted(predictions, key=lambda prediction: prediction.seconds)


# THC's norms, which workers agree on before its exchange: a message of a few bytes.
_NORMS = Cost(1, 0)
# Of Marsit's steps, one of so many is exact.
_FULL_PRECISION_EVERY = 100


def _rows(workers):
    """Returns the rows of the torus that is nearest to a square; 1 for a prime number."""
    return max(rows for rows in range(1, math.isqrt(workers) + 1) if workers % rows == 0)


def _bits_of_index(ratio):
    """Returns what an index takes in Elias-Fano form or in a bitmap."""
    return min(2 + math.log2(1 / ratio), 1 / ratio)


def _costs(values, workers, ratio, bits, rows):
    """Returns the cost by system and collective, without computation."""

    def size(bits_of_value):
        return values * bits_of_value / 8

    exact = size(_BITS_OF_VALUE)
    signs = size(1 + (_BITS_OF_VALUE - 1) / _FULL_PRECISION_EVERY)
    lanes = size(max(8, (15 * workers).bit_length()))  # THC(): 4 bits, table up to 15
    selected, indices = ratio * exact, ratio * size(_bits_of_index(ratio))
    choice = broadcast(indices, workers)
    return {
        ("uncompressed", "sharded"): sharded(exact, exact, workers),
        ("uncompressed", "ring"): ring(exact, workers),
        ("3LC", "sharded"): sharded(size(bits[0]), size(bits[1]), workers),
        ("THC", "sharded"): _NORMS + sharded(size(4), lanes, workers),
        ("THC", "ring"): _NORMS + lanes_ring(size(4), lanes, workers),
        ("Marsit", "ring"): ring(signs, workers),
        ("Marsit", "torus"): torus(signs, rows, workers // rows),
        ("AR-Topk", "ring"): choice + ring(selected, workers),
        ("AR-Topk", "tree"): choice + tree(selected, workers),
        ("AR-Topk", "sharded"): choice + sharded(selected, selected, workers),
        ("ScaleCom", "sharded"): choice + sharded(selected, selected, workers),
        ("top-k", "all-gather"): all_to_all(indices + selected, workers),
    }
