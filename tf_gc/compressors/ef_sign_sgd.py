"""EF-signSGD: one bit a value and a magnitude, with error feedback."""

import dataclasses
from typing import Literal

from tf_gc.compressors import gathered, scales
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["EFSignSGD"]


@dataclasses.dataclass(frozen=True)
class EFSignSGD(FusedCompressor):
    """EF-signSGD (Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient
    Compression Schemes", ICML 2019).

    With the gradient plus residual t of a variable and worker, sign(0) = +1:

        q = mean(|t|) sign(t),    sum = sum over the workers of q,    e <- t - q

    It is biased in each step, and its error feedback delivers later what is
    missing. The paper multiplies gradients with the learning rate before it
    compresses; here that is the optimizer's, as with every compressor. Every
    worker sends one bit a value to all others.

    Attributes:
      units: in which all magnitudes of a variable are one: "gradient", or
        "second_moment": u, the root of the second moment that rows and columns
        have had so far: q = mean(|t| / u) u sign(t). "auto" is the latter with
        an optimizer that squares gradients.
      prediction: beta, in [0, 1): t has beta times the mean of the last step's q
        added, and the sum has as much less (`FusedCompressor`). "auto" is the
        optimizer's own momentum where it squares gradients, and else 0, as in the
        paper. With Adam, one bit a value costs much quality without it.

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    units: Literal["auto", "gradient", "second_moment"] = "auto"
    prediction: float | Literal["auto"] = "auto"

    carries_agreement = True
    shares_second_moment = True

    def reduce(self, values, exchange):
        scale = scales.mean_magnitudes(scales.in_units(values, exchange), exchange)
        total, own = gathered.sum_signs(scale, values, exchange)
        return total, values - own
