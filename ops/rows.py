"""Gradients that have few rows, as `tf.IndexedSlices` do, in few bytes."""

from tf_gc.ops.library import library

__all__ = ["pack_rows", "sum_packed_rows"]


def pack_rows(indices, values, seed, bucket, shapes, bits, group_size, name=None):
    """Packs the rows that sparse gradients of a bucket's variables have.

    Rows of one index are added up. Of each row x that remains, a value travels in
    b bits, as a code c, and the row's scale M as a bfloat16:

        M = max |x|, rounded up,    s = 2^(b - 1) - 1
        c = stochastic rounding of s x / M + s, so that M (c - s) / s is x on average

    The indices are packed as in `pack_indices`. A row that is not finite becomes
    NaN. With 32 bits values are float32, and exact, finite or not.

    Counts one step in the bucket's traffic and, by variable, the values that each
    worker sends of these rows in it: 2 size (group_size - 1) / group_size, rounded.

    Args:
      indices: list of int64 vectors, the rows of each gradient; one may come more
        than once.
      values: list of float32 tensors, the values of these rows.
      seed: int32 or int64, a scalar, the key of a Philox stream; or a vector of
        two, the key and which of its streams.
      bucket: handle from `bucket`.
      shapes: list of the variables' shapes, fully defined, of less than 2^31 rows.
      bits: b, a Python integer: 2, 3, 4, 5, 8 or 32.
      group_size: int, the number of workers that exchange the rows.
      name: Name of the op.

    Returns:
      uint8 vector for `sum_packed_rows`; docs/wire_format.md has its bytes.

    Raises:
      tf.errors.InvalidArgumentError: an index is out of range, values have another
        shape than their variable's rows, or `bits` is another number. In a
        tf.function that is ValueError where it is known while tracing.
    """
    return library.tf_gc_pack_rows(
        indices,
        values,
        seed,
        bucket,
        shapes=shapes,
        bits=bits,
        group_size=group_size,
        name=name,
    )


def sum_packed_rows(messages, shapes, name=None):
    """Adds up the rows of several workers, in the order of the messages.

    Args:
      messages: `tf.RaggedTensor` of uint8; its rows are vectors from `pack_rows`, of
        the same variables.
      shapes: list of the variables' shapes, fully defined.
      name: Name of the op.

    Returns:
      A named tuple of lists, by variable: `indices`, int64 vectors, strictly
      ascending, and `values`, the float32 values of these rows.

    Raises:
      tf.errors.DataLossError: a message holds what `pack_rows` cannot have written;
        the error names the message and the field.
    """
    messages = messages.with_row_splits_dtype("int64")
    return library.tf_gc_sum_packed_rows(
        messages.values, messages.row_splits, N=len(shapes), shapes=shapes, name=name
    )
