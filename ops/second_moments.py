"""Second moments of gradients, from those of their rows and columns.

As in Adafactor (Shazeer, Stern: "Adafactor: Adaptive Learning Rates with
Sublinear Memory Cost", ICML 2018), the second moment of a value of a matrix is
taken to be r_i c_j / mean(r), with the means r_i of a row's squares and c_j of
a column's. `tf_gc.second_moments.matrix_shape` says what matrix a tensor is.
"""

from tf_gc.ops.library import library

__all__ = [
    "mean_squares",
    "second_moment_units",
    "second_moments",
    "spread_units",
    "update_second_moments",
]


def mean_squares(gradients, rows, wanted=True, name=None):
    """Computes the means of the squares of the rows and columns of matrices.

    Args:
      gradients: list of float32, float16 or bfloat16 tensors of any shapes, each
        taken as a matrix of so many rows.
      rows: list of ints, which divide the gradients' numbers of values.
      wanted: bool scalar. If false, nothing is computed, and the vector is empty.
      name: Name of the op.

    Returns:
      bfloat16 vector: of each gradient first the means of its rows, then those
      of its columns, computed in float32 and rounded once.

    Raises:
      tf.errors.InvalidArgumentError: A gradient has no values, or cannot have
        so many rows. In a tf.function that is ValueError where it is known
        while tracing.
    """
    return library.tf_gc_mean_squares(gradients, wanted, rows=rows, name=name)


def update_second_moments(statistics, slots, scale, decay, corrected=None, age=1, name=None):
    """Lets slots follow statistics.

        w <- decay^age w + (1 - decay)
        slot <- slot + (1 - decay) / w (scale statistics - slot)

    where w, the last value of a slot, is the weight of what is in the others: these
    are decayed means as Adam's, corrected for their bias. Without the correction w begins
    at 1: the first statistics count for all that there were before. A slot stays as it is
    where one of its statistics is not finite, and all do if there are none.

    Args:
      statistics: bfloat16 vector from `mean_squares`, or its sum over workers.
      slots: list of handles of float32 variables of one dimension, zero at first,
        which have a value for each of their statistics and one more.
      scale: float32 scalar: for sums, 1 over the number of workers.
      decay: float32 scalar in 0 ... 1.
      corrected: list of bools, whether each slot is corrected; by default all are.
      age: int64 scalar, 1 or more: how many steps ago the slots followed others.
      name: Name of the op.

    Returns:
      The op in a graph, else None.

    Raises:
      tf.errors.InvalidArgumentError: There are more statistics, or fewer, or
        `decay` or `age` is out of range.
    """
    corrected = [True] * len(slots) if corrected is None else corrected
    return library.tf_gc_update_second_moments(
        statistics, slots, scale, decay, age, corrected=corrected, name=name
    )


def second_moment_units(slots, rows, name=None):
    """Computes the units u_ij = a_i b_j in which the values of matrices are compared.

        a_i = sqrt(max(r_i, e mean(r)) / mean(r)),  b_j = sqrt(max(c_j, e mean(c)))

    with e = 10^-6; all are 1 if the slot is zero.

    Args:
      slots: list of handles of the variables of `update_second_moments`.
      rows: list of ints, the number of rows of each matrix.
      name: Name of the op.

    Returns:
      For each slot a float32 vector: a, then b.

    Raises:
      tf.errors.InvalidArgumentError: A slot has too few values for so many rows.
    """
    return library.tf_gc_second_moment_units(slots, rows=rows, name=name)


def second_moments(statistics, factor, rows, shapes, name=None):
    """Computes the second moments factor r_i c_j / mean(r) of the values of matrices.

    Args:
      statistics: bfloat16 vector from `mean_squares`, or its sum over workers.
      factor: float32 scalar.
      rows: list of ints, the number of rows of each matrix.
      shapes: list of the second moments' shapes, fully defined.
      name: Name of the op.

    Returns:
      A float32 tensor of each of the shapes. Where a statistic of a matrix is
      not finite, all its values are NaN; where they are all 0, 0.

    Raises:
      tf.errors.InvalidArgumentError: There are more statistics, or fewer. In a
        tf.function that is ValueError where it is known while tracing.
    """
    return library.tf_gc_second_moments(
        statistics, factor, N=len(shapes), rows=rows, shapes=shapes, name=name
    )


def spread_units(units, rows, sizes, name=None):
    """Lays the units of the values of several variables one after the other.

    Args:
      units: list of float32 vectors from `second_moment_units`; an empty one
        stands for a variable whose units are all 1.
      rows: list of ints, the number of rows of each variable's matrix.
      sizes: list of ints, the number of values of each variable.
      name: Name of the op.

    Returns:
      float32 [sum of `sizes`].

    Raises:
      tf.errors.InvalidArgumentError: A vector is neither empty nor of rows +
        columns values.
    """
    return library.tf_gc_spread_units(units, rows=rows, sizes=sizes, name=name)
