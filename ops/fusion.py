"""Gradients of a bucket, with their residuals, as one vector, and back.

The vector is what a compressor works on: error feedback, as in 1-bit SGD (Seide
et al., Interspeech 2014) and EF-SGD (Karimireddy et al., ICML 2019), adds to
each gradient what compression has left over before.
"""

import tensorflow as tf
from tf_gc.ops.library import library

__all__ = [
    "all_finite",
    "fuse_gradients",
    "gradient_histogram",
    "mean_magnitudes",
    "store_residuals",
    "unfuse_gradients",
]


def all_finite(values, sizes, name=None):
    """Says which variables of a bucket have finite values alone.

    Args:
      values: float32 tensor [n], the values of all variables, one after the other; or
        `tf.IndexedSlices` of such a vector, whose other values are finite.
      sizes: list of ints, the numbers of values of the variables, n in all.
      name: Name of the op.

    Returns:
      bool tensor [number of variables].

    Raises:
      tf.errors.InvalidArgumentError: `values` has not n values, or an index is not
        below n. In a tf.function that is ValueError where it is known while tracing.
    """
    values, indices = _values_and_indices(values)
    return library.tf_gc_all_finite(values, indices, sizes=sizes, name=name)


def mean_magnitudes(values, sizes, name=None):
    """Returns the mean of the magnitudes of each variable's values.

        means[v] = sum |values of v| / sizes[v]

    Args:
      values: float32 tensor [n], the values of all variables, one after the other.
      sizes: list of ints, the numbers of values of the variables, n in all.
      name: Name of the op.

    Returns:
      float32 tensor [number of variables], the same bits on any number of threads;
      0 for a variable without values.

    Raises:
      tf.errors.InvalidArgumentError: `values` has not n values. In a tf.function
        that is ValueError where it is known while tracing.
    """
    return library.tf_gc_mean_magnitudes(values, sizes=sizes, name=name)


def fuse_gradients(gradients, residuals, bucket, group_size, name=None):
    """Lays a bucket's gradients, plus residuals, one after the other.

        values = gradients + residuals

    added in float32, in which every float16 and bfloat16 value is exact. If a
    sum is not finite, all values of its variable are 0, so that it harms no
    other variable on the way.

    Counts one step in the bucket's traffic and, by variable, the values that
    each worker sends in it: 2 size (group_size - 1) / group_size, rounded.

    Args:
      gradients: list of float32, float16 or bfloat16 tensors of one dtype, of
        any shapes, one for each variable of the bucket.
      residuals: list of handles of float32 variables, one for each gradient
        and of as many values; or an empty list.
      bucket: handle from `bucket`.
      group_size: int, the number of workers that exchange the values.
      name: Name of the op.

    Returns:
      A named tuple: `values`, float32 [n], n being the number of values of all
      gradients, and `finite`, bool [number of variables].

    Raises:
      tf.errors.InvalidArgumentError: The numbers of gradients, residuals and
        the bucket's variables do not agree, or a residual has another dtype or
        number of values. In a tf.function that is ValueError where it is known
        while tracing.
    """
    return library.tf_gc_fuse_gradients(
        gradients, residuals, bucket, group_size=group_size, name=name
    )


def gradient_histogram(gradients, residuals, wanted=True, name=None):
    """Returns `magnitude_histogram` of all values of gradients, plus residuals.

    Args:
      gradients: list of float32, float16 or bfloat16 tensors of one dtype, of any shapes.
      residuals: list of handles of float32 variables, one for each gradient and of as many
        values; or an empty list.
      wanted: bool scalar. If false, nothing is computed, and both results are empty.
      name: Name of the op.

    Returns:
      A named tuple: `counts`, int64 [8160], and `squares`, float64 [8160].

    Raises:
      tf.errors.InvalidArgumentError: The numbers of gradients and residuals do not agree, or a
        residual has another dtype or number of values. In a tf.function that is ValueError where
        it is known while tracing.
    """
    return library.tf_gc_gradient_histogram(gradients, residuals, wanted, name=name)


def store_residuals(residual, residuals, finite, name=None):
    """Assigns to a bucket's residuals what compression has left over.

    A variable keeps its values where `finite` is false, and any value whose new one
    is not finite.

    Args:
      residual: float32 tensor [n], the new values of all variables, one after
        the other.
      residuals: list of handles of float32 variables, all different, of n
        values in all.
      finite: bool tensor [number of variables], from `fuse_gradients`.
      name: Name of the op.

    Returns:
      The op in a graph, else None.

    Raises:
      tf.errors.InvalidArgumentError: `residual` has not n values or `finite`
        not one for each variable, a variable has another dtype, or comes twice.
        In a tf.function that is ValueError where it is known while tracing.
    """
    return library.tf_gc_store_residuals(residual, residuals, finite, name=name)


def unfuse_gradients(total, finite, divisor, shapes, dtype=tf.float32, name=None):
    """Cuts up a bucket's values in gradients.

        gradients = total / divisor

    divided in float32 and rounded once to `dtype`, to nearest, ties to even.
    All values of a gradient whose `finite` is false are NaN.

    Args:
      total: float32 tensor [n], the values of all gradients, one after the
        other; or `tf.IndexedSlices` of such a vector, whose indices, int32, are all
        different, and whose other values are 0.
      finite: bool tensor [number of gradients].
      divisor: float32 scalar, positive: 1 for sums, and the number of workers
        for means.
      shapes: list of the gradients' shapes, fully defined, of n values in all.
      dtype: tf.float32, tf.float16 or tf.bfloat16.
      name: Name of the op.

    Returns:
      The list of gradients, of these shapes and this dtype.

    Raises:
      tf.errors.InvalidArgumentError: `total` has not n values or `finite` not
        one for each gradient, an index is not below n, or `divisor` is not positive
        and finite. In a tf.function that is ValueError where it is known while tracing.
    """
    total, indices = _values_and_indices(total)
    return library.tf_gc_unfuse_gradients(
        total, finite, divisor, indices, N=len(shapes), T=dtype, shapes=shapes, name=name
    )


def _values_and_indices(vector):
    """Returns a vector's values and []; or those of its slices, and [their indices]."""
    if isinstance(vector, tf.IndexedSlices):
        return vector.values, [vector.indices]
    return vector, []
