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

    carries_agreement = True

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
        indices = _choose(
            count, exchange.size, [exchange.seed(self.seed, p, shared=True) for p in _PURPOSES]
        )
        selected = tf.gather(values, indices)
        sums = exchange.sum(selected)
        if not self.error_feedback:
            sums *= exchange.size / tf.cast(count, tf.float32)
        total = tf.IndexedSlices(sums, indices, tf.constant([exchange.size]))
        if not self.error_feedback:
            return total, None
        return total, sparse.without(values, indices, after=selected)


# Of random numbers.
_PURPOSES = ("", "start", "second permutation")
# Largest indices that TensorFlow's permutations have one bit too few for.
_TOO_LARGE = {1 << bits for bits in range(16, 31, 2)}


def _choose(count, size, seeds):
    """Returns `count` different indices below `size`, each of which is as likely as any other.

    They are the first ones of a random permutation, each computed by itself. TensorFlow's
    permutations map some numbers to some far more often than to others, the small ones that we
    begin with above all; so a second one follows, from a random start on.
    """
    first, start, second = seeds
    indices = tf.cast(_permuted(tf.range(count), first, size), tf.int64)
    begin = tf.random.stateless_uniform([], start, 0, size, tf.int64)
    return _permuted(tf.cast((indices + begin) % size, tf.int32), second, size)


def _permuted(indices, seed, size):
    """Returns where a permutation of 0 ... `size` - 1 takes indices."""
    shuffle = tf.random.experimental.index_shuffle
    if size - 1 not in _TOO_LARGE:
        return shuffle(indices, seed, size - 1)
    # One of 0 ... `size`, of which the index that comes out of range goes in again.
    permuted = shuffle(indices, seed, size)
    return tf.where(tf.equal(permuted, size), shuffle(size, seed, size), permuted)
