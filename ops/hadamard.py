"""The Walsh-Hadamard transform, plain and with random signs (Suresh et al., ICML 2017)."""

from tf_gc.ops.library import library

__all__ = ["hadamard", "inverse_randomized_hadamard", "randomized_hadamard"]


def hadamard(values, name=None):
    """Computes the orthonormal Walsh-Hadamard transform of the last axis.

        H_1 = (1),  H_2m = (H_m  H_m; H_m  -H_m)
        transformed = size^(-1/2) H_size values

    in float32 arithmetic, whatever the type of `values`; each row of the last
    axis by itself. Up to rounding it is its own inverse and keeps norms. The
    same values give the same bits on every processor and with any number of
    threads, denormal numbers aside, which some threads take as zeros.

    Args:
      values: float32, float16 or bfloat16 tensor [..., size], `size` a power of
        two, at least 1.
      name: Name of the op.

    Returns:
      Tensor of the same dtype and shape. A row that has a NaN is all NaN.

    Raises:
      tf.errors.InvalidArgumentError: `values` is a scalar or its last dimension
        is not a power of two. In a tf.function that is ValueError where it is
        known while tracing.
    """
    return library.tf_gc_hadamard(values, name=name)


def randomized_hadamard(values, seed, name=None):
    """Changes random signs, then computes the Walsh-Hadamard transform.

        transformed = H D values

    with the H of `hadamard` and D a diagonal of random signs. It spreads every
    row's energy over all of its values, which then are nearly Gaussian and
    easier to quantise. Suresh et al., "Distributed mean estimation with limited
    communication", ICML 2017, section 3.

    Value i of the flattened tensor changes its sign where the bit i % 32 of the
    word i / 32 of TensorFlow's Philox stream with the key and counter of `seed`
    is 1.

    Args:
      values: float32, float16 or bfloat16 tensor [..., size], `size` a power of
        two, at least 1.
      seed: int32 or int64, a scalar (the key), or a vector of two (key and
        stream). Use another one for each tensor and step.
      name: Name of the op.

    Returns:
      Tensor of the same dtype and shape. A row that has a NaN is all NaN.

    Raises:
      tf.errors.InvalidArgumentError: `values` is a scalar or its last dimension
        is not a power of two; `seed` has another shape. In a tf.function that
        is ValueError where it is known while tracing.
    """
    return library.tf_gc_randomized_hadamard(values, seed, name=name)


def inverse_randomized_hadamard(values, seed, name=None):
    """Restores what `randomized_hadamard` has transformed, up to rounding.

        transformed = D H values

    Args:
      values: float32, float16 or bfloat16 tensor [..., size], `size` a power of
        two, at least 1.
      seed: The seed that `randomized_hadamard` got.
      name: Name of the op.

    Returns:
      Tensor of the same dtype and shape. A row that has a NaN is all NaN.

    Raises:
      tf.errors.InvalidArgumentError: `values` is a scalar or its last dimension
        is not a power of two; `seed` has another shape. In a tf.function that
        is ValueError where it is known while tracing.
    """
    return library.tf_gc_inverse_randomized_hadamard(values, seed, name=name)
