"""The compression kernels as TensorFlow ops.

Every op here is deterministic, runs on the CPU, and is not differentiable:
gradients do not flow through encodings. `tf_gc.kernels` has the same functions
for NumPy arrays.
"""

import os

import tensorflow as tf

__all__ = [
    "bucket",
    "bucket_traffic",
    "exact_all_reduce",
    "quartic_decode",
    "quartic_encode",
    "three_lc_all_reduce",
    "three_lc_decode",
    "three_lc_encode",
    "zero_run_decode",
    "zero_run_encode",
]


def _load_library():
    library = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libtf_gc_ops.so")
    if not os.path.exists(library):
        raise ImportError(f"{library} is missing: run ./setup.sh or pip install . in a clone")
    return tf.load_op_library(library)


_library = _load_library()

for _name in (
    "TfGc>ExactAllReduce",
    "TfGc>ThreeLcAllReduce",
    "TfGc>QuarticEncode",
    "TfGc>QuarticDecode",
    "TfGc>ZeroRunEncode",
    "TfGc>ZeroRunDecode",
    "TfGc>ThreeLcEncode",
    "TfGc>ThreeLcDecode",
):
    tf.no_gradient(_name)


def quartic_encode(ternary, name=None):
    """Packs five values of {-1, 0, 1} in one byte.

    1 is added to the flattened values, zeros are appended up to a multiple of
    five, and the result is cut in five equal partitions p0 ... p4. Then

        quartic[i] = 81 p0[i] + 27 p1[i] + 9 p2[i] + 3 p3[i] + p4[i]

    3LC (Lim et al., MLSys 2019), section 3.2.

    Args:
      ternary: int8 tensor of any shape, n values of {-1, 0, 1} in all.
      name: Name of the op.

    Returns:
      uint8 tensor [ceil(n / 5)], each byte in 0 ... 242.

    Raises:
      tf.errors.InvalidArgumentError: A value is not -1, 0 or 1.
    """
    return _library.tf_gc_quartic_encode(ternary, name=name)


def quartic_decode(encoded, shape, name=None):
    """Unpacks what `quartic_encode` has packed.

    Args:
      encoded: uint8 tensor [ceil(n / 5)] for a shape of n values.
      shape: int32 or int64 vector, the shape of the result.
      name: Name of the op.

    Returns:
      int8 tensor of that shape, values of {-1, 0, 1}.

    Raises:
      tf.errors.InvalidArgumentError: `encoded` has not the size that `shape`
        asks for, or holds a byte that `quartic_encode` cannot have written;
        `shape` has a negative dimension. In a tf.function that is ValueError
        where it is known while tracing.
    """
    return _library.tf_gc_quartic_decode(encoded, shape, name=name)


def zero_run_encode(quartic, name=None):
    """Shortens runs of the quartic byte 121, which stands for five zeros.

    A run of k bytes 121, 2 <= k <= 14, becomes the byte 243 + (k - 2); longer
    runs are cut in 14s, and other bytes stay. 3LC (Lim et al., MLSys 2019),
    section 3.3.

    Args:
      quartic: uint8 tensor [m], bytes in 0 ... 242.
      name: Name of the op.

    Returns:
      uint8 tensor of at most m bytes.

    Raises:
      tf.errors.InvalidArgumentError: A byte is greater than 242.
    """
    return _library.tf_gc_zero_run_encode(quartic, name=name)


def zero_run_decode(encoded, size, name=None):
    """Restores what `zero_run_encode` has shortened.

    Args:
      encoded: uint8 tensor [k].
      size: int32 or int64 scalar, the number m of quartic bytes.
      name: Name of the op.

    Returns:
      uint8 tensor [m], bytes in 0 ... 242.

    Raises:
      tf.errors.DataLossError: `encoded` stands for fewer or more than `size`
        bytes.
      tf.errors.InvalidArgumentError: `size` is negative.
    """
    return _library.tf_gc_zero_run_decode(encoded, size, name=name)


def three_lc_encode(values, residual, sparsity_multiplier, name=None):
    """Encodes values + residual with 3LC, and keeps what was not sent.

        t = values + residual
        M = sparsity_multiplier * max |t|
        q = sign(t) where 2 |t| > M, else 0
        new_residual = t - M q
        encoded = M, zero_run_encode(quartic_encode(q))

    in float32 arithmetic, whatever the type of `values`. If some t is not
    finite, or M overflows, the scale M is sent as NaN without a payload and the
    residual stays as it was. 3LC (Lim et al., MLSys 2019), section 3.

    Args:
      values: float32, float16 or bfloat16 tensor of any shape.
      residual: float32 tensor of the same shape.
      sparsity_multiplier: float32 scalar s, 1 <= s < 2. The greater it is, the
        fewer bytes are sent, and the later small values arrive.
      name: Name of the op.

    Returns:
      A named tuple of
        encoded: uint8 tensor, 4 bytes of scale (little-endian float32) and the
          payload of at most one byte for five values;
        new_residual: float32 tensor of the same shape.

    Raises:
      tf.errors.InvalidArgumentError: The shapes differ, or the sparsity
        multiplier is out of range. In a tf.function that is ValueError where
        it is known while tracing.
    """
    return _library.tf_gc_three_lc_encode(values, residual, sparsity_multiplier, name=name)


def three_lc_decode(encoded, shape, name=None):
    """Decodes what `three_lc_encode` has encoded: M q.

    Args:
      encoded: uint8 tensor, the scale and the payload.
      shape: int32 or int64 vector, the shape of the result.
      name: Name of the op.

    Returns:
      float32 tensor of that shape: values of {-M, 0, M}, or NaN everywhere if
      the scale is NaN.

    Raises:
      tf.errors.DataLossError: `encoded` is truncated, too long for `shape`, or
        not such an encoding.
      tf.errors.InvalidArgumentError: `shape` has a negative dimension.
    """
    return _library.tf_gc_three_lc_decode(encoded, shape, name=name)


def bucket(key, variables, name=None):
    """Makes the state that the all-reduces of one bucket of variables share.

    It orders these all-reduces, which TensorFlow runs one after the other, and
    counts what they send. It lives as long as its handle.

    Args:
      key: str, the same on all workers, and no other bucket's.
      variables: int, the number of variables in the bucket.
      name: Name of the op.

    Returns:
      A scalar resource handle.
    """
    return _library.tf_gc_bucket(key=key, variables=variables, name=name)


def bucket_traffic(bucket, name=None):
    """Reads what the all-reduces of a bucket have sent since it was made.

    Args:
      bucket: handle from `bucket`.
      name: Name of the op.

    Returns:
      A named tuple of int64 tensors: scalars `rounds`, `bytes_sent` and
      `bytes_received`, and by variable `values_sent` (counted once per receiver)
      and `payload_bytes_sent`.
    """
    return _library.tf_gc_bucket_traffic(bucket, name=name)


def exact_all_reduce(
    gradients, bucket, group_key, group_size, reduce_op="SUM", timeout_seconds=0.0, name=None
):
    """Adds up a bucket of gradients over the workers of a group, uncompressed.

    Values are added in float32 and rounded once.

    Args:
      gradients: list of float32, float16 or bfloat16 tensors of one dtype, of
        the same shapes on all workers.
      bucket: handle from `bucket`.
      group_key: int, the key of the group of devices that take part.
      group_size: int, the number of devices in the group.
      reduce_op: "SUM", or "MEAN" to divide the sums by `group_size`.
      timeout_seconds: how long to wait for the peers; 0 waits for ever.
      name: Name of the op.

    Returns:
      The list of sums (or means), the same bits on all workers.

    Raises:
      tf.errors.UnavailableError: a peer has died.
      tf.errors.DeadlineExceededError: the peers did not come in time.
      tf.errors.DataLossError: the workers have lost step with each other.
    """
    return _library.tf_gc_exact_all_reduce(
        gradients,
        bucket,
        group_key=group_key,
        group_size=group_size,
        reduce_op=reduce_op,
        timeout_seconds=timeout_seconds,
        name=name,
    )


def three_lc_all_reduce(
    gradients,
    residuals,
    sparsity_multiplier,
    bucket,
    group_key,
    group_size,
    reduce_op="SUM",
    timeout_seconds=0.0,
    name=None,
):
    """Adds up a bucket of gradients over the workers of a group, with 3LC.

    Each worker's gradients are compressed on the way to the server of their
    shard, and the sums on the way back; what that leaves over stays in the
    residuals. Over the workers,

        gradients + old residuals = reduced + new residuals

    (for "MEAN", `reduced` times `group_size`). A variable that is not finite on
    some worker becomes NaN on all, and keeps its residual.

    Args:
      gradients: list of float32, float16 or bfloat16 tensors of one dtype, of
        the same shapes on all workers.
      residuals: list of handles of float32 variables of the same shapes, which
        are updated.
      sparsity_multiplier: float32 scalar s, 1 <= s < 2, the same on all workers.
      bucket: handle from `bucket`.
      group_key: int, the key of the group of devices that take part.
      group_size: int, the number of devices in the group.
      reduce_op: "SUM", or "MEAN" to divide the sums by `group_size`.
      timeout_seconds: how long to wait for the peers; 0 waits for ever.
      name: Name of the op.

    Returns:
      The list of sums (or means), the same bits on all workers.

    Raises:
      tf.errors.InvalidArgumentError: a residual has another shape or dtype, or
        the sparsity multiplier is out of range.
      tf.errors.UnavailableError: a peer has died.
      tf.errors.DeadlineExceededError: the peers did not come in time.
      tf.errors.DataLossError: a message is damaged, or the workers have lost
        step with each other.
    """
    return _library.tf_gc_three_lc_all_reduce(
        gradients,
        residuals,
        sparsity_multiplier,
        bucket,
        group_key=group_key,
        group_size=group_size,
        reduce_op=reduce_op,
        timeout_seconds=timeout_seconds,
        name=name,
    )
