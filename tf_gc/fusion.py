"""Variables -> buckets: what travels together."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tf_gc.compressors import Compressor, Uncompressed

# Large enough to outweigh the one or two milliseconds that an all-reduce costs
# whatever it carries, small enough that the first are sent while gradients of
# other variables are still being computed.
_BUCKET_BYTES = 16 << 20
# A shard of so many float32 gradients takes 64 KiB at 1.6 bits a value, the most of
# 3LC: less would cost a message as much as this.
_SHARD_BYTES = 20 * (64 << 10)
_MAX_VALUES = 2**31 - 1  # whose indices are int32


@dataclasses.dataclass(frozen=True)
class Gradient:
    """What fusion knows of a gradient."""

    compressor: Compressor
    dtype: tf.DType
    size: int  # in values
    has_units: bool = True  # as matrices have


def default_bucket_bytes(workers: int) -> int:
    """Returns the size of a bucket in bytes of gradients, which grows with the workers' number."""
    return max(_BUCKET_BYTES, workers * _SHARD_BYTES)


def plan_buckets(gradients: Sequence[Gradient], bucket_bytes: int) -> list[list[int]]:
    """Cuts a list of gradients in buckets.

    A bucket holds gradients of one compressor, and of one dtype unless they are
    not compressed; where an error is spread over several variables, they all have
    units, or none has. It is closed when the next gradient would make it larger than
    `bucket_bytes`, or, if the compressor wants the whole model in one, larger than
    the 2^31 - 1 values that selection knows; a gradient that is larger than that
    has a bucket of its own. Back-propagation finishes
    with the first variables, so buckets are formed from the last on.

    Args:
      gradients: in the order of their variables.
      bucket_bytes: size of a bucket in bytes of gradients.

    Returns:
      For each bucket the indices of its gradients.
    """
    buckets = []
    open_buckets = {}  # kind -> (indices, bytes)
    for index in reversed(range(len(gradients))):
        gradient = gradients[index]
        is_exact = isinstance(gradient.compressor, Uncompressed)
        needs_units = (
            gradient.compressor.spreads_errors and gradient.compressor.units == "second_moment"
        )
        is_apart = needs_units and not gradient.has_units and gradient.size > 0
        kind = (gradient.compressor, None if is_exact else gradient.dtype, is_apart)
        size = gradient.size * gradient.dtype.size
        whole_model = gradient.compressor.whole_model
        most = _MAX_VALUES * gradient.dtype.size if whole_model else bucket_bytes
        indices, filled = open_buckets.get(kind, ([], 0))
        if indices and filled + size > most:
            buckets.append(indices)
            indices, filled = [], 0
        open_buckets[kind] = ([*indices, index], filled + size)
    return buckets + [indices for indices, _ in open_buckets.values()]
