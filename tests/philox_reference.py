"""Philox4x32-10 written slowly, for tests to compare with."""

import numpy as np

_LOW = 0xFFFFFFFF


def words(seed, blocks):
    """The words of the stream's first blocks, uint32 [blocks, 4]."""
    key, stream = (seed, 0) if isinstance(seed, int) else seed
    return np.array([_block(key % 2**64, stream % 2**64, i) for i in range(blocks)], np.uint32)


def _block(key, stream, block):
    x = [block & _LOW, block >> 32, stream & _LOW, stream >> 32]
    k = [key & _LOW, key >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [p1 >> 32 ^ x[1] ^ k[0], p1 & _LOW, p0 >> 32 ^ x[3] ^ k[1], p0 & _LOW]
        k = [(k[0] + 0x9E3779B9) & _LOW, (k[1] + 0xBB67AE85) & _LOW]
    return x


def halves(block_words):
    """The 16-bit halves of words, in the order of the stream."""
    return np.ascontiguousarray(block_words, "<u4").view("<u2").ravel()
