"""Plain top-k: every worker's own largest values, gathered."""

import dataclasses
from typing import Literal

import tensorflow as tf

from tf_gc import schedules
from tf_gc.compressors import sparse
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["TopK"]


@dataclasses.dataclass(frozen=True)
class TopK(FusedCompressor):
    """Top-k with error feedback: each worker sends its own k largest values to all.

    With the gradient plus residual G of n values, and k = ratio n:

        sum = over the workers, their k largest |G|;    e <- G, but 0 where sent

    With an overshoot h > 0 a worker sends G + a, where a = h min(|G|, mean |G|) sign(G)
    with the mean of those that it sends, and e <- -a there.

    What a worker sends grows with the number of workers, N - 1 messages a step;
    `ARTopK` avoids that, at the price of using one worker's choice for all.

    Attributes:
      ratio: the fraction of the values that is sent, in (0, 1], or a schedule.
      per_variable: whether k is taken of every variable by itself (LWTopk), and
        not of the whole model.
      units: in which values are selected: "gradient", or "second_moment": the
        root of the second moment that rows and columns have had so far. What is
        sent are the values themselves.
      overshoot: h, in [0, 1]; 0 is plain top-k.

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    ratio: schedules.Hyperparameter = 0.01
    per_variable: bool = False
    units: Literal["gradient", "second_moment"] = "gradient"
    overshoot: float = 0.0

    carries_agreement = True
    shares_second_moment = True
    uses_first_moment = True

    def __post_init__(self):
        super().__post_init__()
        sparse.check_ratio(self.ratio)
        sparse.check_overshoot(self.overshoot)

    @property
    def whole_model(self):
        return not self.per_variable

    def reduce(self, values, exchange):
        indices, count = sparse.top_k(values, self.ratio, exchange, self.per_variable)
        selected = tf.gather(values, indices)
        delivered, left = sparse.deliver(selected, self.overshoot)
        total = sparse.gather(delivered, indices, count, exchange)
        return total, sparse.replace(values, indices, left, after=selected)
