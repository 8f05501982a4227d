"""AR-Topk: the largest values of one worker's choice, reduced from all."""

import dataclasses
from typing import Literal

import tensorflow as tf

from tf_gc import checks, ops, schedules
from tf_gc.compressors import scales, sparse
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["ARTopK"]


@dataclasses.dataclass(frozen=True)
class ARTopK(FusedCompressor):
    """AR-Topk (Tyagi, Swany: "Flexible Communication for Optimal Distributed Learning over
    Unpredictable Networks", IEEE Big Data 2023).

    With the gradients of the whole model plus the residual, G, and k = ratio n:

        I = the indices of the k largest |G| of one worker, sent to all
        sum at I: of all workers' G, elsewhere 0;    e <- G, but 0 at I

    With an overshoot h > 0 what is delivered at I is T + a, where T is the sum and
    a = h min(|T|, mean |T|) sign(T), and e <- -a / N there: what waits is on both
    sides of 0, and not always on the side of what is late.

    Because all workers send the same positions, values can be reduced on the
    way, and a worker sends 2 (N - 1) / N k of them, where gathering every
    worker's own choice would take (N - 1) k.

    Attributes:
      ratio: the fraction of the values that is sent, in (0, 1], or a schedule.
      selection: whose indices. "staleness": the workers take turns.
        "variance": the worker whose k values have the largest sum of squares.
      topology: how the values are reduced: "ring", "tree" or "sharded".
      units: in which values are selected: "gradient", or "second_moment": the
        root of the second moment that rows and columns have had so far. What is
        sent are the values themselves.
      overshoot: h, in [0, 1]; 0 is the paper's.

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    ratio: schedules.Hyperparameter = 0.01
    selection: Literal["staleness", "variance"] = "staleness"
    topology: Literal["ring", "tree", "sharded"] = "ring"
    units: Literal["gradient", "second_moment"] = "gradient"
    overshoot: float = 0.0

    carries_agreement = True
    shares_second_moment = True
    uses_first_moment = True
    whole_model = True

    def __post_init__(self):
        super().__post_init__()
        sparse.check_ratio(self.ratio)
        sparse.check_overshoot(self.overshoot)
        checks.choice("selection", self.selection, ("staleness", "variance"))
        checks.choice("topology", self.topology, ("ring", "tree", "sharded"))

    def reduce(self, values, exchange):
        count = sparse.count(self.ratio, exchange.size, exchange.step)
        if self.selection == "staleness":
            root = self.root(exchange)
            indices = sparse.broadcast_indices(
                lambda: ops.top_k_indices(sparse.to_compare(values, exchange), count),
                count,
                exchange.size,
                root,
                exchange,
            )
        else:
            compared = sparse.to_compare(values, exchange)
            own = ops.top_k_indices(compared, count)
            norm = scales.total(tf.square(tf.gather(compared, own)))
            root = tf.argmax(exchange.all_gather(norm))
            indices = sparse.broadcast_indices(lambda: own, count, exchange.size, root, exchange)
        return sparse.sum_at(indices, values, self.overshoot, exchange, self.topology)

    def root(self, exchange):
        """Returns whose turn it is to select, an int64 scalar."""
        return exchange.take_turn() % exchange.workers
