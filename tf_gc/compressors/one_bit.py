"""One bit a value, with the two magnitudes of the least squared error."""

import dataclasses

import tensorflow as tf

from tf_gc import ops
from tf_gc.compressors import gathered, scales
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["OneBit"]


@dataclasses.dataclass(frozen=True)
class OneBit(FusedCompressor):
    """1-bit quantisation with minimum squared error (Seide et al., "1-Bit Stochastic
    Gradient Descent and its Application to Data-Parallel Distributed Training of Speech
    DNNs", Interspeech 2014; "MQE 1-bit int" in Lim et al., "3LC", MLSys 2019).

    With the gradient plus residual t of a variable and worker:

        q = the mean of the t >= 0 where t >= 0, else the mean of the t < 0
        sum = sum over the workers of q,    e <- t - q

    Of all ways to send one bit a value and two magnitudes, these means have the
    least squared error. It is biased in each step, and its error feedback
    delivers later what is missing. Every worker sends its bits to all others.
    """

    shares_second_moment = True

    def reduce(self, values, exchange):
        # The other sign's values are zeros, which change no sum.
        parts = tf.maximum(values, 0.0), tf.minimum(values, 0.0)
        sums = [scales.per_variable(scales.total, part, exchange) for part in parts]
        negative = scales.per_variable(_count_negative, values, exchange)
        counts = [tf.constant(exchange.sizes, tf.float32) - negative, negative]
        means = tf.math.divide_no_nan(tf.stack(sums), tf.stack(counts))

        def decode(means, packed):
            positive = ops.sign_unpack(packed, exchange.size) > 0
            return tf.where(
                positive, scales.spread(means[0], exchange), scales.spread(means[1], exchange)
            )

        total, own = gathered.decode_all(
            means, ops.sign_pack(values), decode, exchange, least=float("-inf")
        )
        return total, values - own


def _count_negative(values):
    return tf.cast(tf.math.count_nonzero(values < 0), tf.float32)
