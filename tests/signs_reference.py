"""Merging signs written slowly, for tests to compare with."""

import numpy as np


def bits(packed):
    return np.unpackbits(np.asarray(packed, np.uint8), bitorder="little")


def pack(ones):
    return np.packbits(np.asarray(ones, np.uint8), bitorder="little")


def blocks(size):
    """How many blocks of the stream `size` bytes may need."""
    return 32 * -(-size // 16)


def merge(first, second, first_count, second_count, words):
    """Merges packed signs with the words [blocks, 4] of a Philox stream."""
    total = first_count + second_count
    threshold = (first_count * 2**19 + total // 2) // total
    a, merged = bits(first), bits(second)
    for begin in range(0, a.size, 128):
        group = words[begin // 4 : begin // 4 + 32]
        undecided = 0
        for v in range(min(128, a.size - begin)):
            if a[begin + v] == merged[begin + v]:
                continue
            u = 0
            for t in range(3):
                u |= (int(group[t, v // 32]) >> v % 32 & 1) << 18 - t
            if u >> 16 == threshold >> 16:
                half = undecided % 8
                word = int(group[3 + undecided // 8, half // 2])
                u |= word >> 16 * (half % 2) & 0xFFFF
                undecided += 1
            if u < threshold:
                merged[begin + v] = a[begin + v]
    return pack(merged)
