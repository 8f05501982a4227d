"""A worker's pushes by 3LC in units of the second moment, and Adam, in slow NumPy."""

import numpy as np
import second_moment_reference as moments
import tensorflow as tf

_BFLOAT16 = tf.bfloat16.as_numpy_dtype
_DECAY = 0.99


class Worker:
    """What a worker keeps of a variable that is a matrix.

    Args:
      shape: the matrix's.
      multiplier: 3LC's sparsity multiplier; None for six units.
    """

    def __init__(self, shape, multiplier=None):
        self._rows = shape[0]
        self._multiplier = multiplier
        self.statistics = np.zeros(sum(shape) + 1, np.float32)
        self.residual = np.zeros(shape, np.float32)

    def push(self, gradient):
        """Returns the statistics of a push, and what it delivers: NaN if that is not finite."""
        self.statistics = moments.update(
            self.statistics, moments.mean_squares(gradient, self._rows), _DECAY
        )
        sent = self.statistics[:-1].astype(_BFLOAT16).astype(np.float32)
        units = moments.units(sent, self._rows)
        a, b = units[: self._rows, np.newaxis], units[self._rows :]
        t = gradient + self.residual
        if not np.isfinite(t).all():
            return sent, np.full_like(t, np.nan)
        in_units = np.abs(t) * ((1 / a) * (1 / b))
        if self._multiplier is None:
            scale = min(np.float32(6), np.max(in_units))
        else:
            scale = np.float32(self._multiplier) * np.max(in_units)
        thresholds = (scale * a) * b
        delivered = thresholds * np.sign(t) * (2 * np.abs(t) > thresholds)
        self.residual = t - delivered
        return sent, delivered


def mean(pushes, rows):
    """Returns the mean gradient of a round, and its second moment."""
    statistics, delivered = zip(*pushes, strict=True)
    second_moment = moments.second_moments(
        np.sum(statistics, axis=0), rows, factor=1 / len(pushes) ** 2
    )
    gradient = np.sum(delivered, axis=0) / len(pushes)
    return gradient, second_moment + (gradient - gradient)


class Adam:
    """Keras's, with a second moment in place of the gradient's square.

    What so many workers agree in is added to it.
    """

    def __init__(self, shape, learning_rate, workers):
        self._workers = workers
        self._learning_rate = learning_rate
        self._steps = 0
        self.value = np.zeros(shape)
        self._momentum = np.zeros(shape)
        self.velocity = np.zeros(shape)

    def update(self, gradient, second_moment):
        if self._steps > 0:
            rows = len(self._momentum)
            factor = (1 - 1 / self._workers) / (1 - 0.9**self._steps) ** 2
            agreed = moments.statistics([self._momentum], rows)
            second_moment = second_moment + moments.second_moments(agreed, rows, factor)
        self._steps += 1
        self._momentum += (1 - 0.9) * (gradient - self._momentum)
        self.velocity += (1 - 0.999) * (second_moment - self.velocity)
        rate = self._learning_rate * np.sqrt(1 - 0.999**self._steps) / (1 - 0.9**self._steps)
        self.value -= rate * self._momentum / (np.sqrt(self.velocity) + 1e-7)
