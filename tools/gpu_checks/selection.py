"""Selection: the largest magnitudes, of all and of chunks, and packed indices."""

import numpy as np
from gpu_check import Check


def checks(session, n):
    normal = session.random.standard_normal(n, np.float32)
    sparse = normal * (session.random.random(n, np.float32) < 0.1)
    few = session.random.integers(-3, 4, n).astype(np.float32)
    few[session.random.random(n, np.float32) < 0.01] = np.nan
    equal = np.full(n, -0.75, np.float32)
    for kind, values in [("normal", normal), ("sparse", sparse), ("few", few), ("equal", equal)]:
        source = session.upload(values, 4)
        for k in sorted({n // 1000, n // 100, n // 10, n // 2, n}):
            yield from top_k_checks(session, values, source, k, f"{kind}, k = {k}")
        for chunk in (1, 10, 64, 1000, 100000, n + 1):
            yield from argmax_checks(session, values, source, chunk, f"{kind}, chunk {chunk}")
    for k in sorted({min(n, 1), n // 1000, n // 100, n // 10, n // 3, n}):
        yield from packing_checks(session, n, k)


def top_k_checks(session, values, source, k, note):
    n = values.size
    indices = np.empty(k, np.int32)
    session.cpu("top_k_indices", values, n, k, indices)
    target = session.room_for(indices)
    arguments = (source, n, k, target, session.workspace("top_k_indices", n))
    # A bound of the k-th must be known before the first index is: two passes.
    moves = 2 * values.nbytes + indices.nbytes if k > 0 else None
    yield Check("top_k_indices", arguments, [(target, indices)], moves, note)


def argmax_checks(session, values, source, chunk, note):
    n = values.size
    indices = np.empty(-(-n // chunk), np.int32)
    session.cpu("chunk_argmax", values, n, chunk, indices)
    target = session.room_for(indices)
    arguments = (source, n, chunk, target, session.workspace("chunk_argmax", n, chunk))
    moves = values.nbytes + indices.nbytes
    yield Check("chunk_argmax", arguments, [(target, indices)], moves, note)


def packing_checks(session, n, k):
    """Of k random indices below n."""
    note = f"k = {k}"
    # The places of the k smallest of n random numbers, about.
    indices = np.flatnonzero(session.random.random(n, np.float32) * n < k).astype(np.int32)
    k = indices.size
    packed = np.empty(session.cpu("packed_indices_size", k, n), np.uint8)
    session.cpu("pack_indices", indices, k, n, packed)
    moves = indices.nbytes + packed.nbytes

    source = session.upload(indices, 4)
    target = session.room_for(packed, 1)
    yield Check("pack_indices", (source, k, n, target), [(target, packed)], moves, note)

    error = session.result()
    target = session.room_for(indices)
    workspace = session.workspace("unpack_indices", k, n)
    arguments = (session.upload(packed, 3), k, n, target, error, workspace)
    expected = [(target, indices), (error, np.int64([-1]))]
    yield Check("unpack_indices", arguments, expected, moves, note)

    first = session.result()
    expected = [(first, np.int64([-1]))]
    yield Check("find_not_ascending", (source, k, n, first), expected, indices.nbytes, note)

    if k > 0:
        wrong = indices.copy()
        wrong[session.random.integers(k)] = session.random.integers(-1, n + 1)
        expected = [(first, np.int64([session.cpu("find_not_ascending", wrong, k, n)]))]
        arguments = (session.upload(wrong), k, n, first)
        yield Check("find_not_ascending", arguments, expected, note="bad")
        # No bits that are 1, which is the error number 1.
        arguments = (session.upload(np.zeros_like(packed)), k, n, target, error, workspace)
        yield Check("unpack_indices", arguments, [(error, np.int64([1]))], note="bad")
