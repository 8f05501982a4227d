"""Ternary quantisation with a given scale."""

from tf_gc.ops.library import library

__all__ = ["stochastic_ternary_quantize", "ternary_quantize"]


def ternary_quantize(values, scale, name=None):
    """Quantises values to the nearest of -scale, 0 and scale.

        ternary = sign(values) where 2 |values| > scale, else 0

    Half of the scale goes to 0, as does NaN; with the scale 0 all do. It is
    what 3LC (Lim et al., MLSys 2019), section 3.1, sends for the scale M.

    Args:
      values: float32, float16 or bfloat16 tensor of any shape.
      scale: float32 scalar, finite and at least 0.
      name: Name of the op.

    Returns:
      int8 tensor of that shape, values of {-1, 0, 1}.

    Raises:
      tf.errors.InvalidArgumentError: `scale` is negative or not finite. In a
        tf.function that is ValueError where it is known while tracing.
    """
    return library.tf_gc_ternary_quantize(values, scale, name=name)


def stochastic_ternary_quantize(values, scale, seed, name=None):
    """Quantises values to -scale, 0 or scale at random, without bias.

        ternary = sign(values) with probability min(|values| / scale, 1), else 0

    so that scale * ternary is an unbiased estimate of a value that is not
    greater than the scale. The probability is exact but for 2^-17: |value| is
    compared with r scale, and r takes the 2^16 values (u + 0.5) / 2^16. NaN
    gives 0, infinity its sign; with the scale 0 all give 0.

    Args:
      values: float32, float16 or bfloat16 tensor of any shape.
      scale: float32 scalar, finite and at least 0.
      seed: int32 or int64 scalar, the key of the Philox generator, or a vector
        of two: the key and the stream. The same seed gives the same result.
      name: Name of the op.

    Returns:
      int8 tensor of that shape, values of {-1, 0, 1}.

    Raises:
      tf.errors.InvalidArgumentError: `scale` is negative or not finite. In a
        tf.function that is ValueError where it is known while tracing.
    """
    return library.tf_gc_stochastic_ternary_quantize(values, scale, seed, name=name)
