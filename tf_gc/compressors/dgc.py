"""Deep gradient compression: top-k of gradients that gather momentum before they are sent."""

import dataclasses
from typing import Literal

import tensorflow as tf

from tf_gc import checks, schedules
from tf_gc.compressors import scales, sparse
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["DGC"]


@dataclasses.dataclass(frozen=True)
class DGC(FusedCompressor):
    """Deep gradient compression (Lin et al., "Deep Gradient Compression: Reducing the
    Communication Bandwidth for Distributed Training", ICLR 2018).

    With the gradient g, the residual v and the momentum u of a worker:

        g <- g min(1, L / |g|)                              (local gradient clipping)
        u <- m u + g,    v <- v + u                             (momentum correction)
        I = of each variable, the indices of its k = ratio n largest |v|
        sum = over the workers, their v at I
        u <- u, v <- v, but 0 at I                          (momentum factor masking)

    So what is delivered late has gathered the momentum it would have had. The
    optimizer must be plain gradient descent, with no momentum of its own; one
    worker alone reduces nothing, and has no momentum at all. Over time
    1 / (1 - m) of the gradients is delivered, less what masking drops. The
    values are selected exactly, where the paper takes a sample's threshold.

    The paper raises the sparsity in the first epochs (warm-up):

        ratio = keras.optimizers.schedules.PiecewiseConstantDecay(
            [1 * epoch, 2 * epoch, 3 * epoch, 4 * epoch],
            [0.25, 0.0625, 0.015625, 0.004, 0.001],
        )

    Attributes:
      ratio: the fraction of the values that is sent, in (0, 1], or a schedule.
      momentum: m, in [0, 1). With 0 it is `TopK` per variable.
      clip_norm: the norm that the whole model's reduced gradient, as the
        optimizer gets it, is to have at most; greater than 0, or None. A worker's
        limit is L = clip_norm / sqrt(N) for sums, and clip_norm sqrt(N) for
        means, as N independent gradients add up to sqrt(N) times the norm.
      units: in which values are selected: "gradient", or "second_moment": the
        root of the second moment that rows and columns have had so far. What is
        sent are the values themselves.

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    ratio: schedules.Hyperparameter = 0.001
    momentum: float = 0.9
    clip_norm: float | None = None
    units: Literal["gradient", "second_moment"] = "gradient"

    shares_second_moment = True

    def __post_init__(self):
        super().__post_init__()
        sparse.check_ratio(self.ratio)
        checks.number("momentum", self.momentum, "in [0, 1)", lambda m: 0 <= m < 1)
        if self.clip_norm is not None:
            checks.number("clip_norm", self.clip_norm, "None, or greater than 0", lambda n: n > 0)

    @property
    def carries_agreement(self):
        return self.clip_norm is None  # which counts finite gradients alone

    @property
    def whole_model(self):
        return self.clip_norm is not None

    def slot_shapes(self, shape):
        return {**super().slot_shapes(shape), "momentum": shape}

    def reduce(self, values, exchange):
        residual = exchange.read("residual")
        gradient = values - residual
        if self.clip_norm is not None:
            gradient = self._clip(gradient, exchange)
        momentum = self.momentum * exchange.read("momentum") + gradient
        velocity = residual + momentum
        indices, count = sparse.top_k(velocity, self.ratio, exchange, per_variable=True)
        selected = tf.gather(velocity, indices)
        total = sparse.gather(selected, indices, count, exchange)
        exchange.after(total).write("momentum", sparse.without(momentum, indices))
        return total, sparse.without(velocity, indices, after=selected)

    def _clip(self, gradient, exchange):
        # Where a gradient is not finite, `values` are zeros, and say nothing of it.
        counts = scales.spread(tf.cast(exchange.finite, tf.float32), exchange)
        finite = gradient * counts
        limit = self.clip_norm * exchange.workers**0.5
        if exchange.reduce_op == "SUM":
            limit /= exchange.workers
        # In units of the largest one, as squares may be too large or too small for float32.
        largest = scales.max_abs(finite)
        norm = scales.norm(tf.math.divide_no_nan(finite, largest))
        return gradient * tf.minimum(1.0, limit / largest / norm)
