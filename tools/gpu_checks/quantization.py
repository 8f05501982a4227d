"""Stochastic quantisation, bit packing and table sums."""

import numpy as np
from gpu_check import Check


def checks(session, n):
    for bits in (2, 3, 4, 5, 8):
        for misalignment in (0, 1):
            yield from packing_checks(session, n, bits, misalignment)
            yield from sum_checks(session, n, bits, misalignment)
            yield from quantize_checks(session, n, bits, misalignment)


def note(bits, misalignment):
    return f"{bits} bits{', unaligned' if misalignment else ''}"


def packed_size(n, bits):
    return -(-n * bits // 8)


def packing_checks(session, n, bits, misalignment):
    """Of arrays that begin a few bytes behind an aligned address, if any."""
    random = session.random
    indices = random.integers(0, 1 << bits, n, np.uint8)
    packed = np.empty(packed_size(n, bits), np.uint8)
    session.cpu("pack_bits", indices, n, bits, packed)
    moves = indices.nbytes + packed.nbytes

    source = session.upload(indices, misalignment)
    target = session.room_for(packed, 3 * misalignment)
    expected = [(target, packed)]
    yield Check("pack_bits", (source, n, bits, target), expected, moves, note(bits, misalignment))

    first = session.result()
    expected = [(first, np.int64([-1]))]
    yield Check(
        "find_unpackable",
        (source, n, bits, first),
        expected,
        indices.nbytes,
        note(bits, misalignment),
    )
    if n > 0 and bits < 8:
        wrong = indices.copy()
        wrong[random.integers(n, size=2)] = 1 << bits
        expected = [(first, np.int64([session.cpu("find_unpackable", wrong, n, bits)]))]
        arguments = (session.upload(wrong, misalignment), n, bits, first)
        yield Check("find_unpackable", arguments, expected, note="bad")

    # Any bytes, of the padding too.
    packed = random.integers(0, 256, packed.size, np.uint8)
    session.cpu("unpack_bits", packed, n, bits, indices)
    source = session.upload(packed, misalignment)
    target = session.room_for(indices, 5 * misalignment)
    expected = [(target, indices)]
    yield Check("unpack_bits", (source, n, bits, target), expected, moves, note(bits, misalignment))
    is_zero = session.result()
    expected = [(is_zero, np.int64([session.cpu("padding_is_zero", packed, n, bits)]))]
    yield Check("padding_is_zero", (source, n, bits, is_zero), expected)


def sum_checks(session, n, bits, misalignment):
    for dtype in (np.uint8, np.uint16):
        kernel = f"table_sum_{dtype.__name__}"
        limit = np.iinfo(dtype).max + 1
        table = session.random.integers(0, limit, 1 << bits, dtype)
        packed = session.random.integers(0, 256, packed_size(n, bits), np.uint8)
        accumulator = session.random.integers(0, limit, n, dtype)
        sums = accumulator.copy()
        session.cpu(kernel, packed, n, table, bits, sums)
        target = session.room_for(sums, 6 * misalignment)
        arguments = (
            session.upload(packed, misalignment),
            n,
            table,
            bits,
            session.upload(accumulator, 2 * misalignment),
            target,
        )
        moves = packed.nbytes + 2 * sums.nbytes
        yield Check(kernel, arguments, [(target, sums)], moves, note(bits, misalignment))


def quantize_checks(session, n, bits, misalignment):
    """With as many levels as there are indices of `bits` bits."""
    random = session.random
    values = random.standard_normal(n, np.float32)
    levels = np.sort(random.uniform(-2, 2, 1 << bits).astype(np.float32))
    seed = tuple(int(word) for word in random.integers(2**63, size=2))
    first = 8 * int(random.integers(2**50))
    quantizer = (levels, levels.size, *seed, first)
    indices = np.empty(n, np.uint8)
    session.cpu("stochastic_quantize", values, n, *quantizer, indices)
    packed = np.empty(packed_size(n, bits), np.uint8)
    session.cpu("pack_bits", indices, n, bits, packed)

    source = session.upload(values, 4 * misalignment)
    target = session.room_for(indices, misalignment)
    yield Check(
        "stochastic_quantize",
        (source, n, *quantizer, target),
        [(target, indices)],
        values.nbytes + indices.nbytes,
        note(bits, misalignment),
    )
    target = session.room_for(packed, misalignment)
    yield Check(
        "stochastic_quantize_pack",
        (source, n, *quantizer, bits, target),
        [(target, packed)],
        values.nbytes + packed.nbytes,
        note(bits, misalignment),
    )
