"""Values as shorter floats."""

import dataclasses
from typing import ClassVar

import tensorflow as tf

from tf_gc.compressors.fused import FusedCompressor
from tf_gc.compressors.server_codecs import ServerCodecs

__all__ = ["BFloat16", "Float16"]


@dataclasses.dataclass(frozen=True)
class _ShortFloats(FusedCompressor):
    """Values are rounded to a shorter type, and added in it."""

    carries_agreement: ClassVar[bool] = True
    uses_residual: ClassVar[bool] = False
    dtype: ClassVar[tf.DType]

    def server_codecs(self, pushes):
        del pushes
        return ServerCodecs(f"{self.dtype.name} feedback=0", self.dtype.name)

    def reduce(self, values, exchange):
        return tf.cast(exchange.sum(tf.cast(values, self.dtype)), tf.float32), None


@dataclasses.dataclass(frozen=True)
class Float16(_ShortFloats):
    """IEEE half precision: 16 bits a value, 11 of them significant.

        sum = sum over the workers of float16(g), rounded to float16

    There is no error feedback. Rounding is to nearest, relative to 2^-11 exact
    where a value is 2^-14 or more; what is less than 2^-25 becomes 0, and
    values and sums beyond 65504 become infinite. Where gradients span more than
    that, use `BFloat16`, or scale the loss.
    """

    dtype: ClassVar[tf.DType] = tf.float16


@dataclasses.dataclass(frozen=True)
class BFloat16(_ShortFloats):
    """bfloat16: 16 bits a value, 8 of them significant, with the range of float32.

        sum = sum over the workers of bfloat16(g), rounded to bfloat16

    There is no error feedback. Rounding is to nearest, relative to 2^-8 exact.
    """

    dtype: ClassVar[tf.DType] = tf.bfloat16
