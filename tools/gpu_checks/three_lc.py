"""3LC: quartic and zero-run encoding, and the fused kernels."""

import numpy as np
from gpu_check import Check


def checks(session, n):
    yield from quartic_checks(session, n)
    yield from zero_run_checks(session, n)
    yield from tensor_checks(session, n)


def quartic_checks(session, n):
    """Of n values as they are, and of as many as begin at an odd address."""
    random = session.random
    for misalignment in (0, 1):
        ternary = random.integers(-1, 2, n, np.int8)
        quartic = np.empty(-(-n // 5), np.uint8)
        session.cpu("quartic_encode", ternary, n, quartic)
        moves = ternary.nbytes + quartic.nbytes
        suffix = " (unaligned)" if misalignment else ""

        values = session.upload(ternary, misalignment)
        encoded = session.room_for(quartic, 2 * misalignment)
        yield Check(
            "quartic_encode" + suffix,
            lambda v=values, e=encoded: session.cuda("quartic_encode", v, n, e),
            moves,
            [(encoded, quartic)],
        )
        encoded = session.upload(quartic, 3 * misalignment)
        decoded = session.room_for(ternary, 5 * misalignment)
        yield Check(
            "quartic_decode" + suffix,
            lambda e=encoded, d=decoded: session.cuda("quartic_decode", e, n, d),
            moves,
            [(decoded, ternary)],
        )
        first = session.result()
        yield Check(
            "find_non_ternary" + suffix,
            lambda v=values, f=first: session.cuda("find_non_ternary", v, n, f),
            ternary.nbytes,
            [(first, np.int64([-1]))],
        )
        if n > 0:
            ternary[random.integers(n, size=2)] = 5
            values = session.upload(ternary, misalignment)
            first = session.result()
            yield Check(
                "find_non_ternary, bad" + suffix,
                lambda v=values, f=first: session.cuda("find_non_ternary", v, n, f),
                ternary.nbytes,
                [(first, np.int64([session.cpu("find_non_ternary", ternary, n)]))],
            )
        bytes_ = random.integers(0, 243, quartic.size, np.uint8)
        encoded = session.upload(bytes_, misalignment)
        first = session.result()
        yield Check(
            "find_non_quartic" + suffix,
            lambda e=encoded, f=first: session.cuda("find_non_quartic", e, n, f),
            quartic.nbytes,
            [(first, np.int64([session.cpu("find_non_quartic", bytes_, n)]))],
        )


def zero_run_checks(session, m):
    """Of m quartic bytes."""
    for zeros in (0.5, 0.98):
        quartic = random_quartic(session.random, m, zeros)
        encoded = np.empty(m + 64, np.uint8)
        size = session.cpu("zero_run_encode", quartic, m, encoded)
        encoded = encoded[:size].copy()
        suffix = f", {zeros:.0%} zeros"

        source = session.upload(quartic, 1)
        target = session.room_for(quartic, 2)
        workspace = session.workspace("zero_run_encode", m)
        result = session.result()
        yield Check(
            "zero_run_encode" + suffix,
            lambda a=(source, m, target, result, workspace): session.cuda("zero_run_encode", *a),
            quartic.nbytes + encoded.nbytes,
            [(result, np.int64([size])), (target, encoded)],
        )
        source = session.upload(encoded, 3)
        total = session.result()
        yield Check(
            "zero_run_decoded_size" + suffix,
            lambda a=(source, size, total): session.cuda("zero_run_decoded_size", *a),
            encoded.nbytes,
            [(total, np.int64([m]))],
        )
        target = session.room_for(quartic, 5)
        workspace = session.workspace("zero_run_decode", size, m)
        result = session.result()
        yield Check(
            "zero_run_decode" + suffix,
            lambda a=(source, size, m, target, result, workspace): session.cuda(
                "zero_run_decode", *a
            ),
            quartic.nbytes + encoded.nbytes,
            [(result, np.int64([size])), (target, quartic)],
        )
        # One quartic byte more than there are, and one less.
        for other in (m + 1, m - 1):
            if other < 0:
                continue
            expected = session.cpu(
                "zero_run_decode", encoded, size, other, np.empty(other, np.uint8)
            )
            target = session.room_for(np.empty(other, np.uint8))
            workspace = session.workspace("zero_run_decode", size, other)
            result = session.result()
            yield Check(
                "zero_run_decode, wrong size" + suffix,
                lambda a=(source, size, other, target, result, workspace): session.cuda(
                    "zero_run_decode", *a
                ),
                encoded.nbytes,
                [(result, np.int64([expected]))],
            )


def tensor_checks(session, n):
    """Of tensors whose five partitions are aligned to 16 bytes, and others."""
    for size in sorted({n, n // 20 * 20}):
        for s in (1.0, 1.75):
            yield from one_tensor_checks(session, size, s)


def one_tensor_checks(session, n, s):
    random = session.random
    values = random.standard_normal(n, np.float32)
    residual = random.standard_normal(n, np.float32)
    suffix = f", s = {s}" + ("" if n % 20 else ", aligned")

    largest = np.empty(1, np.float32)
    session.cpu("max_abs_sum", values, residual, n, largest)
    values_in, residual_in = session.upload(values), session.upload(residual)
    result = session.result(np.float32)
    if s == 1:
        yield Check(
            "max_abs_sum" + suffix,
            lambda: session.cuda("max_abs_sum", values_in, residual_in, n, result),
            values.nbytes + residual.nbytes,
            [(result, largest)],
        )

    encoded = np.empty(-(-n // 5) + 68, np.uint8)
    new_residual = np.empty(n, np.float32)
    size = session.cpu("three_lc_encode_tensor", values, residual, s, n, new_residual, encoded)
    encoded = encoded[:size].copy()
    workspace = session.workspace("three_lc_encode", n)
    encoded_out = session.room_for(np.empty(-(-n // 5) + 4, np.uint8))
    residual_out = session.room_for(new_residual)
    size_out = session.result()
    # Two passes: the scale must be known before the first value is quantised.
    arguments = (values_in, residual_in, s, n, residual_out, encoded_out, size_out, workspace)
    yield Check(
        "three_lc_encode_tensor" + suffix,
        lambda: session.cuda("three_lc_encode_tensor", *arguments),
        2 * (values.nbytes + residual.nbytes) + new_residual.nbytes + size,
        [(size_out, np.int64([size])), (encoded_out, encoded), (residual_out, new_residual)],
    )

    payload = encoded[4:].copy()
    scale = float(encoded[:4].view(np.float32)[0])
    source = session.upload(payload, 1)
    decoded = np.empty(n, np.float32)
    used = session.cpu("three_lc_decode", payload, payload.size, scale, n, decoded)
    values_out = session.room_for(decoded)
    workspace = session.workspace("three_lc_decode", payload.size, n)
    used_out = session.result()
    yield Check(
        "three_lc_decode" + suffix,
        lambda a=(source, payload.size, scale, n, values_out, used_out, workspace): session.cuda(
            "three_lc_decode", *a
        ),
        payload.nbytes + decoded.nbytes,
        [(used_out, np.int64([used])), (values_out, decoded)],
    )
    total = residual.copy()
    session.cpu("three_lc_decode_add", payload, payload.size, scale, n, total)
    sum_out = session.upload(residual)
    used_out = session.result()
    # A sum of which a 32-byte sector has only zeros to add need not move.
    yield Check(
        "three_lc_decode_add" + suffix,
        lambda a=(source, payload.size, scale, n, sum_out, used_out, workspace): session.cuda(
            "three_lc_decode_add", *a
        ),
        payload.nbytes + 2 * touched_bytes(decoded),
        [(used_out, np.int64([used])), (sum_out, total)],
    )
    used_out = session.result()
    yield Check(
        "three_lc_validate" + suffix,
        lambda a=(source, payload.size, n, used_out, workspace): session.cuda(
            "three_lc_validate", *a
        ),
        payload.nbytes,
        [(used_out, np.int64([used]))],
    )
    if n > 1:
        broken = payload.copy()
        broken[session.random.integers(payload.size)] ^= 0x80
        source_broken = session.upload(broken, 1)
        used = session.cpu("three_lc_decode", broken, broken.size, scale, n, decoded)
        used_out = session.result()
        yield Check(
            "three_lc_validate, broken" + suffix,
            lambda a=(source_broken, broken.size, n, used_out, workspace): session.cuda(
                "three_lc_validate", *a
            ),
            payload.nbytes,
            [(used_out, np.int64([used]))],
        )


def random_quartic(random, m, zeros):
    quartic = random.integers(0, 243, m, np.uint8)
    quartic[random.random(m, np.float32) < zeros] = 121
    return quartic


def touched_bytes(decoded):
    """The size of the 32-byte sectors in which some value is not 0."""
    sectors = np.zeros(-(-decoded.size // 8) * 8, bool)
    sectors[: decoded.size] = decoded != 0
    return 32 * int(sectors.reshape(-1, 8).any(axis=1).sum())
