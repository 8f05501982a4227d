"""What every compressor is."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class AllReduce:
    """Where and how one bucket is reduced: the arguments that all ops share."""

    bucket: tf.Tensor  # resource handle, orders and counts
    group_key: int
    group_size: int
    reduce_op: str  # "SUM" or "MEAN"
    timeout_seconds: float  # 0 waits for ever

    def arguments(self):
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


class Compressor(abc.ABC):
    """Hyper-parameters of a compression system.

    A compressor is a frozen dataclass, checked at construction; it holds no
    state, so that one may serve any number of variables and strategies. What it
    must remember lives in the residuals: one float32 variable per variable and
    worker, kept by the strategy.
    """

    uses_residual: ClassVar[bool]

    @abc.abstractmethod
    def all_reduce(
        self,
        gradients: Sequence[tf.Tensor],
        residuals: Sequence[tf.Tensor],
        all_reduce: AllReduce,
    ) -> list[tf.Tensor]:
        """Adds up the gradients of a bucket over the workers.

        Args:
          gradients: float tensors of one dtype, on the CPU.
          residuals: resource handles of this worker's residuals, float32 and of
            the gradients' shapes, which the op updates; empty unless
            `uses_residual`.
          all_reduce: the group, and the bucket's state.

        Returns:
          The sums, or means, in the order, dtype and shapes of `gradients`;
          the same bits on all workers.
        """
