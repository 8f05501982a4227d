"""THC's quantiser (Li et al., NSDI 2024, algorithm 3)."""

from tf_gc.ops.library import library

__all__ = ["thc_blocks", "thc_decode", "thc_decode_sums", "thc_quantize"]


def thc_blocks(values, name=None):
    """Cuts a vector in the blocks that THC transforms.

    Args:
      values: float32 tensor [n].
      name: Name of the op.

    Returns:
      float32 tensor [blocks, d], the last row padded with zeros. d is the largest
      power of two, 64 to 65536, that needs less than one part in 128 of padding,
      or else 64.

    Raises:
      tf.errors.InvalidArgumentError: `values` is not a vector. In a tf.function
        that is ValueError where it is known while tracing.
    """
    return library.tf_gc_thc_blocks(values, name=name)


def thc_quantize(blocks, limits, table, bits, signs, rounding, nearest=False, name=None):
    """Rotates blocks, and rounds the values to indices of a few bits.

        R = H D block
        z = stochastic index of R, clamped to [-limit, limit], among
            limit (2 table[z] / table[-1] - 1)

    with the orthonormal H of `hadamard` and random signs D. What the index stands
    for is the clamped value on average, or, with `nearest`, the value next to it, with
    half the squared error. The same arguments give the same indices
    everywhere, with any number of threads, denormal numbers aside, which some
    threads take as zeros.

    Args:
      blocks: float32 tensor [blocks, d], from `thc_blocks`.
      limits: float32 tensor [blocks]. Where it is 0, all values count as 0.
      table: int32 tensor [2^bits] that ascends from 0, at most 65535.
      bits: 2, 3, 4, 5 or 8, a Python integer.
      signs: int32 or int64, the seed of D: a scalar, the key, or a vector of two,
        key and stream.
      rounding: the same of the rounding, of the type of `signs`. It does not count
        with `nearest`.
      nearest: bool, whether z is the index of the nearest value, and of two the
        lower one.
      name: Name of the op.

    Returns:
      uint8 tensor [ceil(blocks d bits / 8)], the indices as `pack_bits` packs
      them.

    Raises:
      tf.errors.InvalidArgumentError: an argument has another shape; `table` does
        not ascend from 0; `bits` is another number. In a tf.function what is
        known while tracing is ValueError.
    """
    return library.tf_gc_thc_quantize(
        blocks, limits, table, signs, rounding, bits=bits, nearest=nearest, name=name
    )


def thc_decode(packed, limits, table, bits, signs, size, name=None):
    """Gives the values that the indices of `thc_quantize` stand for.

        values = D H (limit (2 table[z] / table[-1] - 1))

    Args:
      packed: uint8 tensor, from `thc_quantize`.
      limits: what it got.
      table: what it got.
      bits: what it got.
      signs: what it got.
      size: int32 or int64 scalar, how many values `thc_blocks` was given.
      name: Name of the op.

    Returns:
      float32 tensor [size].

    Raises:
      tf.errors.DataLossError: `packed` has another size, or padding other than
        0.
      tf.errors.InvalidArgumentError: another argument has another shape than it
        had for `thc_quantize`; `size` is negative. In a tf.function what is known
        while tracing is ValueError.
    """
    return library.tf_gc_thc_decode(packed, limits, table, signs, size, bits=bits, name=name)


def thc_decode_sums(sums, limits, granularity, workers, signs, size, name=None):
    """Gives the sum over the workers of what their indices stand for.

        values = D H (limit (2 sums / granularity - workers))

    Args:
      sums: uint8 or uint16 tensor, for each value of all blocks the sum of
        table[z] over the workers.
      limits: what all workers gave `thc_quantize`.
      granularity: table[-1], a Python integer.
      workers: how many they are, a Python integer.
      signs: what all workers gave `thc_quantize`.
      size: int32 or int64 scalar, how many values `thc_blocks` was given.
      name: Name of the op.

    Returns:
      float32 tensor [size].

    Raises:
      tf.errors.InvalidArgumentError: an argument has a wrong shape; `size` is
        negative. In a tf.function what is known while tracing is ValueError.
    """
    return library.tf_gc_thc_decode_sums(
        sums, limits, signs, size, granularity=granularity, workers=workers, name=name
    )
