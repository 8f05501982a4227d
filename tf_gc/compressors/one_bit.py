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

    carries_agreement = True
    shares_second_moment = True

    def reduce(self, values, exchange):
        negative = scales.per_variable(_count_negative, values, exchange)
        sizes = tf.constant(exchange.sizes, tf.float32)
        means = tf.stack(
            [
                _mean(tf.maximum(values, 0.0), sizes - negative, exchange),
                -_mean(tf.minimum(values, 0.0), negative, exchange),
            ]
        )

        def decode(means, packed):
            positive = ops.sign_unpack(packed, exchange.size) > 0
            return tf.where(
                positive, scales.spread(means[0], exchange), scales.spread(means[1], exchange)
            )

        total, own = gathered.decode_all(
            means, ops.sign_pack(values), decode, exchange, least=float("-inf")
        )
        return total, values - own


def _mean(values, counts, exchange):
    """Returns the mean magnitude of so many values of each variable; the others are zeros."""
    sizes = tf.constant(exchange.sizes, tf.float32)
    return scales.mean_magnitudes(values, exchange) * tf.math.divide_no_nan(sizes, counts)


def _count_negative(values):
    return tf.cast(tf.math.count_nonzero(values < 0), tf.float32)
