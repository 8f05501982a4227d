"""3LC: quartic and zero-run encoding, and the fused kernels."""

import numpy as np
from gpu_check import Check


def checks(session, n):
    for misalignment in (0, 1):
        yield from quartic_checks(session, n, misalignment)
    for zeros in (0.5, 0.98):
        yield from zero_run_checks(session, n, zeros)
    # The five partitions are aligned to 16 bytes if their size is.
    for size in sorted({n, n // 20 * 20}):
        yield from tensor_checks(session, size, "dense", session.random.random, 1.0)
        yield from tensor_checks(session, size, "sparse", session.random.standard_normal, 1.75)


def quartic_checks(session, n, misalignment):
    """Of n values that begin `misalignment` bytes behind an aligned address."""
    random = session.random
    note = "unaligned" if misalignment else ""
    ternary = random.integers(-1, 2, n, np.int8)
    quartic = np.empty(-(-n // 5), np.uint8)
    session.cpu("quartic_encode", ternary, n, quartic)

    values = session.upload(ternary, misalignment)
    encoded = session.room_for(quartic, 2 * misalignment)
    moves = ternary.nbytes + quartic.nbytes
    yield Check("quartic_encode", (values, n, encoded), [(encoded, quartic)], moves, note)

    encoded = session.upload(quartic, 3 * misalignment)
    decoded = session.room_for(ternary, 5 * misalignment)
    yield Check("quartic_decode", (encoded, n, decoded), [(decoded, ternary)], moves, note)

    first = session.result()
    expected = [(first, np.int64([-1]))]
    yield Check("find_non_ternary", (values, n, first), expected, ternary.nbytes, note)
    if n > 0:
        ternary[random.integers(n, size=2)] = 5
        values = session.upload(ternary, misalignment)
        expected = [(first, np.int64([session.cpu("find_non_ternary", ternary, n)]))]
        yield Check("find_non_ternary", (values, n, first), expected, note="bad")

    # Random digits, of the padding too.
    quartic = random.integers(0, 243, quartic.size, np.uint8)
    encoded = session.upload(quartic, misalignment)
    expected = [(first, np.int64([session.cpu("find_non_quartic", quartic, n)]))]
    yield Check("find_non_quartic", (encoded, n, first), expected, quartic.nbytes, note)


def zero_run_checks(session, m, zeros):
    """Of m quartic bytes of which the fraction `zeros` is 121."""
    note = f"{zeros:.0%} zeros"
    quartic = session.random.integers(0, 243, m, np.uint8)
    quartic[session.random.random(m, np.float32) < zeros] = 121
    encoded = np.empty(m, np.uint8)
    size = session.cpu("zero_run_encode", quartic, m, encoded)
    encoded = encoded[:size].copy()
    moves = quartic.nbytes + encoded.nbytes

    result = session.result()
    target = session.room_for(quartic, 2)
    workspace = session.workspace("zero_run_encode", m)
    arguments = (session.upload(quartic, 1), m, target, result, workspace)
    expected = [(result, np.int64([size])), (target, encoded)]
    yield Check("zero_run_encode", arguments, expected, moves, note)

    source = session.upload(encoded, 3)
    expected = [(result, np.int64([m]))]
    yield Check("zero_run_decoded_size", (source, size, result), expected, size, note)

    target = session.room_for(quartic, 5)
    workspace = session.workspace("zero_run_decode", size, m)
    arguments = (source, size, m, target, result, workspace)
    expected = [(result, np.int64([size])), (target, quartic)]
    yield Check("zero_run_decode", arguments, expected, moves, note)

    for other in (m + 1, m - 1):
        if other < 0:
            continue
        decoded = np.empty(other, np.uint8)
        used = session.cpu("zero_run_decode", encoded, size, other, decoded)
        workspace = session.workspace("zero_run_decode", size, other)
        target = session.room_for(decoded)
        arguments = (source, size, other, target, result, workspace)
        expected = [(result, np.int64([used]))]
        yield Check("zero_run_decode", arguments, expected, note="wrong size")


def tensor_checks(session, n, kind, draw, s):
    """Of n values of a kind, with the sparsity multiplier s."""
    aligned = -(-n // 5) % 4 == 0
    note = f"{kind}, aligned" if aligned else kind
    values, residual = draw(n, np.float32), draw(n, np.float32)
    values_in, residual_in = session.upload(values), session.upload(residual)
    reads = values.nbytes + residual.nbytes

    largest = np.empty(1, np.float32)
    session.cpu("max_abs_sum", values, residual, n, largest)
    result = session.result(np.float32)
    arguments = (values_in, residual_in, n, result)
    yield Check("max_abs_sum", arguments, [(result, largest)], reads, note)

    encoded = np.empty(-(-n // 5) + 4, np.uint8)
    new_residual = np.empty(n, np.float32)
    size = session.cpu("three_lc_encode_tensor", values, residual, s, n, new_residual, encoded)
    encoded_out = session.room_for(encoded)
    encoded = encoded[:size].copy()
    residual_out = session.room_for(new_residual)
    size_out = session.result()
    workspace = session.workspace("three_lc_encode", n)
    arguments = (values_in, residual_in, s, n, residual_out, encoded_out, size_out, workspace)
    expected = [
        (size_out, np.int64([size])),
        (encoded_out, encoded),
        (residual_out, new_residual),
    ]
    # The scale must be known before the first value is quantised: two passes.
    moves = 2 * reads + new_residual.nbytes + size
    yield Check("three_lc_encode_tensor", arguments, expected, moves, note)

    scale = float(encoded[:4].view(np.float32)[0])
    yield from payload_checks(session, encoded[4:].copy(), n, scale, note)
    if n > 1:
        payload = encoded[4:].copy()
        payload[session.random.integers(payload.size)] ^= 0x80
        yield from payload_checks(session, payload, n, scale, "broken")


def payload_checks(session, payload, n, scale, note):
    """Of a payload of n values, or what claims to be one."""
    size = payload.size
    source = session.upload(payload, 1)
    decoded = np.zeros(n, np.float32)
    used = session.cpu("three_lc_decode", payload, size, scale, n, decoded)
    is_valid = used >= 0
    result = session.result()
    expected = [(result, np.int64([used]))]
    workspace = session.workspace("three_lc_decode", size, n)

    arguments = (source, size, n, result, workspace)
    yield Check("three_lc_validate", arguments, expected, size if is_valid else None, note)

    target = session.room_for(decoded)
    arguments = (source, size, scale, n, target, result, workspace)
    outputs = [(target, decoded)] if is_valid else []
    moves = size + decoded.nbytes if is_valid else None
    yield Check("three_lc_decode", arguments, expected + outputs, moves, note)

    total = session.random.standard_normal(n, np.float32)
    target = session.upload(total)
    session.cpu("three_lc_decode_add", payload, size, scale, n, total)
    arguments = (source, size, scale, n, target, result, workspace)
    outputs = [(target, total)] if is_valid else []
    # Where all values to be added are 0 nothing must move.
    moves = size + 2 * touched_bytes(decoded) if is_valid else None
    yield Check("three_lc_decode_add", arguments, expected + outputs, moves, note)


def touched_bytes(decoded):
    """The size of the 32-byte sectors in which some value is not 0."""
    sectors = np.zeros(-(-decoded.size // 8) * 8, bool)
    sectors[: decoded.size] = decoded != 0
    return 32 * int(sectors.reshape(-1, 8).any(axis=1).sum())
