"""SSDM: stochastic signs."""

import dataclasses
from typing import ClassVar

import tensorflow as tf

from tf_gc import ops
from tf_gc.compressors import gathered, scales
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["SSDM", "CascadingSSDM"]


@dataclasses.dataclass(frozen=True)
class SSDM(FusedCompressor):
    """Stochastic signs (Safaryan, Richtarik: "Stochastic Sign Descent Methods: New Algorithms
    and Better Theory", ICML 2021; compared with in Wu et al., "Sign Bit is Enough", DAC 2022).

    With the gradient g of a variable and worker, and its Euclidean norm |g|:

        s = +1 with probability 1/2 + g / (2 |g|), else -1
        sum = sum over the workers of |g| s

    One bit a value and a norm for each variable are sent to all workers. It is
    unbiased, and so there is no error feedback; but each value of the result has
    the magnitude of the whole gradient, so that learning rates must be small.

    Attributes:
      seed: of the random numbers.
    """

    seed: int = 0

    carries_agreement: ClassVar[bool] = True
    uses_residual: ClassVar[bool] = False

    def reduce(self, values, exchange):
        norms = scales.per_variable(scales.norm, values, exchange)
        bits = ops.stochastic_quantize(
            tf.math.divide_no_nan(values, scales.spread(norms, exchange)),
            [-1.0, 1.0],
            exchange.seed(self.seed),
        )
        total, _ = gathered.sum_signs(norms, tf.cast(bits, tf.float32) - 0.5, exchange)
        return total, None


@dataclasses.dataclass(frozen=True)
class CascadingSSDM(FusedCompressor):
    """Stochastic signs around a ring, compressed anew at every hop (cascading compression in
    Jiang et al., "Marsit", section 3.2).

    A worker m that receives the norm and signs of a segment from the one before
    it decodes them, adds its own gradient g, and sends on

        c_m = Q(c_(m-1) + g_m),    Q(v) = |v| (+1 with probability 1/2 + v / (2 |v|), else -1)

    with |v| the Euclidean norm of the segment. The last c is the sum. It is
    unbiased, and has no error feedback; but errors multiply from hop to hop, so
    that training diverges with many workers. It is here to compare with: see
    `Marsit` for one bit a value around a ring without that.

    Attributes:
      seed: of the random numbers.
    """

    seed: int = 0

    carries_agreement: ClassVar[bool] = True
    uses_residual: ClassVar[bool] = False

    def reduce(self, values, exchange):
        return exchange.cascading_sign(values, exchange.seed(self.seed, shared=True)), None
