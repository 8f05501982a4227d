"""Signs, one bit each, and merging them (Marsit: Wu et al., DAC 2022)."""

from tf_gc.ops.library import library

__all__ = ["apply_signs", "sign_merge", "sign_pack", "sign_unpack"]


def apply_signs(packed, magnitudes, values, sizes, workers, name=None):
    """Gives signs that all workers share to all, and takes them off one's own values.

        total = N m s,    residual = values - m s

    with the signs s and magnitudes m. Marsit (Wu et al., DAC 2022), algorithm 1.

    Args:
      packed: uint8 tensor [ceil(n / 8)], s, as `sign_pack` packs them; the
        padding does not matter.
      magnitudes: float32 tensor, m: one of each variable, or one of each value.
      values: float32 tensor [n], of all variables, one after the other; its
        memory may become that of the residual.
      sizes: list of ints, the numbers of values of the variables, n in all.
      workers: int, N, at least 1.
      name: Name of the op.

    Returns:
      total, float32 tensor [n], and residual, float32 tensor [n].

    Raises:
      tf.errors.InvalidArgumentError: A size does not fit. In a tf.function that
        is ValueError where the shape of `values` is known while tracing.
    """
    total, residual = library.tf_gc_apply_signs(
        packed, magnitudes, values, sizes=sizes, workers=workers, name=name
    )
    return total, residual


def sign_pack(values, name=None):
    """Packs the signs of values, one bit each.

    Bit i % 8 of byte i / 8 is 1 where value i >= 0, -0 too, and 0 for NaN. The
    padding bits of the last byte are 0.

    Args:
      values: float32, float16 or bfloat16 tensor of any shape, n values in all.
      name: Name of the op.

    Returns:
      uint8 tensor [ceil(n / 8)].
    """
    return library.tf_gc_sign_pack(values, name=name)


def sign_unpack(packed, size, name=None):
    """Unpacks what `sign_pack` has packed.

    Args:
      packed: uint8 tensor [ceil(size / 8)].
      size: int32 or int64 scalar, the number of values.
      name: Name of the op.

    Returns:
      float32 tensor [size]: 1 where the bit is 1, else -1.

    Raises:
      tf.errors.InvalidArgumentError: `packed` has not ceil(size / 8) bytes, or
        `size` is negative. In a tf.function that is ValueError where it is
        known while tracing.
      tf.errors.DataLossError: A padding bit is not 0.
    """
    return library.tf_gc_sign_unpack(packed, size, name=name)


def sign_merge(first, second, first_count, second_count, seed, name=None):
    """Merges packed signs of two groups of workers into an unbiased sign.

    Where the bits of `first` and `second` agree, the result has that bit. Where
    they differ it has the bit of `first` with the probability

        first_count / (first_count + second_count)

    but for 2^-20 at most. So if each bit is 1 with a probability that is the
    mean of its workers' bits, then the result's is the mean of all workers'
    bits. Marsit (Wu et al., DAC 2022), section 4.1.1, where `first` is the
    aggregate of m - 1 workers and `second` the m-th worker's own signs.

    The same arguments give the same bits. Merges that are to be independent of
    each other need different seeds.

    Args:
      first: uint8 tensor [k], signs as `sign_pack` packs them.
      second: uint8 tensor [k].
      first_count: int32 or int64 scalar, how many workers `first` is of, at
        least 1.
      second_count: Scalar of the same type, how many workers `second` is of, at
        least 1. The sum of both is at most 2^31 - 1.
      seed: int32 or int64 scalar, the key of the Philox generator, or a vector
        of two: the key and the stream.
      name: Name of the op.

    Returns:
      uint8 tensor [k].

    Raises:
      tf.errors.InvalidArgumentError: The sizes differ, or a count or the sum is
        out of range. In a tf.function that is ValueError where it is known
        while tracing.
    """
    return library.tf_gc_sign_merge(first, second, first_count, second_count, seed, name=name)
