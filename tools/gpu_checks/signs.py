"""Signs: packing them, and merging those of groups of workers."""

import numpy as np
from gpu_check import Check


def checks(session, n):
    for misalignment in (0, 1):
        yield from packing_checks(session, n, misalignment)
    for misalignment, first_count, second_count in [
        (0, 1, 1),  # one plane
        (0, 3, 5),  # three planes
        (0, 2, 5),  # three planes, and low bits
        (1, 2, 5),
        (0, 1, 2**31 - 2),  # never the first
        (0, 2**31 - 2, 1),  # always
    ]:
        yield from merge_checks(session, n, misalignment, first_count, second_count)


def packing_checks(session, n, misalignment):
    note = "unaligned" if misalignment else ""
    values = session.random.standard_normal(n, np.float32)
    if n > 0:
        places = session.random.integers(n, size=n // 10 + 1)
        special = np.float32([0, -0.0, 1e-42, -1e-42, np.inf, -np.inf, np.nan])
        values[places] = session.random.choice(special, places.size)
    packed = np.empty(-(-n // 8), np.uint8)
    session.cpu("sign_pack", values, n, packed)
    moves = values.nbytes + packed.nbytes

    source = session.upload(values, 4 * misalignment)
    target = session.room_for(packed, misalignment)
    yield Check("sign_pack", (source, n, target), [(target, packed)], moves, note)

    signs = np.empty(n, np.float32)
    session.cpu("sign_unpack", packed, n, signs)
    padding = session.result()
    source = session.upload(packed, misalignment)
    target = session.room_for(signs, 4 * misalignment)
    expected = [(target, signs), (padding, np.int64([0]))]
    yield Check("sign_unpack", (source, n, target, padding), expected, moves, note)

    if n % 8 != 0:
        packed[-1] |= 0x80
        source = session.upload(packed, misalignment)
        expected = [(target, signs), (padding, np.int64([1]))]
        yield Check("sign_unpack", (source, n, target, padding), expected, note="bad padding")


def merge_checks(session, size, misalignment, first_count, second_count):
    """Of `size` bytes, half of whose bits differ."""
    note = f"{first_count} and {second_count}" + (", unaligned" if misalignment else "")
    first, second = (session.random.integers(0, 256, size, np.uint8) for _ in range(2))
    seed = [int(part) for part in session.random.integers(0, 2**64, 2, np.uint64)]
    first_byte = 16 * int(session.random.integers(1 << 40))
    rest = (size, first_count, second_count, *seed, first_byte)
    merged = np.empty(size, np.uint8)
    session.cpu("sign_merge", first, second, *rest, merged)
    target = session.room_for(merged, 3 * misalignment)
    arguments = (session.upload(first, misalignment), session.upload(second, 2 * misalignment))
    yield Check("sign_merge", (*arguments, *rest, target), [(target, merged)], 3 * size, note)
