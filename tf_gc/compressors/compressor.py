"""What every compressor is."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import tensorflow as tf

from tf_gc import checks
from tf_gc.compressors.server_codecs import ServerCodecs
from tf_gc.exchange import Exchange

__all__ = ["Compressor"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compressor(abc.ABC):
    """Hyper-parameters of a compression system.

    A compressor is a frozen dataclass, checked at construction; it holds no
    state, so that one may serve any number of variables and strategies. What it
    must remember lives in slots: float32 variables that the strategy keeps for
    each variable and worker, and saves.

    Attributes:
      start_step: before this step of an optimizer, gradients are reduced
        uncompressed (warm-up). A new optimizer goes on with the count of the first of its
        variables that has one, so that others have no such steps.
      uses_residual: whether there is a slot "residual", of the variable's shape,
        for what has not been delivered yet.
      whole_model: whether all variables that it compresses make one bucket,
        whatever its size.
      spreads_errors: whether the error of a value depends on other variables of its
        bucket: then variables without units have buckets of their own.
      units: what values are measured in where they are compared, or get a
        magnitude: "gradient", or "second_moment": the root of the second moment
        that rows and columns have had so far, `Exchange.units`. Where it is "auto"
        by default, that is the latter with an optimizer that squares gradients.
      shares_second_moment: whether what it delivers is too unlike the gradient
        for an optimizer to square it (values that come late, in spikes, or have
        one magnitude). Such an optimizer then gets the mean of the workers' own
        squares, of rows and columns.
      uses_first_moment: whether the squares of Adam's momentum, as what workers agree in, are
        added to these. Where all that is delivered has one magnitude, they tell of that.
      corrects_units: whether units are corrected for their bias, as Adam's moments
        are. If not, the first squares count for all that there were before.
    """

    start_step: int = 0

    uses_residual: ClassVar[bool] = True
    whole_model: ClassVar[bool] = False
    spreads_errors: ClassVar[bool] = False
    shares_second_moment: ClassVar[bool] = False
    uses_first_moment: ClassVar[bool] = False
    corrects_units: ClassVar[bool] = False
    # Not annotated: else where it is a field, it would be the first of all.
    units = "gradient"

    def __post_init__(self):
        checks.integer("start_step", self.start_step, 0)
        by_optimizer = ("auto",) if type(self).units == "auto" else ()
        checks.choice("units", self.units, (*by_optimizer, "gradient", "second_moment"))
        for field in dataclasses.fields(self):
            if field.type is bool:
                checks.boolean(field.name, getattr(self, field.name))
            elif field.name == "seed":
                checks.integer("seed", self.seed, -(1 << 63), (1 << 63) - 1)

    def slot_shapes(self, shape: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
        """Returns the shapes of a variable's slots, by name; all are zero at first."""
        return {"residual": shape} if self.uses_residual else {}

    def for_optimizer(self, squares: bool, momentum: float | None) -> "Compressor":
        """Returns what takes its place for gradients of an optimizer.

        What is "auto" stays so, and counts as in the paper, where nothing is to change.

        Args:
          squares: whether it divides by the root of squared gradients, as Adam does.
          momentum: beta of its momentum m <- beta m + (1 - beta) g; 0 if it has none,
            None if that is not known.
        """
        del momentum
        if not squares or self.units != "auto":
            return self
        return dataclasses.replace(self, units="second_moment")

    @property
    def warm_up(self) -> "Compressor":
        """What reduces gradients before `start_step`."""
        from tf_gc.compressors.uncompressed import Uncompressed

        return Uncompressed()

    def server_codecs(self, pushes: int) -> ServerCodecs:
        """Returns how this compressor works with parameter servers.

        Args:
          pushes: the number of pushes that a server adds up for an update.

        Raises:
          ValueError: it does not.
        """
        from tf_gc import compressors

        del pushes
        base = Compressor.server_codecs
        others = (getattr(compressors, name) for name in compressors.__all__)
        known = [c.__name__ for c in others if getattr(c, "server_codecs", base) is not base]
        raise ValueError(
            f"{type(self).__name__} cannot be used with parameter servers; use "
            f"{', '.join(known)} or None"
        )

    @abc.abstractmethod
    def all_reduce(self, gradients: Sequence[tf.Tensor], exchange: Exchange) -> list[tf.Tensor]:
        """Adds up the gradients of a bucket over the workers.

        Args:
          gradients: float tensors of one dtype, on the CPU.
          exchange: the bucket, its slots, and the way to the other workers.

        Returns:
          The sums, or means, in the order, dtype and shapes of `gradients`;
          the same bits on all workers.
        """

    def second_moments(
        self, exchange: Exchange, reduced: Sequence[tf.Tensor]
    ) -> list[tf.Tensor] | None:
        """Returns what an optimizer is to have in place of the gradients' squares.

        Called after `all_reduce`, in the same step.

        Args:
          exchange: the bucket, and its slots.
          reduced: what `all_reduce` has returned.

        Returns:
          A float32 tensor of each gradient's shape, the same bits on all workers;
          None for the shared second moments, where there are some.
        """
        del exchange, reduced

    def __str__(self):
        changed = (
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if self._is_changed(field)
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def _is_changed(self, field):
        return getattr(self, field.name) != field.default
