"""Exact sums, for what is too small or too delicate to compress."""

import dataclasses
from typing import ClassVar

from tf_gc import ops
from tf_gc.compressors.compressor import Compressor
from tf_gc.compressors.server_codecs import ServerCodecs

__all__ = ["Uncompressed"]


@dataclasses.dataclass(frozen=True)
class Uncompressed(Compressor):
    """Values as they are, added in float32; many variables in one message.

    What a policy's `None` stands for.
    """

    uses_residual: ClassVar[bool] = False

    def server_codecs(self, pushes):
        del pushes
        return ServerCodecs("float32", "float32")

    def all_reduce(self, gradients, exchange):
        return ops.exact_all_reduce(
            gradients,
            reduce_op=exchange.reduce_op,
            statistics=exchange.names.count(None),
            **exchange.joint_arguments,
        )
