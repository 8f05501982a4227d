"""Rows of embeddings, in few bits and without bias."""

import dataclasses
from typing import ClassVar

import tensorflow as tf

from tf_gc import checks, ops
from tf_gc.compressors.compressor import Compressor

__all__ = ["EmbeddingRows"]


@dataclasses.dataclass(frozen=True)
class EmbeddingRows(Compressor):
    """Compresses `tf.IndexedSlices`, the gradients of embeddings, row by row.

    To be given as `tf_gc.Policy(embeddings=...)`; variables whose gradients are dense have
    compressors of their own. On each worker, rows of one index are added up. Of
    each row x that remains, of values of b bits:

        M = max |x|, rounded up to bfloat16,    s = 2^(b - 1) - 1
        q = stochastic rounding of s x / M to an integer in -s ... s
        sum = sum over the workers of M q / s

    A worker sends the indices, packed (2 + log2(rows of the table / rows sent) bits each, or
    less), 16 bits for each M, and b bits for each value, to all others; all decode and add in
    the order of ranks, so that they have the same bits. The result is a
    `tf.IndexedSlices` again, with ascending indices of which none comes twice, so that optimizers
    update the same rows as without compression. With parameter servers a push holds the same.

    The rounding is that of QSGD (Alistarh et al., "QSGD: Communication-Efficient SGD via
    Gradient Quantization and Encoding", NeurIPS 2017) with a maximum for each row. It is
    unbiased, so that there is no error feedback, and no memory of a table's size.
    A row that is not finite on some worker is NaN on all. With 32 bits, and before
    `start_step`, single values are not finite on all workers then, and the others
    of the row stay.

    Attributes:
      bits: b: 2, 3, 4, 5 or 8; 32 sends values exactly, and saves by adding rows up
        and packing indices alone. How to tune it: 8 first; 4 if bytes are too many. The
        error of a value is at most M / s, and at most M / (2 s) in the root mean square.
      seed: of the random numbers, which also follow from the worker.

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    bits: int = 8
    seed: int = 0

    uses_residual: ClassVar[bool] = False
    whole_model: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        checks.choice("bits", self.bits, (2, 3, 4, 5, 8, 32))

    @property
    def warm_up(self):
        return dataclasses.replace(self, bits=32, start_step=0)

    def all_reduce(self, gradients, exchange):
        """Adds up `tf.IndexedSlices` over the workers; see `Compressor.all_reduce`."""
        message = ops.pack_rows(
            [tf.cast(gradient.indices, tf.int64) for gradient in gradients],
            [tf.cast(gradient.values, tf.float32) for gradient in gradients],
            exchange.seed(self.seed),
            exchange.bucket,
            shapes=exchange.shapes,
            bits=self.bits,
            group_size=exchange.workers,
        )
        total = ops.sum_packed_rows(exchange.all_gather_unequal(message), exchange.shapes)
        divisor = float(exchange.workers if exchange.reduce_op == "MEAN" else 1)
        return [
            tf.IndexedSlices(
                tf.cast(values / divisor, gradient.values.dtype),
                tf.cast(indices, gradient.indices.dtype),
                tf.constant(shape, gradient.indices.dtype),
            )
            for gradient, indices, values, shape in zip(
                gradients, total.indices, total.values, exchange.shapes, strict=True
            )
        ]
