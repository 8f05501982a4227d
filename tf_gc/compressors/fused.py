"""What all compressors share that see a bucket as one vector."""

import abc
import dataclasses
from typing import ClassVar

import tensorflow as tf

from tf_gc import checks, ops
from tf_gc.branches import cond
from tf_gc.compressors.compressor import Compressor
from tf_gc.exchange import Agreement, Exchange

__all__ = ["FusedCompressor"]


class FusedCompressor(Compressor):
    """A compressor that is written in a few lines of TensorFlow.

    It takes the gradients of a bucket, residuals added, as one float32 vector,
    and says what is delivered of it. All else is done here: other types and
    shapes, "SUM" and "MEAN", gradients that are not finite, and the residuals.

    A gradient that is not finite on some worker is NaN on all; in `values`, that
    worker has zeros for this variable (and what is predicted), and no worker
    changes its slots.

    Attributes:
      carries_agreement: whether what workers tell each other travels with the first message of
        `reduce`, of `all_gather`, `sum`, `sign_merge`, `sign_majority` or `cascading_sign`, and
        takes none of its own. That must be outside of all control flow. What is agreed in,
        `exchange.agreed()` has after it. But for `all_gather`, `statistics` are means then.
      prediction: beta, in [0, 1), of a compressor that has it as a hyper-parameter:
        what was compressed in the last step, with the sum S over N workers, is
        expected to come again in part, and the change is delivered,

            t = g + e + beta S / N,    S' = sum of what t is compressed to
            sum = S' - beta S

        so that an optimizer with m <- beta m + (1 - beta) sum has m = (1 - beta) S',
        but for beta^k of what it had k steps ago, when S was 0. Without it t = g +
        e. S / N is in the slot "delivered". "auto" is the optimizer's own beta where
        it squares gradients, and else 0. A new optimizer of variables that were trained
        before divides m by w = 1 - beta^t in its step t. So S' is multiplied by w in that
        step, and m / w is (1 - beta) S', too; what that leaves stays in e, and S is 0 in the
        first one.
    """

    carries_agreement: ClassVar[bool] = False
    # Not annotated, as `units`.
    prediction = 0.0

    def __post_init__(self):
        super().__post_init__()
        if self.prediction != "auto":
            allowed = "'auto', or in [0, 1)"
            checks.number("prediction", self.prediction, allowed, lambda beta: 0 <= beta < 1)

    def for_optimizer(self, squares, momentum):
        chosen = super().for_optimizer(squares, momentum)
        if not squares or self.prediction != "auto":
            return chosen
        return dataclasses.replace(chosen, prediction=momentum or 0.0)

    @property
    def predicts(self) -> bool:
        """Whether there is a prediction."""
        return self.prediction not in ("auto", 0.0)

    def slot_shapes(self, shape):
        slots = super().slot_shapes(shape)
        return {**slots, "delivered": shape} if self.predicts else slots

    def statistics(self, values: tf.Tensor, exchange: Exchange) -> tf.Tensor | None:
        """Returns what `reduce` needs to know of every worker, such as a norm, or None.

        It travels with the flags of finite gradients, before anything else, or
        (`carries_agreement`) with the first message.

        Args:
          values: float32 [n], as in `reduce`.
          exchange: the bucket.

        Returns:
          A float32 tensor of a known shape, the same on all workers; for
          `reduce`, `exchange.statistics` holds those of all of them.
        """
        del values, exchange
        return None

    @abc.abstractmethod
    def reduce(
        self, values: tf.Tensor, exchange: Exchange
    ) -> tuple[tf.Tensor | tf.IndexedSlices, tf.Tensor | None]:
        """Compresses, exchanges and decompresses a bucket.

        Args:
          values: float32 [n], this worker's gradients plus its residuals (and plus
            what is predicted), one variable after the other. Finite.
          exchange: the bucket, and the way to the other workers.

        Returns:
          The sum of what is delivered of all workers' values, float32 [n], or the
          slices of it that are not 0, whose indices, int32, are all different; the
          same bits on all workers. And this worker's new residual, float32 [n], or
          None where `uses_residual` is False. No value is lost where over the
          workers

              values = sum + new residuals
        """

    def residual_factor(self, exchange: Exchange) -> tf.Tensor | float:
        """Returns how much of what is not delivered enters the residual: all, but for filters."""
        del exchange
        return 1.0

    def all_reduce(self, gradients, exchange):
        residuals = exchange.residuals if self.uses_residual else []
        values, finite = ops.fuse_gradients(
            gradients, residuals, exchange.bucket, group_size=exchange.workers
        )
        if self.predicts:
            begins = tf.equal(exchange.momentum_weight, 0)
            beta = tf.where(begins, 0.0, self.prediction)
            predicted = beta * exchange.read("delivered")
            values += predicted
        agreement = Agreement(finite, self.statistics(values, exchange))
        exchange = dataclasses.replace(exchange, agreement=agreement)
        if not self.carries_agreement:
            exchange = exchange.agreed()
        total, residual = self.reduce(values, exchange)
        exchange = exchange.agreed()
        dtype = gradients[0].dtype
        if isinstance(total, tf.IndexedSlices) and (self.predicts or dtype != tf.float32):
            total = ops.scatter(total.indices, total.values, exchange.size)
        slots = {}
        if self.predicts:
            weight = 1 - self.prediction * (1 - exchange.momentum_weight)
            total, residual = _part(weight, total, residual, values)
            slots["delivered"] = total / exchange.workers
            total -= exchange.workers * predicted
        divisor = float(exchange.workers if exchange.reduce_op == "MEAN" else 1)
        if residual is not None:
            if dtype != tf.float32:
                share = self.residual_factor(exchange) / exchange.workers
                known = tf.ensure_shape(total, [exchange.size])
                residual += share * _lost_by_rounding(known, divisor, dtype)
            slots["residual"] = residual
        after = exchange.after(total)
        for name, slot in slots.items():
            after.write(name, slot)
        return ops.unfuse_gradients(
            total, exchange.finite, divisor=divisor, shapes=exchange.shapes, dtype=dtype
        )


def _part(weight, total, residual, values):
    """Returns so much of what would be delivered, and the residual with the rest."""
    if residual is None:
        return weight * total, None
    return cond(
        tf.less(weight, 1),
        lambda: (weight * total, weight * residual + (1 - weight) * values),
        lambda: (total, residual),
    )


def _lost_by_rounding(total, divisor, dtype):
    """Returns what is left of sums; nothing of those that are infinite in the type.

    If they remained, the sums of all later steps would be infinite, too. The op that delivers
    divides here as well: TensorFlow would multiply by the inverse, and round to another value.
    """
    shapes = [total.shape]
    (delivered,) = ops.unfuse_gradients(total, [True], divisor=divisor, shapes=shapes, dtype=dtype)
    rounded = divisor * tf.cast(delivered, tf.float32)
    return tf.where(tf.math.is_finite(rounded), total - rounded, 0.0)
