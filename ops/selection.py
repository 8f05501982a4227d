"""Which values are sent, and their indices in few bytes."""

from tf_gc.ops.library import library

__all__ = [
    "chunk_argmax",
    "magnitude_histogram",
    "pack_indices",
    "scatter",
    "scatter_update",
    "sum_selected",
    "top_k_indices",
    "unpack_indices",
]


def top_k_indices(values, k, name=None):
    """Finds the k values of the largest magnitude, exactly.

    Magnitudes are compared by the bits of |value|: NaN counts as larger than
    infinity, and -0 = +0. Of equal magnitudes the lower indices come first, so
    that there is one result, whatever the number of threads.

    Args:
      values: float32, float16 or bfloat16 tensor [n], n < 2^31.
      k: int32 or int64 scalar, how many of them, 0 ... n.
      name: Name of the op.

    Returns:
      int32 tensor [k], their indices in ascending order.

    Raises:
      tf.errors.InvalidArgumentError: `values` is not a vector, or k is out of
        range. In a tf.function that is ValueError where it is known while
        tracing.
    """
    return library.tf_gc_top_k_indices(values, k, name=name)


def chunk_argmax(values, chunk, name=None):
    """Finds the value of the largest magnitude in each chunk of values.

        indices[c] = c chunk + argmax_j |values[c chunk + j]|,  0 <= j < chunk

    The last chunk may be shorter. Magnitudes are compared by the bits of
    |value|: NaN counts as larger than infinity, and -0 = +0. Of equal
    magnitudes the lowest index is taken. ScaleCom (Chen et al., NeurIPS 2020),
    section 3.

    Args:
      values: float32, float16 or bfloat16 tensor [n], n < 2^31.
      chunk: int32 or int64 scalar, the number of values in a chunk, at least 1.
      name: Name of the op.

    Returns:
      int32 tensor [ceil(n / chunk)] of indices of `values`.

    Raises:
      tf.errors.InvalidArgumentError: `values` is not a vector, or `chunk` is
        less than 1. In a tf.function that is ValueError where it is known while
        tracing.
    """
    return library.tf_gc_chunk_argmax(values, chunk, name=name)


def magnitude_histogram(values, name=None):
    """Counts values, and adds up their squares, by their magnitude.

    A bin has the magnitudes of one exponent and of the same upper 5 bits of the
    mantissa of float32: bin b those from 2^(b // 32 - 127) (1 + b % 32 / 32) on,
    up to where bin b + 1 begins, 1.6 to 3.1 % above. Zeros, and denormal numbers,
    whose squares count as 0, are in bins 0 ... 31. Values that are not finite are
    in no bin.

    Args:
      values: float32, float16 or bfloat16 tensor [n], n < 2^31.
      name: Name of the op.

    Returns:
      The counts, int64 [8160], and the sums of squares, float64 [8160]: each
      square is rounded down by at most 2^-29 of itself, and added exactly, so
      that there is one result, whatever the number of threads.

    Raises:
      tf.errors.InvalidArgumentError: `values` is not a vector. In a tf.function
        that is ValueError where it is known while tracing.
    """
    return library.tf_gc_magnitude_histogram(values, name=name)


def pack_indices(indices, size, name=None):
    """Packs a set of indices as a bitmap or in Elias-Fano form.

    Whichever is smaller is taken: at most `size` bits in all, and about
    2 + log2(size / k) bits for each of k indices where they are few. The form
    follows from k and `size`, which the bytes do not hold.

    Args:
      indices: int32 tensor [k], strictly ascending, in 0 ... size - 1.
      size: int32 or int64 scalar, what all indices are below, at most 2^31 - 1.
      name: Name of the op.

    Returns:
      uint8 vector; its size follows from k and `size`.

    Raises:
      tf.errors.InvalidArgumentError: An index does not ascend or is out of
        range (the first such position is named), or `size` is out of range. In
        a tf.function that is ValueError where it is known while tracing.
    """
    return library.tf_gc_pack_indices(indices, size, name=name)


def unpack_indices(packed, count, size, sender=-1, name=None):
    """Unpacks what `pack_indices` has packed.

    Args:
      packed: uint8 vector of the size that `count` and `size` ask for.
      count: int32 or int64 scalar, the number of indices, 0 ... size.
      size: int32 or int64 scalar, what all indices are below, at most 2^31 - 1.
      sender: int32 scalar, the rank of the worker that has sent `packed`, for the
        error; -1 if nobody has.
      name: Name of the op.

    Returns:
      int32 tensor [count], strictly ascending, in 0 ... size - 1.

    Raises:
      tf.errors.DataLossError: `packed` has another size, or holds what
        `pack_indices` cannot have written. The error names the sender.
      tf.errors.InvalidArgumentError: `count` or `size` is out of range. In a
        tf.function that, and another size of `packed`, is ValueError where it
        is known while tracing.
    """
    return library.tf_gc_unpack_indices(packed, count, size, sender, name=name)


def sum_selected(messages, count, size, name=None):
    """Adds up what each of several workers has selected of a vector.

        sums[i] = sum of the workers' values at index i, in the order of ranks

    Args:
      messages: uint8 tensor [workers, bytes]: of each worker what `pack_indices`
        gives for its `count` indices, and the bytes of the float32 values at these.
      count: int32 or int64 scalar, the number of values in each message, 0 ... size.
      size: int32 or int64 scalar, the length of the result, at most 2^31 - 1.
      name: Name of the op.

    Returns:
      float32 tensor [size], the same bits on any number of threads.

    Raises:
      tf.errors.DataLossError: `messages` have another size, or one holds what
        `pack_indices` cannot have written; the error names its rank.
      tf.errors.InvalidArgumentError: `messages` is not a matrix, or `count` or
        `size` is out of range. In a tf.function that, and another size of
        `messages`, is ValueError where it is known while tracing.
    """
    return library.tf_gc_sum_selected(messages, count, size, name=name)


def scatter(indices, values, size, name=None):
    """Adds up values at indices of a vector of zeros.

        sums[i] = sum of the values[j] whose indices[j] = i

    Values of one index are added one after the other. It does what
    `tf.scatter_nd` does, which takes much longer for single values.

    Args:
      indices: int32 tensor [k], in 0 ... size - 1, in any order.
      values: float32 tensor [k].
      size: int32 or int64 scalar, the length of the result, at most 2^31 - 1.
      name: Name of the op.

    Returns:
      float32 tensor [size].

    Raises:
      tf.errors.InvalidArgumentError: An index or `size` is out of range, or
        there is not one value for each index. In a tf.function that is
        ValueError where it is known while tracing.
    """
    return library.tf_gc_scatter(indices, values, size, name=name)


def scatter_update(values, indices, others, name=None):
    """Replaces the values at indices, in place where nothing else needs `values`.

    Of equal indices the last counts. It does what `tf.tensor_scatter_nd_update`
    does, which takes much longer for single values.

    Args:
      values: float32 tensor [n], n < 2^31.
      indices: int32 tensor [k], in 0 ... n - 1, in any order.
      others: float32 tensor [k].
      name: Name of the op.

    Returns:
      float32 tensor [n].

    Raises:
      tf.errors.InvalidArgumentError: An index is out of range, or there is not
        one value for each index. In a tf.function that is ValueError where it is
        known while tracing.
    """
    return library.tf_gc_scatter_update(values, indices, others, name=name)
