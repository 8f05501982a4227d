"""Values as 8-bit integers, whose sums are integers, too."""

import dataclasses
from typing import ClassVar

import tensorflow as tf

from tf_gc.compressors import scales
from tf_gc.compressors.fused import FusedCompressor
from tf_gc.compressors.server_codecs import ServerCodecs

__all__ = ["Int8"]

_LARGEST = 127
# Indices are 8 bits; the last one, an integer of 128, is not used.
_TABLE = (*range(2 * _LARGEST + 1), 0)


@dataclasses.dataclass(frozen=True)
class Int8(FusedCompressor):
    """8-bit integers, of which 255 are used ("8-bit int" in Lim et al., "3LC", MLSys 2019,
    section 5.1).

    With the gradient g of a variable:

        M = max over the workers of max |g|,    q = round(127 g / M) in -127 ... 127
        sum = M / 127 (sum over the workers of q)

    Because the workers agree on M, integers are added without decoding: a
    worker sends 8 bits a value, and sums of N workers travel in
    ceil(log2(254 N + 1)), 10 with four. There is no error feedback, as in the
    paper: each value is off by M / 254 at most, rounded to the nearest, half to
    even. There may be 258 workers.
    """

    uses_residual: ClassVar[bool] = False

    def server_codecs(self, pushes):
        del pushes
        return ServerCodecs("int8 feedback=0", "int8")

    def statistics(self, values, exchange):
        return scales.per_variable(scales.max_abs, values, exchange)

    def reduce(self, values, exchange):
        scale = scales.spread(tf.reduce_max(exchange.statistics, axis=0), exchange)
        integers = tf.round(_LARGEST * tf.math.divide_no_nan(values, scale))
        sums = exchange.lane_sum(
            tf.cast(integers + _LARGEST, tf.uint8), _TABLE, bits=8, size=exchange.size
        )
        sums = tf.cast(sums, tf.float32) - _LARGEST * exchange.workers
        return scale / _LARGEST * sums, None
