"""3LC: 3-value quantisation, quartic encoding, zero-run encoding."""

import dataclasses
from typing import Literal

from tf_gc import ops, schedules
from tf_gc.compressors.compressor import Compressor
from tf_gc.compressors.server_codecs import ServerCodecs
from tf_gc.second_moments import matrix_shape

__all__ = ["ThreeLC"]


@dataclasses.dataclass(frozen=True)
class ThreeLC(Compressor):
    """3LC (Lim, Andersen, Kaminsky: "3LC: Lightweight and Effective Traffic
    Compression for Distributed Machine Learning", MLSys 2019).

    With the gradient g and the residual e:

        t = g + e,   M = min(k, max|t / u|),
        q in {-1, 0, 1} next to t / (M u),   e <- t - M u q

    with a unit u for each value that all workers know: the root of the second
    moment that its row and its column have had so far. Sums of N workers are
    quantised with 2 k sqrt(N). The paper has u = 1 and M = s max|t|: a single value
    that has waited for long then makes M so large that few others are sent, and
    those in spikes, which spoils Adam above all. What is larger than M u is cut,
    and the rest stays in the residual. Variables that are no matrices have no
    units: there M = min(3 mean|t|, max|t|).

    Five q's are packed in a byte, and runs of zero bytes in one: at most 1.6
    bits a value, less the sparser q is. Every worker is the server of one shard
    of the gradients. It decodes and adds what the others send, and sends the sum
    back, compressed in the same way.

    Attributes:
      sparsity_multiplier: the paper's s, in (0, 2), or a schedule, for its scale
        M = s max|t / u|; None for that of `units`. 1 sends the most of the
        paper's [1, 2) and is closest to uncompressed training; the paper finds
        1.75 to keep the accuracy at a third of the bits; towards 2 few values are
        sent, each late. Below 1 values are cut here, too.
      units: "second_moment", or "gradient" for none; by default the latter with
        a `sparsity_multiplier`, else the former. Without units rows whose
        gradients are larger than M in every step get less than they need.
      unit_multiplier: k, in (0, 64), or a schedule; counts only in units, and
        without a `sparsity_multiplier`. Values above k / 2 units are sent: the
        greater, the fewer, and the later.
      mean_multiplier: in (0, 64), or a schedule: M = min(mean_multiplier mean|t|,
        max|t|) without units, where there is no `sparsity_multiplier`. 3 suits
        gradients. 1.5 has the least squared error for Gaussian values: less waits,
        and more values are sent, which suits what is sent rarely (`tf_gc.DiLoCo`).

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    sparsity_multiplier: schedules.Hyperparameter | None = None
    units: Literal["gradient", "second_moment"] | None = None
    unit_multiplier: schedules.Hyperparameter = 6.0
    mean_multiplier: schedules.Hyperparameter = 3.0

    shares_second_moment = True
    uses_first_moment = True
    corrects_units = True

    def __post_init__(self):
        if self.units is None:
            units = "second_moment" if self.sparsity_multiplier is None else "gradient"
            object.__setattr__(self, "units", units)
        super().__post_init__()
        if self.sparsity_multiplier is not None:
            schedules.check(
                "sparsity_multiplier", self.sparsity_multiplier, "in (0, 2)", lambda s: 0 < s < 2
            )
        for name in "unit_multiplier", "mean_multiplier":
            schedules.check(name, getattr(self, name), "in (0, 64)", lambda k: 0 < k < 64)

    def _is_changed(self, field):
        if field.name == "units":  # which may follow from the multiplier
            return self != dataclasses.replace(self, units=None)
        return super()._is_changed(field)

    @property
    def scale(self) -> str:
        """What the scale M is a multiple of: "max", "mean" or "unit"."""
        if self.sparsity_multiplier is not None:
            return "max"
        return "unit" if self.units == "second_moment" else "mean"

    @property
    def multiplier(self) -> schedules.Hyperparameter:
        """How many times: s, that of the mean, or k."""
        return {
            "max": self.sparsity_multiplier,
            "mean": self.mean_multiplier,
            "unit": self.unit_multiplier,
        }[self.scale]

    def server_codecs(self, pushes):
        del pushes
        codec = f"three_lc scale={self.scale}"
        return ServerCodecs(codec, codec, self.multiplier, has_statistics=True, units=self.units)

    def all_reduce(self, gradients, exchange):
        return ops.three_lc_all_reduce(
            gradients,
            exchange.residuals,
            schedules.at_step(self.multiplier, exchange.step),
            units=exchange.units,
            rows=[matrix_shape(shape)[0] for shape in exchange.shapes],
            scale=self.scale,
            statistics=exchange.squares,
            reduce_op=exchange.reduce_op,
            **exchange.joint_arguments,
        )
