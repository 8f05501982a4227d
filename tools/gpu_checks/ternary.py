"""Ternary quantisation with a given scale."""

import numpy as np
from gpu_check import Check


def checks(session, n):
    for scale in (1.0, 0.0, 1e-40):
        yield from quantize_checks(session, n, scale, 0)
    yield from quantize_checks(session, n, 1.0, 1)


def quantize_checks(session, n, scale, misalignment):
    """Of values about as large as the scale, and some of all other kinds."""
    note = f"scale {scale}" + (", unaligned" if misalignment else "")
    values = session.random.standard_normal(n, np.float32) * np.float32(scale)
    if n > 0:
        places = session.random.integers(n, size=n // 10 + 1)
        special = np.float32([0, -0.0, 1e-42, scale / 2, scale, 1e30, np.inf, -np.inf, np.nan])
        values[places] = session.random.choice(special, places.size)
    moves = values.nbytes + n
    source = session.upload(values, 4 * misalignment)
    ternary = np.empty(n, np.int8)
    target = session.room_for(ternary, misalignment)

    session.cpu("nearest_ternary", values, n, scale, ternary)
    arguments = (source, n, scale, target)
    yield Check("nearest_ternary", arguments, [(target, ternary)], moves, note)

    seed = [int(part) for part in session.random.integers(0, 2**64, 2, np.uint64)]
    first = 8 * int(session.random.integers(1 << 40))
    session.cpu("stochastic_ternary", values, n, scale, *seed, first, ternary)
    arguments = (source, n, scale, *seed, first, target)
    yield Check("stochastic_ternary", arguments, [(target, ternary)], moves, note)
