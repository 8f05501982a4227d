"""signSGD: one bit a value, decided by majority."""

import dataclasses
from typing import ClassVar, Literal

from tf_gc import ops, schedules
from tf_gc.compressors import scales
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["SignSGD"]


@dataclasses.dataclass(frozen=True)
class SignSGD(FusedCompressor):
    """signSGD with majority vote (Bernstein et al., "signSGD: Compressed Optimisation for
    Non-Convex Problems", ICML 2018).

    With the gradient g of a worker, sign(0) = +1:

        mean = eta (+1 where at least half of the workers have sign(g) = +1, else -1)

    One bit a value is sent to the server of each value, and one comes back. It
    is biased, and has no error feedback: values that are small on most workers
    count as much as large ones. `EFSignSGD` corrects that.

    Attributes:
      step_size: eta, the magnitude of the reduced gradient's values as the
        optimizer gets it; a number, a schedule, or "mean_abs": the workers' mean
        of the mean of |g|, for each variable and step. 1 is the paper's, whose
        learning rates are accordingly small.

    Raises:
      ValueError: the step size is out of range.
    """

    step_size: schedules.Hyperparameter | Literal["mean_abs"] = "mean_abs"

    carries_agreement: ClassVar[bool] = True
    uses_residual: ClassVar[bool] = False

    shares_second_moment = True

    def __post_init__(self):
        super().__post_init__()
        scales.check_step_size("step_size", self.step_size)

    def statistics(self, values, exchange):
        return scales.step_size_statistics(self.step_size, values, exchange)

    def reduce(self, values, exchange):
        majority = exchange.sign_majority(ops.sign_pack(values), exchange.size)
        share = scales.spread(scales.step_size(self.step_size, exchange.agreed()), exchange)
        return exchange.workers * share * ops.sign_unpack(majority, exchange.size), None
