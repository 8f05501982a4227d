"""MSTopk: about the largest values, by bisection of a threshold."""

import dataclasses

import tensorflow as tf

from tf_gc import checks, schedules
from tf_gc.compressors import scales, sparse
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["MSTopK"]


@dataclasses.dataclass(frozen=True)
class MSTopK(FusedCompressor):
    """MSTopk (Shi et al., "Towards Scalable Distributed Training of Deep Learning on Public
    Cloud Clusters", MLSys 2021): top-k with multi-sampling.

    With the gradient plus residual G of n values, and k = ratio n, the threshold
    is searched by bisection between mean |G| and max |G|:

        T1 = the lowest threshold tried that at most k values reach
        T2 = the highest one tried that more than k values reach, or 0
        I = where |G| >= T1, and of those with T1 > |G| >= T2, as many
            neighbours, from a random one on, as k still lacks
        sum = over the workers, their G at I;    e <- G, but 0 where sent

    So exactly k values are sent, the largest ones but for those between T2 and
    T1, with no sorting. `TopK` finds the exact ones faster on a CPU; this is
    what the paper's GPUs compute. What is not sent is delivered later, by error
    feedback.

    Attributes:
      ratio: the fraction of the values that is sent, in (0, 1], or a schedule.
      rounds: the number of thresholds tried, at least 1.
      seed: of the choice between T2 and T1.

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    ratio: schedules.Hyperparameter = 0.01
    rounds: int = 25
    seed: int = 0

    whole_model = True

    carries_agreement = True
    shares_second_moment = True
    uses_first_moment = True

    def __post_init__(self):
        super().__post_init__()
        sparse.check_ratio(self.ratio)
        checks.integer("rounds", self.rounds, 1)

    def reduce(self, values, exchange):
        count = sparse.count(self.ratio, exchange.size, exchange.step)
        indices = self._select(tf.abs(values), count, exchange.seed(self.seed))
        selected = tf.gather(values, indices)
        total = sparse.gather(selected, indices, count, exchange)
        return total, sparse.without(values, indices, after=selected)

    def _select(self, magnitudes, count, seed):
        """Returns int32 [count], ascending."""
        upper, lower = self._thresholds(magnitudes, count)
        surely = tf.where(magnitudes >= upper)[:, 0]
        perhaps = tf.where((magnitudes < upper) & (magnitudes >= lower))[:, 0]
        lacking = count - tf.size(surely)
        first = tf.random.stateless_uniform([], seed, 0, tf.size(perhaps) - lacking + 1, tf.int32)
        chosen = tf.concat([surely, perhaps[first : first + lacking]], 0)
        return tf.sort(tf.cast(chosen, tf.int32))

    def _thresholds(self, magnitudes, count):
        """Returns T1 and T2."""

        def halve(low, high, upper, lower):
            middle = low + (high - low) / 2
            reached = tf.math.count_nonzero(magnitudes >= middle, dtype=tf.int32)
            return tf.cond(
                reached <= count,
                lambda: (low, middle, middle, lower),
                lambda: (middle, high, upper, middle),
            )

        largest = tf.maximum(tf.reduce_max(magnitudes), 0.0)
        mean = tf.math.divide_no_nan(scales.total(magnitudes), float(magnitudes.shape[0]))
        mean = tf.minimum(mean, largest)  # where their sum overflows
        _, _, upper, lower = tf.while_loop(
            lambda *_: True,
            halve,
            (mean, largest, tf.constant(float("inf")), tf.constant(0.0)),
            maximum_iterations=self.rounds,
        )
        return upper, lower
