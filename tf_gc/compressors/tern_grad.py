"""TernGrad: three values at random, with a scale that all workers share."""

import dataclasses
import math
from typing import ClassVar

import tensorflow as tf

from tf_gc import checks, ops
from tf_gc.compressors import scales
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["TernGrad"]

_TABLE = (0, 1, 2, 0)  # of two bits; the last index is not used


@dataclasses.dataclass(frozen=True)
class TernGrad(FusedCompressor):
    """TernGrad (Wen et al., "TernGrad: Ternary Gradients to Reduce Communication in
    Distributed Deep Learning", NeurIPS 2017).

    With the gradient g of a variable and worker:

        c = g, clipped to [-a sigma, a sigma]                     (gradient clipping)
        s = max over the workers of max |c|                          (scaler sharing)
        t = sign(c) with probability |c| / s, else 0,    sum = s (sum of the workers' t)

    sigma is the standard deviation of the variable's values about 0, which is
    their mean in the paper's model of gradients; so a variable whose values are
    all equal is not clipped away. Each variable is a layer (layer-wise
    ternarizing). A worker sends 2 bits a value; sums of N workers travel in
    ceil(log2(2 N + 1)) bits, 4 with four.

    The result is unbiased but for clipping, and there is no error feedback.

    Attributes:
      clip: a, in standard deviations, greater than 0 and finite; None does not clip. How to
        tune it: less means less noise and more bias; the paper's 2.5 suits
        values with a bell-shaped distribution.
      seed: of the random numbers.

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    clip: float | None = 2.5
    seed: int = 0

    uses_residual: ClassVar[bool] = False

    def __post_init__(self):
        super().__post_init__()
        if self.clip is not None:
            checks.number(
                "clip", self.clip, "None, or greater than 0 and finite", lambda a: 0 < a < math.inf
            )

    def statistics(self, values, exchange):
        clipped = self._clip(values, exchange)
        return scales.per_variable(scales.max_abs, clipped, exchange)

    def reduce(self, values, exchange):
        scale = scales.spread(tf.reduce_max(exchange.statistics, axis=0), exchange)
        ternary = ops.stochastic_ternary_quantize(
            tf.math.divide_no_nan(self._clip(values, exchange), scale),
            1.0,
            exchange.seed(self.seed),
        )
        indices = tf.cast(ternary + 1, tf.uint8)
        sums = exchange.lane_sum(ops.pack_bits(indices, 2), _TABLE, bits=2, size=exchange.size)
        return scale * (tf.cast(sums, tf.float32) - exchange.workers), None

    def _clip(self, values, exchange):
        if self.clip is None:
            return values
        deviations = scales.per_variable(scales.root_mean_square, values, exchange)
        limit = scales.spread(self.clip * deviations, exchange)
        return tf.clip_by_value(values, -limit, limit)
