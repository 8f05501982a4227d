"""What a compressor claims."""

import dataclasses
from typing import Any

from tf_gc.compressors import Compressor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A compressor, and what it claims.

    Attributes:
      compressor: with the hyper-parameters to be tested.
      conserves: whether over the workers gradients plus old residuals are what
        was delivered plus new residuals, to rounding. A number beta where
        residual / beta is conserved instead (ScaleCom's filter).
      unbiased: whether what is delivered of a gradient is, on average over many
        steps without a residual, the gradient.
      keeps_zeros: whether gradients that are all zero are delivered as zeros
        where the residuals are, too.
      scales_with_mean: whether "MEAN" delivers the Nth part of what "SUM" does;
        not so where the delivered magnitude is a hyper-parameter.
      bits_per_value: the least and the most bits that a value of a large
        variable takes, headers included, or None.
      workers: the numbers of workers that it is measured on, or None for those of
        the test class.
      bad: (parameter, value) pairs that must be refused, each by itself.
      schedule: (parameter, value, other value) of a hyper-parameter that may
        be a schedule, where the values give different results, or None.
    """

    compressor: Compressor
    conserves: bool | float = True
    unbiased: bool = False
    keeps_zeros: bool = True
    scales_with_mean: bool = True
    bits_per_value: tuple[float, float] | None = None
    workers: tuple[int, ...] | None = None
    bad: tuple[tuple[str, Any], ...] = ()
    schedule: tuple[str, Any, Any] | None = None
