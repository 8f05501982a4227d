"""Stochastic quantisation, and sums of what it gives (THC, Li et al., NSDI 2024)."""

from tf_gc.ops.library import library

__all__ = ["pack_bits", "stochastic_quantize", "table_sum", "unpack_bits"]


def stochastic_quantize(values, levels, seed, name=None):
    """Rounds each value to one of the two levels around it, at random.

        v = value, clamped to [levels[0], levels[-1]]; NaN becomes levels[0]
        z = the largest index <= len(levels) - 2 with levels[z] <= v
        index = z + 1 with probability
                    (v - levels[z]) / (levels[z + 1] - levels[z]), else z

    so that levels[index] is v on average. The arithmetic is float32, whatever
    the type of `values`, and the probability a multiple of 2^-16, at most 2^-17
    from the exact one. Value i is drawn with the 16 bits i % 8 of block i / 8 of
    the seed's Philox4x32-10 stream: the same arguments give the same indices
    everywhere, with any number of threads. THC (Li et al., NSDI 2024), sections
    4.1 and 4.3.

    Args:
      values: float32, float16 or bfloat16 tensor of any shape.
      levels: float32 tensor [L], finite and ascending, 2 <= L <= 256.
      seed: int32 or int64, a scalar, the key of the stream; or a vector of two,
        the key and which of its streams. A scalar means stream 0.
      name: Name of the op.

    Returns:
      uint8 tensor of the shape of `values`, indices of `levels`.

    Raises:
      tf.errors.InvalidArgumentError: `levels` or `seed` has another shape; a
        level is not finite, or less than the one before. In a tf.function that
        is ValueError where it is known while tracing.
    """
    return library.tf_gc_stochastic_quantize(values, levels, seed, name=name)


def pack_bits(indices, bits, name=None):
    """Packs indices of a few bits.

    Index i is the bits [bits i, bits (i + 1)) of a little-endian bit string: bit
    b of it is bit b % 8 of byte b / 8. The last byte is padded with zeros.

    Args:
      indices: uint8 tensor of any shape, n indices less than 2^bits in all.
      bits: 2, 3, 4, 5 or 8, a Python integer.
      name: Name of the op.

    Returns:
      uint8 tensor [ceil(n bits / 8)].

    Raises:
      tf.errors.InvalidArgumentError: `bits` is another number (ValueError in a
        tf.function), or an index is too large.
    """
    return library.tf_gc_pack_bits(indices, bits=bits, name=name)


def unpack_bits(packed, bits, size, name=None):
    """Unpacks what `pack_bits` has packed.

    Args:
      packed: uint8 tensor [ceil(size bits / 8)].
      bits: 2, 3, 4, 5 or 8, a Python integer.
      size: int32 or int64 scalar, the number of indices.
      name: Name of the op.

    Returns:
      uint8 tensor [size], indices less than 2^bits.

    Raises:
      tf.errors.DataLossError: `packed` has another size, or padding other than
        0.
      tf.errors.InvalidArgumentError: `bits` is another number; `size` is
        negative. In a tf.function that, and a wrong size of `packed`, is
        ValueError where it is known while tracing.
    """
    return library.tf_gc_unpack_bits(packed, size, bits=bits, name=name)


def table_sum(packed, table, bits, accumulator, name=None):
    """Adds table values of packed indices to sums, without decoding.

        sums[i] = accumulator[i] + table[index i of packed]

    modulo 2^8 for uint8 and 2^16 for uint16. What THC's server does with the
    indices of every worker (Li et al., NSDI 2024, section 4.3): the sums of N
    workers fit while N max(table) is less than 2^8 or 2^16.

    Args:
      packed: uint8 tensor [ceil(n bits / 8)], from `pack_bits`.
      table: int32 tensor [2^bits] of values that fit in the accumulator's type.
      bits: 2, 3, 4, 5 or 8, a Python integer.
      accumulator: uint8 or uint16 tensor of any shape, n sums in all.
      name: Name of the op.

    Returns:
      Tensor of the shape and type of `accumulator`.

    Raises:
      tf.errors.DataLossError: `packed` has another size, or padding other than
        0.
      tf.errors.InvalidArgumentError: `table` has another shape, or an entry
        that does not fit; `bits` is another number. In a tf.function what is
        known while tracing is ValueError.
    """
    return library.tf_gc_table_sum(packed, table, accumulator, bits=bits, name=name)
