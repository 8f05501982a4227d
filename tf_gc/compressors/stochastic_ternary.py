"""Three values at random, five in a byte."""

import dataclasses
from typing import ClassVar

import tensorflow as tf

from tf_gc import ops
from tf_gc.compressors import gathered, scales
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["StochasticTernary"]


@dataclasses.dataclass(frozen=True)
class StochasticTernary(FusedCompressor):
    """Stochastic 3-value quantisation and quartic encoding ("Stoch 3-value + QE" in Lim et
    al., "3LC", MLSys 2019, section 5.1).

    With the gradient g of a variable and worker:

        M = max |g|,    q = sign(g) with probability |g| / M, else 0
        sum = sum over the workers of M q

    Five q's are packed in a byte, 1.6 bits a value, and sent to all workers. It
    is unbiased, and so there is no error feedback; but the error of a value is
    as large as M, and grows with the number of values of a variable. `TernGrad`
    is the same with a common M, clipping, and sums in integers.

    Attributes:
      seed: of the random numbers.
    """

    seed: int = 0

    carries_agreement: ClassVar[bool] = True
    uses_residual: ClassVar[bool] = False

    def reduce(self, values, exchange):
        scale = scales.per_variable(scales.max_abs, values, exchange)
        ternary = ops.stochastic_ternary_quantize(
            tf.math.divide_no_nan(values, scales.spread(scale, exchange)),
            1.0,
            exchange.seed(self.seed),
        )

        def decode(scale, encoded):
            ternary = ops.quartic_decode(encoded, [exchange.size])
            return scales.spread(scale, exchange) * tf.cast(ternary, tf.float32)

        total, _ = gathered.decode_all(scale, ops.quartic_encode(ternary), decode, exchange)
        return total, None
