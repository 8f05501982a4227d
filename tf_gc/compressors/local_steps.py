"""Several steps' gradients at once."""

import dataclasses

import tensorflow as tf

from tf_gc import checks
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["LocalSteps"]


@dataclasses.dataclass(frozen=True)
class LocalSteps(FusedCompressor):
    """Gradients of several steps are added up locally and reduced together ("2 local steps"
    in Lim et al., "3LC", MLSys 2019, section 5.1).

    With the gradient g and the residual e of a worker, and t = 0, 1, ... the steps in which
    these variables have gradients:

        t mod period = period - 1:    sum = sum over the workers of g + e,    e <- 0
        else:                         sum = 0,                                e <- g + e

    Values are float32 and exact; 1 / period of the traffic is left. The sum is
    of all gradients since the last exchange, not their mean: it is as if the
    batch were `period` times as large. An optimizer with momentum decays it in
    the steps between, too, in which it is given zeros.

    Attributes:
      period: the number of steps from one exchange to the next, at least 1.

    Raises:
      ValueError: the period is out of range.
    """

    period: int = 2

    def __post_init__(self):
        super().__post_init__()
        checks.integer("period", self.period, 1)

    def reduce(self, values, exchange):
        zeros = tf.zeros_like(values)
        return tf.cond(
            exchange.take_turn() % self.period == self.period - 1,
            lambda: (exchange.sum(values), zeros),
            lambda: (zeros, values),
        )
