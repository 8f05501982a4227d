"""Random-k: values of a random choice, the same on all workers."""

import dataclasses

import tensorflow as tf

from tf_gc import schedules
from tf_gc.compressors import sparse
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["RandomK"]


@dataclasses.dataclass(frozen=True)
class RandomK(FusedCompressor):
    """Random-k (Stich, Cordonnier, Jaggi: "Sparsified SGD with Memory", NeurIPS 2018).

    With the gradient plus residual G of n values, and k = ratio n:

        I = k different indices at random, the same on all workers
        sum at I: of all workers' G, elsewhere 0;    e <- G, but 0 at I

    The workers draw the same indices, so that none are sent, and values are
    reduced on the way. Without error feedback values are multiplied by n / k
    instead, which makes the sum unbiased, but n / k times as noisy.

    Attributes:
      ratio: the fraction of the values that is sent, in (0, 1], or a schedule.
      error_feedback: whether what is not sent is kept for later; otherwise the
        sum is unbiased in every step.
      seed: of the choice.

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    ratio: schedules.Hyperparameter = 0.01
    error_feedback: bool = True
    seed: int = 0

    def __post_init__(self):
        super().__post_init__()
        sparse.check_ratio(self.ratio)

    @property
    def uses_residual(self):
        return self.error_feedback

    def reduce(self, values, exchange):
        if exchange.size == 0:
            return values, values if self.error_feedback else None
        count = sparse.count(self.ratio, exchange.size, exchange.step)
        # The first k of a random permutation, each computed by itself.
        indices = tf.random.experimental.index_shuffle(
            tf.range(count), exchange.seed(self.seed, shared=True), exchange.size - 1
        )
        total = sparse.scatter(indices, exchange.sum(tf.gather(values, indices)), exchange.size)
        if self.error_feedback:
            return total, sparse.without(values, indices)
        return total * (exchange.size / tf.cast(count, tf.float32)), None
