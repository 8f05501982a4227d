"""QSGD: stochastic quantisation of values relative to their norm."""

import dataclasses
from typing import ClassVar, Literal

import numpy as np
import tensorflow as tf

from tf_gc import checks, ops
from tf_gc.compressors import gathered, scales
from tf_gc.compressors.fused import FusedCompressor
from tf_gc.exchange import received

__all__ = ["QSGD"]

_BITS = (2, 3, 4, 5, 8)


@dataclasses.dataclass(frozen=True)
class QSGD(FusedCompressor):
    """QSGD (Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and
    Encoding", NeurIPS 2017).

    With the gradient g of a worker, in blocks of values, and s levels:

        q = stochastic rounding of s g / |g| to an integer in -s ... s
        sum = sum over the workers of |g| q / s

    with the norm |g| of the block. It is unbiased, and so there is no error
    feedback. Integers travel in the fewest of 2, 3, 4, 5 or 8 bits that hold
    2 s + 1 of them, not in the paper's Elias code; every worker sends them and
    the norms to all others.

    Attributes:
      levels: s, 1 ... 127. 1, 3, 7, 15 and 127 make the best of their 2, 3, 4, 5
        and 8 bits.
      block: the number of values of a bucket that share a norm, or all of them if
        there are no more; 0: those of a variable do. How to tune it: the variance is
        that of the gradient, times sqrt(block) / s at most; the paper uses 512 with 4
        bits. A norm takes 32 bits.
      norm: "l2", or "max", the largest magnitude: less noise, and fewer zeros.
      seed: of the random numbers.

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    levels: int = 7
    block: int = 512
    norm: Literal["l2", "max"] = "l2"
    seed: int = 0

    carries_agreement: ClassVar[bool] = True
    uses_residual: ClassVar[bool] = False

    def __post_init__(self):
        super().__post_init__()
        checks.integer("levels", self.levels, 1, 127)
        checks.integer("block", self.block, 0)
        checks.choice("norm", self.norm, ("l2", "max"))

    def reduce(self, values, exchange):
        bits = next(bits for bits in _BITS if 2 * self.levels < 1 << bits)
        table = tf.constant(np.arange(-self.levels, self.levels + 1) / self.levels, tf.float32)
        norms = self._norms(values, exchange)
        indices = ops.stochastic_quantize(
            tf.math.divide_no_nan(values, self._spread(norms, exchange)),
            table,
            exchange.seed(self.seed),
        )

        def decode(norms, packed):
            indices = tf.cast(ops.unpack_bits(packed, bits, exchange.size), tf.int32)
            are_levels = tf.reduce_all(indices <= 2 * self.levels)
            indices = received(indices, are_levels, f"indices: one is over {2 * self.levels}")
            return self._spread(norms, exchange) * tf.gather(table, indices)

        total, _ = gathered.decode_all(norms, ops.pack_bits(indices, bits), decode, exchange)
        return total, None

    def _norms(self, values, exchange):
        """Returns the norms of all blocks, or of all variables."""
        norm = scales.norm if self.norm == "l2" else scales.max_abs
        if self.block:
            return norm(scales.to_blocks(values, self._block(exchange)))
        return scales.per_variable(norm, values, exchange)

    def _spread(self, norms, exchange):
        """Returns each value's norm, [n]."""
        if self.block:
            return tf.repeat(norms, self._block(exchange))[: exchange.size]
        return scales.spread(norms, exchange)

    def _block(self, exchange):
        """Returns the number of values in a block: none is padded beyond the bucket."""
        return min(self.block, max(1, exchange.size))
