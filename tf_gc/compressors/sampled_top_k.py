"""About the largest values, by a threshold that a sample gives."""

import dataclasses

import tensorflow as tf

from tf_gc import checks, ops, schedules
from tf_gc.compressors import sparse
from tf_gc.compressors.fused import FusedCompressor
from tf_gc.exchange import from_bytes, received, to_bytes

__all__ = ["SampledTopK"]


@dataclasses.dataclass(frozen=True)
class SampledTopK(FusedCompressor):
    """Sparsification with a sampled threshold ("25 % / 5 % sparsification" in Lim et al.,
    "3LC", MLSys 2019, section 5.1; Aji, Heafield, "Sparse Communication for Distributed
    Gradient Descent", EMNLP 2017).

    With the gradient plus residual t of a variable and worker:

        T = the smallest of the largest |t|, a fraction `ratio`, of a random sample of |t|
        sum = over the workers, their t where |t| >= T;    e <- t, but 0 where sent

    No more than the sample is sorted. A worker sends one bit for every value,
    whether it is sent, and the values sent, to all others. How many these are
    is random, `ratio` of them on average; zeros are never sent. What is not sent
    is delivered later, by error feedback. `TopK` sends exactly the largest, and
    their places in fewer bits.

    Attributes:
      ratio: the fraction of the values that is sent, in (0, 1], or a schedule.
      samples: how many values of a variable are in the sample, at least 1; of
        smaller variables, all. How to tune it: the number of values that are
        sent varies by about a fraction of 1 / sqrt(ratio samples). No less than
        about one in `samples` is sent, whatever the ratio.
      seed: of the choice of samples.

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    ratio: schedules.Hyperparameter = 0.25
    samples: int = 4096
    seed: int = 0

    shares_second_moment = True
    uses_first_moment = True

    def __post_init__(self):
        super().__post_init__()
        sparse.check_ratio(self.ratio)
        checks.integer("samples", self.samples, 1)

    def reduce(self, values, exchange):
        selected = tf.concat(
            [
                self._select(tf.abs(part), name, exchange)
                for part, name in zip(tf.split(values, exchange.sizes), exchange.names, strict=True)
            ],
            0,
        )
        bitmap = ops.sign_pack(tf.where(selected, 1.0, -1.0))
        sent = tf.boolean_mask(values, selected)
        messages = exchange.all_gather_unequal(tf.concat([bitmap, to_bytes(sent)], 0))

        header = (exchange.size + 7) // 8

        def add(total, rank):
            message = messages[rank]
            where = tf.where(ops.sign_unpack(message[:header], exchange.size) > 0)
            are_whole = tf.size(message) == header + 4 * tf.shape(where)[0]
            theirs = received(message[header:], are_whole, "values: not one for each bit")
            return tf.tensor_scatter_nd_add(total, where, from_bytes(theirs, tf.float32, [-1]))

        total = exchange.fold(add, tf.zeros([exchange.size]))
        return total, tf.where(selected, 0.0, values)

    def _select(self, magnitudes, name, exchange):
        """Returns which values of a variable are sent, bool [its size]."""
        size = magnitudes.shape[0]
        if size == 0:
            return tf.zeros([0], tf.bool)
        sample = magnitudes
        if size > self.samples:
            seed = exchange.seed(self.seed, name)
            places = tf.random.stateless_uniform([self.samples], seed, 0, size, tf.int32)
            sample = tf.gather(magnitudes, places)
        count = sparse.count(self.ratio, min(size, self.samples), exchange.step)
        threshold = tf.math.top_k(sample, count, sorted=True).values[-1]
        return (magnitudes >= threshold) & (magnitudes > 0)
