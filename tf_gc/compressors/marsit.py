"""Marsit: one bit a value at every hop of a ring."""

import dataclasses
from typing import Literal

import tensorflow as tf

from tf_gc import checks, ops, schedules
from tf_gc.compressors import scales
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["Marsit"]

# Times the mean magnitude, where part of it is predicted.
_PREDICTED_MEANS = 1.4


@dataclasses.dataclass(frozen=True)
class Marsit(FusedCompressor):
    """Marsit (Wu et al., "Sign Bit is Enough: A Learning Synchronization Framework for
    Multi-hop All-reduce with Ultimate Compression", DAC 2022, algorithm 1).

    With the gradient g and the residual c of a worker, and v = g + c:

        s = one sign of each value: +1 with the probability that a worker has v >= 0
        mean = eta s,    c <- v - eta s

    The signs go around a ring, one bit a value: a worker m that receives the
    merged signs a of those before it, and has signs l of its own, passes on

        (t AND a) OR (NOT t AND l),    t = 1 with the probability i / (i + 1)

    where a is of i workers, so that each worker's sign survives with the same
    probability, and nothing is ever decompressed on the way. Every K steps
    values are reduced exactly instead, and c becomes 0.

    Attributes:
      global_step_size: eta, the magnitude of the reduced gradient's values as
        the optimizer gets it; a number, a schedule, or "mean_abs": the workers'
        mean of the mean of |v|, for each variable and step, times `mean_multiplier`.
      full_precision_every: K; 0 means never.
      topology: "ring", or "torus" of so many `rows`.
      rows: the torus' number of rows, a divisor of the number of workers.
      seed: of the transient vectors.
      units: in which all magnitudes of a variable are one: "gradient", or
        "second_moment": u, the root of the second moment that rows and columns
        have had so far: then eta is in units u, and
        "mean_abs" the mean of |v| / u. "auto" is the latter with an optimizer
        that squares gradients and "mean_abs".
      mean_multiplier: greater than 0; counts with "mean_abs" alone. How to tune it: 1
        has the least squared error of one step where all workers agree. "auto" is 1.4
        with a prediction, which trained best of 0.7, 1, 1.4 and 2, and else 1.
      prediction: beta, in [0, 1): v has beta times the last step's mean added, and
        the mean that is delivered has as much less (`FusedCompressor`). "auto" is
        the optimizer's own momentum where it squares gradients, with "mean_abs",
        and else 0, as in the paper. With Adam, one bit a value costs much quality
        without it.

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    global_step_size: schedules.Hyperparameter | Literal["mean_abs"] = "mean_abs"
    full_precision_every: int = 100
    topology: Literal["ring", "torus"] = "ring"
    rows: int = 1
    seed: int = 0
    units: Literal["auto", "gradient", "second_moment"] = "auto"
    mean_multiplier: float | Literal["auto"] = "auto"
    prediction: float | Literal["auto"] = "auto"

    carries_agreement = True
    shares_second_moment = True

    def __post_init__(self):
        super().__post_init__()
        scales.check_step_size("global_step_size", self.global_step_size)
        if self.mean_multiplier != "auto":
            allowed = "'auto', or greater than 0"
            checks.number(
                "mean_multiplier", self.mean_multiplier, allowed, lambda m: 0 < m < float("inf")
            )
        checks.integer("full_precision_every", self.full_precision_every, 0)
        checks.choice("topology", self.topology, ("ring", "torus"))
        checks.integer("rows", self.rows, 1, 1 if self.topology == "ring" else None)

    def for_optimizer(self, squares, momentum):
        # A number is tuned to the units that it is in.
        return super().for_optimizer(squares and self.global_step_size == "mean_abs", momentum)

    @property
    def _mean_multiplier(self):
        if self.mean_multiplier != "auto":
            return self.mean_multiplier
        return _PREDICTED_MEANS if self.predicts else 1.0

    def statistics(self, values, exchange):
        return scales.step_size_statistics(self.global_step_size, values, exchange)

    def all_reduce(self, gradients, exchange):
        def reduce_signs():
            return super(Marsit, self).all_reduce(gradients, exchange)

        if self.full_precision_every == 0:
            return reduce_signs()
        exact = _FullPrecision(self.topology, self.rows, self.prediction)
        return tf.cond(
            exchange.step % self.full_precision_every == 0,
            lambda: exact.all_reduce(gradients, exchange),
            reduce_signs,
        )

    def reduce(self, values, exchange):
        merged = exchange.sign_merge(
            ops.sign_pack(values),
            exchange.size,
            exchange.seed(self.seed, shared=True),
            self.topology,
            self.rows,
        )
        share = scales.step_size(self.global_step_size, exchange.agreed())
        if self.global_step_size == "mean_abs":
            share *= self._mean_multiplier
        return ops.apply_signs(merged, share, values, exchange.sizes, exchange.workers)


@dataclasses.dataclass(frozen=True)
class _FullPrecision(FusedCompressor):
    """Sums of all that there is, residuals too."""

    topology: str
    rows: int
    prediction: float | str

    carries_agreement = True

    def reduce(self, values, exchange):
        return exchange.sum(values, self.topology, self.rows), tf.zeros_like(values)
