"""THC: tensor homomorphic compression."""

import dataclasses
from typing import ClassVar, Literal

import numpy as np

from tf_gc import checks, ops
from tf_gc import thc as tables
from tf_gc.compressors.compressor import Compressor
from tf_gc.compressors.server_codecs import ServerCodecs
from tf_gc.second_moments import matrix_shape

__all__ = ["THC", "UniformTHC"]

# Parameter servers: how much larger than the last round's norms this round's may be.
_HEADROOM = 1.2
_LARGEST_GRANULARITY = 4095  # solving for a table takes memory of its square
_LARGEST_AUTO_GRANULARITY = 255  # beyond, the error hardly falls


@dataclasses.dataclass(frozen=True)
class UniformTHC(Compressor):
    """Uniform THC: stochastic quantisation to evenly spaced values, summed as integers.

    (Li et al., "THC: Accelerating Distributed Deep Learning Using Tensor
    Homomorphic Compression", NSDI 2024.) With the gradient plus residual x of a
    worker, in blocks of d = 2^k values:

        l = max over the workers of |x|_2,    R = H D x / sqrt(d),    M = t_p l / sqrt(d)
        z = stochastic index of R, clamped to [-M, M], among the values M (2 T[z] / g - 1)

    with the Hadamard matrix H, random signs D that all workers share, and the
    table T[z] = z, g = 2^b - 1 here. After the transform values are nearly
    Gaussian, whatever they were; 1 - p of them lie within M. A worker sends z, b
    bits a value; the sums of T[z] over the N workers travel in
    ceil(log2(g N + 1)) bits, and are added without decoding. Every worker decodes the sum,

        sum = D H (sum of M (2 T[z] / g - 1)) / sqrt(d),    e <- x - its own share

    Attributes:
      bits: b, of an index: 2, 3, 4, 5 or 8.
      p: the expected fraction of values that are clamped, in (0, 1).
      topology: how the sums travel: "sharded" (each worker is the server of a
        part), or "ring", hop by hop.
      seed: of the random numbers.
      rounding: "stochastic", as in the paper: z stands for R on average; or
        "nearest", which has about half the squared error, needs no random numbers,
        and is biased in each step: error feedback delivers the rest. "auto" is the
        latter with an optimizer that squares gradients, but not on parameter servers.
      units: what x is measured in: "gradient", or "second_moment": x / u is
        quantised, and sums and own shares are multiplied by u, the root of the
        second moment that rows and columns have had so far, of which none counts as less
        than a tenth of a variable's root mean square. Then the error of a
        value is proportional to what its row and column usually have, and not
        the same in a whole block. "auto" is the latter with an optimizer that
        squares gradients, but not on parameter servers.

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    bits: int = 4
    p: float = 1 / 32
    topology: Literal["sharded", "ring"] = "sharded"
    seed: int = 0
    rounding: Literal["auto", "stochastic", "nearest"] = dataclasses.field(
        default="auto", kw_only=True
    )
    units: Literal["auto", "gradient", "second_moment"] = dataclasses.field(
        default="auto", kw_only=True
    )

    spreads_errors: ClassVar[bool] = True  # over a block

    def __post_init__(self):
        super().__post_init__()
        checks.choice("bits", self.bits, (2, 3, 4, 5, 8))
        checks.number("p", self.p, "in (0, 1)", lambda p: 0 < p < 1)
        checks.choice("topology", self.topology, ("sharded", "ring"))
        checks.choice("rounding", self.rounding, ("auto", "stochastic", "nearest"))

    def for_optimizer(self, squares, momentum):
        chosen = super().for_optimizer(squares, momentum)
        if not squares or self.rounding != "auto":
            return chosen
        return dataclasses.replace(chosen, rounding="nearest")

    def table(self, workers: int) -> np.ndarray:
        """Returns T, 2^b integers from 0 to g, for so many workers."""
        del workers
        return np.arange(1 << self.bits, dtype=np.int32)

    def server_codecs(self, pushes):
        if self.units == "second_moment":
            raise ValueError(
                f"units={self.units!r} of {type(self).__name__} cannot be used with parameter "
                "servers; use units='gradient'"
            )
        table = ",".join(str(value) for value in self.table(pushes))
        rounding = "nearest" if self.rounding == "nearest" else "stochastic"
        push = (
            f"thc bits={self.bits} truncation={tables.truncation(self.p)} headroom={_HEADROOM} "
            f"seed={self.seed} rounding={rounding} table={table}"
        )
        return ServerCodecs(push, "int8", scale_is_pulled=True)

    def all_reduce(self, gradients, exchange):
        return ops.thc_all_reduce(
            gradients,
            exchange.residuals,
            self.table(exchange.workers),
            self.bits,
            tables.truncation(self.p),
            exchange.seed(self.seed, "signs", shared=True),
            exchange.seed(self.seed, "rounding"),
            units=exchange.units,
            unit_rows=[matrix_shape(shape)[0] for shape in exchange.shapes],
            nearest=self.rounding == "nearest",
            reduce_op=exchange.reduce_op,
            topology=self.topology,
            **exchange.joint_arguments,
        )


@dataclasses.dataclass(frozen=True)
class THC(UniformTHC):
    """THC (Li et al., NSDI 2024, algorithm 3): `UniformTHC` with the best table.

    The table's values are chosen among g + 1 evenly spaced ones so that the
    expected squared error of a Gaussian is least (`tf_gc.thc.optimal_table`).

    Attributes:
      bits: b, of an index: 2, 3, 4, 5 or 8.
      p: the expected fraction of values that are clamped, in (0, 1).
      topology: "sharded", or "ring".
      seed: of the random numbers.
      granularity: g, at least 2^b - 1. Sums of N workers travel in
        ceil(log2(g N + 1)) bits, so g N is 65535 at most. "auto" is the largest, up to
        255, that keeps the bits which the least one needs, and 8 at least.
      rounding, units: as of `UniformTHC`.

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    granularity: int | Literal["auto"] = "auto"

    def __post_init__(self):
        super().__post_init__()
        if self.granularity != "auto":
            checks.integer(
                "granularity",
                self.granularity,
                (1 << self.bits) - 1,
                _LARGEST_GRANULARITY,
                other="'auto' or ",
            )

    def table(self, workers):
        granularity = self.granularity
        if granularity == "auto":
            least = (1 << self.bits) - 1
            lane_bits = max(8, (least * workers).bit_length())
            granularity = min(((1 << lane_bits) - 1) // workers, _LARGEST_AUTO_GRANULARITY)
        return np.array(tables.optimal_table(self.bits, granularity, self.p).table, np.int32)
