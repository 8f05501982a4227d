"""Packed rows written slowly, for tests to compare with."""

import numpy as np

from tests import philox_reference

_MASK = 2**64 - 1


def mix(bits):
    """SplitMix64's finaliser."""
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & _MASK
    return bits ^ bits >> 31


def sum_rows(indices, values):
    """Unique indices, ascending, and the sums of their rows, added one after the other."""
    unique = sorted(set(indices))
    sums = np.zeros([len(unique), *values.shape[1:]], np.float32)
    for index, row in zip(indices, values, strict=True):
        sums[unique.index(index)] += row
    return unique, sums


def quantize(rows, seed, variable, bits):
    """What is delivered of the rows of one variable, float32 [k, length]."""
    if bits == 32:
        return rows
    key, stream = seed
    blocks = -(-rows.size // 8)
    words = philox_reference.words((mix(key ^ variable), stream), blocks)
    r = (philox_reference.halves(words)[: rows.size].astype(np.float32) + 0.5) / 65536
    s = 2 ** (bits - 1) - 1
    levels = (np.arange(-s, s + 1) / np.float32(s)).astype(np.float32)
    delivered = np.zeros_like(rows)
    for k, row in enumerate(rows):
        scale = _round_up(np.abs(row).max())
        if not np.isfinite(scale):
            delivered[k] = np.nan
        elif scale > 0:
            for i, value in enumerate(row / scale):
                z = min(np.searchsorted(levels, value, side="right") - 1, 2 * s - 1)
                up = value - levels[z] > r[k * row.size + i] * (levels[z + 1] - levels[z])
                delivered[k, i] = scale * levels[z + up]
    return delivered


def _round_up(value):
    """The least bfloat16 that is not less than a value that is not negative."""
    bits = int(np.float32(value).view(np.uint32))
    return np.uint32((bits + 0xFFFF) & 0xFFFF0000).view(np.float32)
