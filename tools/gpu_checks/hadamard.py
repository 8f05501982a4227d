"""Hadamard transforms, plain and randomised."""

import numpy as np
from gpu_check import Check


def checks(session, n):
    """Of rows that have about n values together."""
    for log2_size in (0, 3, 10, 12, 13, 14, 17, 20, 22, 26):
        size = 1 << log2_size
        if size <= max(n, 1):
            yield from transform_checks(session, n // size, size, 0)
    yield from transform_checks(session, n // 8, 8, 4)


def transform_checks(session, rows, size, misalignment):
    """Of arrays that begin `misalignment` bytes behind an aligned address."""
    values = session.random.standard_normal(rows * size, np.float32)
    source = session.upload(values, misalignment)
    seed = tuple(int(word) for word in session.random.integers(2**63, size=2))
    note = f"rows of {size}{', unaligned' if misalignment else ''}"
    for kernel, arguments in (
        ("hadamard", ()),
        ("randomized_hadamard", seed),
        ("inverse_randomized_hadamard", seed),
    ):
        transformed = np.empty_like(values)
        session.cpu(kernel, values, rows, size, *arguments, transformed)
        target = session.room_for(transformed, misalignment)
        yield Check(
            kernel,
            (source, rows, size, *arguments, target),
            [(target, transformed)],
            # Long rows need more than one pass over the values.
            2 * values.nbytes * passes(size),
            note,
        )


def passes(size):
    return 1 if size <= 1 << 13 else 2 if size <= 1 << 21 else 3
