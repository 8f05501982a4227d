"""What all compressors share that see a bucket as one vector."""

import abc
import dataclasses

import tensorflow as tf

from tf_gc.compressors.compressor import Compressor
from tf_gc.exchange import Exchange


class FusedCompressor(Compressor):
    """A compressor that is written in a few lines of TensorFlow.

    It takes the gradients of a bucket, residuals added, as one float32 vector,
    and says what is delivered of it. All else is done here: other types and
    shapes, "SUM" and "MEAN", gradients that are not finite, and the residuals.

    A gradient that is not finite on some worker is NaN on all; in `values`, that
    worker has zeros for this variable, and no worker changes its residual.
    """

    @abc.abstractmethod
    def reduce(self, values: tf.Tensor, exchange: Exchange) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Compresses, exchanges and decompresses a bucket.

        Args:
          values: float32 [n], this worker's gradients plus its residuals, one
            variable after the other. Finite.
          exchange: the bucket, and the way to the other workers.

        Returns:
          The sum of what is delivered of all workers' values, float32 [n], the
          same bits on all workers; and this worker's new residual, float32 [n],
          or None where `uses_residual` is False. No value is lost where over
          the workers

              values = sum + new residuals
        """

    def all_reduce(self, gradients, exchange):
        from tf_gc import ops

        residuals = exchange.residuals if self.uses_residual else []
        values, finite = ops.fuse_gradients(
            gradients, residuals, exchange.bucket, group_size=exchange.workers
        )
        everywhere = tf.reduce_min(exchange.all_gather(tf.cast(finite, tf.uint8)), axis=0)
        exchange = dataclasses.replace(exchange, finite=tf.cast(everywhere, tf.bool))
        total, residual = self.reduce(values, exchange)
        if residual is not None:
            ops.store_residuals(residual, residuals, exchange.finite)
        return ops.unfuse_gradients(
            total,
            exchange.finite,
            divisor=float(exchange.workers if exchange.reduce_op == "MEAN" else 1),
            shapes=exchange.shapes,
            dtype=gradients[0].dtype,
        )
