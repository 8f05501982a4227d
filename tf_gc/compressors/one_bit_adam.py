"""1-bit Adam: Adam with one bit a value of momentum, and a second moment that is frozen."""

import dataclasses
import math

import tensorflow as tf

from tf_gc import checks
from tf_gc.compressors import gathered, scales
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["OneBitAdam"]


@dataclasses.dataclass(frozen=True)
class OneBitAdam(FusedCompressor):
    """1-bit Adam (Tang et al., "1-bit Adam: Communication Efficient Large-Scale Training
    with Adam's Convergence Speed", ICML 2021).

    The optimizer is Adam, with the same beta_1 and beta_2. In the first `freeze_step`
    steps (warm-up) gradients are reduced exactly. From then on workers exchange one bit a
    value of momentum: with the gradient g and the residual e of a worker and variable, the
    momentum m, the same on all workers, k = beta_1 / (1 - beta_1), and sign(0) = +1,

        t = g + e + k m,    q = mean(|t|) sign(t),    e <- g + e + k m - q
        d = mean over the workers of q, less k m
        m <- beta_1 m + (1 - beta_1) d

    That is the paper's compression of beta_1 m + (1 - beta_1) g, over 1 - beta_1. The
    optimizer is given d as the mean gradient, so that its own momentum becomes m.

    While gradients are exact, s is Adam's estimate of the second moment,

        s <- s + (1 - beta_2) / (1 - beta_2^j) (g^2 - s),    g the reduced gradient

    with j the number of the update of the variable, which may come late; then it stays. The
    strategy has the optimizer use it in place of the square of the gradient
    (`second_moments`). Of a variable that has had no exact step it squares d.

    The paper's server compresses the sum again, with a residual of its own. Here every
    worker sends its bits to all others, which add them up exactly: one error less, N bits
    a value up and none down in place of one up and one down. Its scale is the ratio of
    Euclidean norms, greater than the mean of |t|, which has the least squared error.

    Attributes:
      freeze_step: the number of exact steps, 1 or more. How to tune it: the papers' are
        15 to 20 % of a training, and past the learning rate's own warm-up; 1 / (1 -
        beta_2) steps are the least in which s is settled.
      beta_1: the optimizer's, in [0, 1).
      beta_2: the optimizer's, in (0, 1).

    `start_step` is best left at 0: before it nothing is learnt of s and m. With an
    optimizer that squares gradients it must be 0.

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    freeze_step: int = 1000
    beta_1: float = 0.9
    beta_2: float = 0.999

    def __post_init__(self):
        super().__post_init__()
        checks.integer("freeze_step", self.freeze_step, 1)
        checks.integer("start_step", self.start_step, 0, self.freeze_step - 1)
        checks.number("beta_1", self.beta_1, "in [0, 1)", lambda beta: 0 <= beta < 1)
        checks.number("beta_2", self.beta_2, "in (0, 1)", lambda beta: 0 < beta < 1)

    def for_optimizer(self, squares, momentum):
        if squares and self.start_step > 0:
            raise ValueError(
                f"start_step must be 0 with an optimizer that squares gradients, got "
                f"{self.start_step}: the second moment is learnt in a warm-up of its own"
            )
        is_known = squares and momentum is not None
        if is_known and not math.isclose(momentum, self.beta_1, rel_tol=1e-6):
            clipping = (
                " (as with tf_keras's clipping of sums: clip each worker's own gradients, as "
                "Keras 3 does)"
            )
            raise ValueError(
                f"beta_1 must be that of the optimizer, which is {momentum}"
                f"{'' if momentum else clipping}, got {self.beta_1}"
            )
        return super().for_optimizer(squares, momentum)

    def slot_shapes(self, shape):
        # Shares of what all workers have: with N of them, its Nth part where slots add up.
        slots = {"momentum": shape, "variance": shape, "counts": (2,)}
        return {**super().slot_shapes(shape), **slots}

    def is_exact(self, step):
        """Whether gradients are reduced exactly in a step, an int64 scalar."""
        return step < self.freeze_step

    def exact_steps(self, step):
        """Returns how many steps before this one are exact, an int64 scalar."""
        return tf.minimum(step, self.freeze_step)

    def reduce(self, values, exchange):
        is_exact = self.is_exact(exchange.step)
        # Of the reduced gradients, as the optimizer gets them.
        unit = _unit(exchange)
        old = exchange.read("momentum") * unit
        prediction = self.beta_1 / (1 - self.beta_1) / unit * old
        total, residual = tf.cond(
            is_exact,
            lambda: self._exact(values, exchange),
            lambda: self._one_bit(values, prediction, exchange),
        )
        reduced = total * (unit / exchange.workers)
        after = exchange.after(total)
        with tf.control_dependencies([total]):
            after.write("momentum", (self.beta_1 * old + (1 - self.beta_1) * reduced) / unit)
            counts = _counts(exchange)
            rate = (1 - self.beta_2) / self._norm(counts[:, 0] + 1)
            rate = scales.spread(tf.where(is_exact, rate, 0.0), exchange)
            variance = exchange.read("variance")
            after.write("variance", variance + rate * (tf.square(reduced) / unit - variance))
            after.write("counts", tf.reshape(counts + self._counted(exchange), [-1]) / unit)
        return total, residual

    def second_moments(self, exchange, reduced):
        """Returns what Adam is to use in place of the squares of the reduced gradients.

        With it Adam's velocity in the variable's step t is s (1 - beta_2^t), whose bias it
        corrects to s:

            v = s + (1 - beta_2^(t-1)) / (1 - beta_2^(j-1)) (g^2 - s)       (exact steps)
            v = s                                                         (all others)

        In a warm-up, where j = t, that is the square. So it is in steps before the first
        exact one.

        Args:
          exchange: the bucket, after `all_reduce`.
          reduced: the reduced gradients.

        Returns:
          Float32 tensors of the variables' shapes.
        """
        before = _counts(exchange) - self._counted(exchange)
        updates, steps = tf.unstack(self._norm(before), axis=1)
        unknown = tf.cast(tf.equal(updates, 0), tf.float32)
        gains = tf.math.divide_no_nan(steps, updates)
        gains = tf.where(self.is_exact(exchange.step), gains, unknown)
        moments = []
        slots = exchange.slots["variance"]
        for gain, gradient, slot in zip(tf.unstack(gains, len(slots)), reduced, slots, strict=True):
            variance = slot.read_value() * _unit(exchange)
            square = tf.square(tf.cast(gradient, tf.float32))
            moments.append(variance + gain * (square - variance))
        return moments

    def _counted(self, exchange):
        """Returns by how much this step raises the counts of a variable."""
        return tf.stack([tf.cast(self.is_exact(exchange.step), tf.float32), 1.0])

    def _norm(self, counts):
        """Returns 1 - beta_2^count of each count, as float32."""
        return tf.cast(1 - self.beta_2 ** tf.cast(counts, tf.float64), tf.float32)

    def _exact(self, values, exchange):
        # What is left over stays: it is no part of the second moment.
        residual = exchange.read("residual")
        return exchange.sum(values - residual), residual

    def _one_bit(self, values, prediction, exchange):
        momentum = values + prediction
        scale = scales.mean_magnitudes(momentum, exchange)
        total, own = gathered.sum_signs(scale, momentum, exchange)
        return total - exchange.workers * prediction, momentum - own


def _counts(exchange):
    """Returns how many updates of s, and how many steps, each variable has had: [variables, 2]."""
    counts = tf.round(exchange.read("counts") * _unit(exchange))
    return tf.reshape(counts, [-1, 2])


def _unit(exchange):
    """Returns what shares add up to: N where gradients are summed, 1 where means are taken."""
    return float(exchange.workers if exchange.reduce_op == "SUM" else 1)
