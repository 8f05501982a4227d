"""What the workers tell each other of the squares of their gradients."""

import tensorflow as tf
from tf_gc.strategy.variables import unwrap

from tf_gc import ops
from tf_gc.second_moments import matrix_shape


class Statistics:
    """The second moments that rows and columns of some variables have, in one step.

    To the buckets it is one more variable, whose gradient is `mean_squares` of all, joined.

    Attributes:
      variables: the `tf.Variable`s.
      shape: of that.
    """

    def __init__(self, measured, others, residuals):
        """Finds the slots, which are made when first asked for.

        Args:
          measured: variables that are compressed in units, which need a slot.
          others: those whose second moments only optimizers want to know.
          residuals: the `Residuals`.
        """
        self.variables = [unwrap(v) for v in (*measured, *others)]
        matrices = list(map(_matrix_shape, self.variables))
        self._rows = [rows for rows, _ in matrices]
        self._sizes = [sum(matrix) for matrix in matrices]
        self.shape = tf.TensorShape([sum(self._sizes)])
        measured_sizes = self._sizes[: len(measured)]
        self._slots = [
            residuals.shared(v, "second_moment", (size + 1,)).handle
            for v, size in zip(measured, measured_sizes, strict=True)
        ]
        self._measured_size = sum(measured_sizes)

    @property
    def _unique_id(self):
        return ("second moments", *(v._unique_id for v in self.variables))

    def units(self):
        """Returns the measured variables' units, of the steps before: so all workers know them."""
        if not self._slots:
            return []
        return ops.second_moment_units(self._slots, self._rows[: len(self._slots)])

    def update(self, statistics, scale, decay, corrected, age):
        """Lets what units come from follow the mean, `scale` times a sum, of all workers'.

        See `ops.update_second_moments`.
        """
        if self._slots:
            measured = statistics[: self._measured_size]
            ops.update_second_moments(measured, self._slots, scale, decay, corrected, age)

    def second_moments(self, statistics, factor, agreed):
        """Returns second moments of the variables' shapes.

        Args:
          statistics: what `mean_squares` have become.
          factor: of what comes of them.
          agreed: to add to statistics, float32, but where there was no gradient.
        """
        both = tf.cast(statistics, tf.float32) + agreed
        both = tf.where(tf.equal(statistics, 0), 0.0, both)
        shapes = [v.shape for v in self.variables]
        return ops.second_moments(tf.cast(both, statistics.dtype), factor, self._rows, shapes)


def mean_squares(gradients, variables, wanted):
    """Returns this worker's statistics of each gradient; nothing of any if they are not `wanted`.

    Each has an op of its own, which does not wait for the other gradients.
    """
    return [
        ops.mean_squares([gradient], [_matrix_shape(variable)[0]], wanted)
        for gradient, variable in zip(gradients, variables, strict=True)
    ]


def mean_squares_or_0(tensors, variables):
    """Returns the statistics of all, joined, in float32; zeros for None."""
    return tf.concat(
        [
            tf.zeros([sum(_matrix_shape(variable))])
            if tensor is None
            else tf.cast(ops.mean_squares([tensor], [_matrix_shape(variable)[0]]), tf.float32)
            for tensor, variable in zip(tensors, variables, strict=True)
        ],
        0,
    )


def _matrix_shape(variable):
    return matrix_shape(unwrap(variable).shape)
