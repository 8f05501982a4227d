"""What the systems compute, measured on this machine."""

import time
from collections.abc import Callable, Mapping

import numpy as np

from tf_gc import checks

_VALUES = 1 << 19
# Rounds in which every part runs once: what disturbs the machine for some
# milliseconds is in one of them.
_LEAST_ROUNDS = 3
_MOST_ROUNDS = 9
_SECONDS = 0.2
# What FusedCompressor does around any system, in passes that read and write all
# values: gradients and residuals added up, the check of the sum, the residual
# stored, gradients cut out again.
_FUSED_PASSES = 4


def measure_rates() -> dict[str, float]:
    """Measures the parts that the systems' computation is made of, on one thread.

    Each part runs 3 to 9 times on 2^19 Gaussian values, in turn, until 0.2 s have
    passed.

    Returns:
      By part, the median of the seconds for a value: of those it is given, or,
      for the parts that are named after selected values, of those selected.
      `seconds_per_value` makes systems of them.
    """
    parts = _parts()
    rounds = []
    end = time.perf_counter() + _SECONDS
    while len(rounds) < _LEAST_ROUNDS or (len(rounds) < _MOST_ROUNDS and time.perf_counter() < end):
        rounds.append([_seconds(run) for _, _, run in parts])
    medians = np.median(rounds, axis=0)
    return {name: float(m) / n for (name, n, _), m in zip(parts, medians, strict=True)}


def seconds_per_value(
    rates: Mapping[str, float], workers: int, ratio: float = 0.01
) -> dict[str, float]:
    """Returns the seconds that one worker computes for a value of a step's gradients.

    A server of a shard, of which there is one for each worker, decodes and adds
    up N - 1 contributions to n / N values, or N where its own is one of them.

    Args:
      rates: of `measure_rates`. Workers that are to decide alike take the same,
        such as the means over all of them.
      workers: N, at least 2.
      ratio: c of the sparse systems, in (0, 1].

    Returns:
      By system, what `predict` takes as `seconds_per_value`.

    Raises:
      ValueError: an argument is out of range.
    """
    checks.integer("workers", workers, 2)
    checks.number("ratio", ratio, "in (0, 1]", lambda c: 0 < c <= 1)
    r = rates
    others = (workers - 1) / workers
    fused = _FUSED_PASSES * r["copy"]
    # What a worker's sum of the selected values takes, with what waits of them.
    selected = ratio * (r["gather selected"] + 2 * r["scatter selected"] + others * r["add"])
    indices = ratio * (r["pack selected"] + r["unpack selected"])
    shared_choice = fused + 2 * r["copy"] + selected + indices
    return {
        "uncompressed": 2 * r["copy"] + others * r["add"],
        "3LC": (r["3LC encode"] + (1 + others) * r["3LC decode"] + others * r["add"]),
        "THC": (
            3 * r["hadamard"]
            + r["quantize"]
            + r["pack"]
            + r["table sum"]
            + 2 * (r["unpack"] + r["scale"])
            # Gradient plus residual, twice; the new residual; the reduced gradient.
            + 3 * r["add"]
            + r["copy"]
        ),
        "Marsit": (
            fused + r["sign pack"] + others * r["sign merge"] + r["sign unpack"] + 2 * r["add"]
        ),
        "AR-Topk": shared_choice + r["top-k"],
        "ScaleCom": shared_choice + r["chunk argmax"],
        "top-k": (
            fused
            + 2 * r["copy"]
            + r["top-k"]
            + ratio * (r["gather selected"] + r["scatter selected"] + r["pack selected"])
            + ratio * workers * (r["unpack selected"] + r["scatter selected"])
        ),
    }


def _parts() -> list[tuple[str, int, Callable[[], object]]]:
    """Returns for each part its name, its number of values, and what to run."""
    from tf_gc import kernels

    n, seed = _VALUES, (1, 2)
    values = np.random.default_rng(0).standard_normal(n, np.float32)
    other, zeros = values[::-1].copy(), np.zeros(n, np.float32)
    scale = np.float32(0.1)
    levels = np.linspace(-3, 3, 16, dtype=np.float32)
    encoded, _ = kernels.three_lc_encode(values, zeros, 1.0)
    quantized = kernels.stochastic_quantize(values, levels, seed)
    packed = kernels.pack_bits(quantized, 4)
    table = np.arange(16, dtype=np.int32)
    lanes = np.zeros(n, np.uint8)
    signs = kernels.sign_pack(values)
    k = n // 100
    indices = kernels.top_k_indices(values, k)
    packed_indices = kernels.pack_indices(indices, n)
    selected = values[indices]
    return [
        ("copy", n, lambda: np.copyto(other, values)),
        ("add", n, lambda: np.add(values, other, out=other)),
        ("3LC encode", n, lambda: kernels.three_lc_encode(values, zeros, 1.0)),
        ("3LC decode", n, lambda: kernels.three_lc_decode(encoded, (n,))),
        ("hadamard", n, lambda: kernels.randomized_hadamard(values, seed)),
        ("quantize", n, lambda: kernels.stochastic_quantize(values, levels, seed)),
        ("pack", n, lambda: kernels.pack_bits(quantized, 4)),
        ("unpack", n, lambda: kernels.unpack_bits(packed, 4, n)),
        ("table sum", n, lambda: kernels.table_sum(packed, table, 4, lanes)),
        ("scale", n, lambda: np.multiply(quantized, scale, out=other, dtype=np.float32)),
        ("sign pack", n, lambda: kernels.sign_pack(values)),
        ("sign merge", n, lambda: kernels.sign_merge(signs, signs, 1, 1, seed)),
        ("sign unpack", n, lambda: kernels.sign_unpack(signs, n)),
        ("top-k", n, lambda: kernels.top_k_indices(values, k)),
        ("chunk argmax", n, lambda: kernels.chunk_argmax(values, n // k)),
        ("gather selected", k, lambda: values.take(indices)),
        ("scatter selected", k, lambda: other.put(indices, selected)),
        ("pack selected", k, lambda: kernels.pack_indices(indices, n)),
        ("unpack selected", k, lambda: kernels.unpack_indices(packed_indices, k, n)),
    ]


def _seconds(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
