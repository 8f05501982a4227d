"""What compressors share whose quantised values every worker sends to all others."""

from collections.abc import Callable

import tensorflow as tf

from tf_gc import ops
from tf_gc.compressors.scales import from_units, spread
from tf_gc.exchange import Exchange, from_bytes, received, to_bytes


def decode_all(
    scales: tf.Tensor,
    codes: tf.Tensor,
    decode: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    exchange: Exchange,
    least: float = 0.0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes what all workers send, scales and codes in one message.

    Args:
      scales: float32 tensor of a known shape, this worker's.
      codes: uint8 vector, this worker's; as long as the others'.
      decode: function of scales and codes that returns float32 [n].
      exchange: the way to the other workers.
      least: no scale is less, or NaN.

    Returns:
      The sum over the workers of what is decoded, in the order of ranks, and
      this worker's share of it; both float32 [n].
    """
    messages = exchange.all_gather(tf.concat([to_bytes(scales), codes], 0))
    header = scales.shape.num_elements() * scales.dtype.size

    def share_of(rank):
        theirs = from_bytes(messages[rank, :header], scales.dtype, scales.shape)
        are_scales = tf.reduce_all(theirs >= least)
        theirs = received(theirs, are_scales, f"scales: one is NaN, or less than {least}")
        return decode(theirs, messages[rank, header:])

    def add(so_far, rank):
        total, own = so_far
        share = share_of(rank)
        return total + share, tf.cond(rank == exchange.rank, lambda: share, lambda: own)

    zeros = tf.zeros([exchange.size])
    return exchange.fold(add, (zeros, zeros))


def sum_signs(
    magnitudes: tf.Tensor, values: tf.Tensor, exchange: Exchange
) -> tuple[tf.Tensor, tf.Tensor]:
    """Sends the signs of values, and a magnitude for each variable.

    Args:
      magnitudes: float32 [number of variables], this worker's; in units, where there are any.
      values: float32 [n], of which the signs are sent.
      exchange: the way to the other workers.

    Returns:
      What `decode_all` does.
    """

    def decode(theirs, signs):
        return from_units(spread(theirs, exchange), exchange) * ops.sign_unpack(
            signs, exchange.size
        )

    return decode_all(magnitudes, ops.sign_pack(values), decode, exchange)
