"""3LC: 3-value quantisation, quartic encoding, zero-run encoding."""

import dataclasses
from typing import ClassVar

from tf_gc.compressors.compressor import Compressor


@dataclasses.dataclass(frozen=True)
class ThreeLC(Compressor):
    """3LC (Lim, Andersen, Kaminsky: "3LC: Lightweight and Effective Traffic
    Compression for Distributed Machine Learning", MLSys 2019).

    With the gradient g, the residual e and the sparsity multiplier s:

        t = g + e,   M = s max|t|,   q = round(t / M) in {-1, 0, 1},   e <- t - M q

    Five q's are packed in a byte, and runs of zero bytes in one: at most 1.6
    bits a value, less the sparser q is. Every worker is the server of one shard
    of the gradients. It decodes and adds what the others send, and sends the
    sum back, compressed in the same way.

    Attributes:
      sparsity_multiplier: s, in [1, 2). How to tune it: 1 sends the most and is
        closest to uncompressed training; the paper finds 1.75 to keep the
        accuracy at a third of the bits; towards 2 few values are sent, each
        late, and accuracy suffers first in short trainings.

    Raises:
      ValueError: the sparsity multiplier is out of range.
    """

    sparsity_multiplier: float = 1.0

    uses_residual: ClassVar[bool] = True

    def __post_init__(self):
        if not 1 <= self.sparsity_multiplier < 2:
            raise ValueError(
                f"sparsity_multiplier must be in [1, 2), got {self.sparsity_multiplier!r}"
            )

    def all_reduce(self, gradients, residuals, all_reduce):
        from tf_gc import ops

        return ops.three_lc_all_reduce(
            gradients, residuals, self.sparsity_multiplier, **all_reduce.arguments()
        )
