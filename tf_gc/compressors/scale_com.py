"""ScaleCom: the leader's largest value of every chunk, reduced from all."""

import dataclasses
from typing import Literal

import tensorflow as tf

from tf_gc import checks, ops, schedules
from tf_gc.compressors import sparse
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["ScaleCom"]


@dataclasses.dataclass(frozen=True)
class ScaleCom(FusedCompressor):
    """ScaleCom (Chen et al., "ScaleCom: Scalable Sparsified Gradient Compression for
    Communication-Efficient Distributed Training", NeurIPS 2020): cyclic local top-k.

    With the gradient g and the memory m of a worker:

        I = for every chunk of C values, the index of the leader's largest |m + g|
        sum at I: of all workers' m + g, elsewhere 0
        m <- m + beta (g - what this worker sent)

    With an overshoot h > 0 what is delivered at I is T + a, where T is the sum and
    a = h min(|T|, mean |T|) sign(T), as if each worker had sent a / N more.

    The workers take turns in leading. Low-pass filtering, beta < 1, makes the
    workers' memories, and so their choices, more alike in trainings with large
    batches. Conserved is m / beta: what has been put in is what was delivered,
    plus that.

    Attributes:
      chunk: C, at least 1: one of so many values is sent, of a bucket that has fewer one.
      beta: of the filter, in (0, 1], or a schedule; 1 is plain error feedback.
      units: in which values are selected: "gradient", or "second_moment": the
        root of the second moment that rows and columns have had so far. What is
        sent are the values themselves.
      overshoot: h, in [0, 1]; 0 is the paper's.
      strided: whether a chunk has every m-th value of the bucket, where m is the
        number of chunks, and not C values in a row, as in the paper. Then large
        rows and small ones are in the same chunks, and what is sent is nearer to
        the largest values.

    Raises:
      ValueError: a hyper-parameter is out of range.
    """

    chunk: int = 100
    beta: schedules.Hyperparameter = 1.0
    units: Literal["gradient", "second_moment"] = "gradient"
    overshoot: float = 0.0
    strided: bool = False

    carries_agreement = True
    shares_second_moment = True
    uses_first_moment = True

    def __post_init__(self):
        super().__post_init__()
        checks.integer("chunk", self.chunk, 1)
        sparse.check_overshoot(self.overshoot)
        schedules.check("beta", self.beta, "in (0, 1]", lambda b: 0 < b <= 1)

    def reduce(self, values, exchange):
        chunk = self._chunk(exchange)
        chunks = -(-exchange.size // chunk)
        places = sparse.broadcast_indices(
            lambda: self._select(values, chunk, chunks, exchange),
            chunks,
            chunks * chunk,
            exchange.take_turn() % exchange.workers,
            exchange,
        )
        indices = places % chunk * chunks + places // chunk if self.strided else places
        total, kept = sparse.sum_at(indices, values, self.overshoot, exchange)  # m + g - sent
        if self.beta == 1:
            return total, kept
        memory = exchange.read("residual")
        return total, memory + self.residual_factor(exchange) * (kept - memory)

    def residual_factor(self, exchange):
        return schedules.at_step(self.beta, exchange.step)

    def _chunk(self, exchange):
        """Returns the number of values in a chunk, which has no more than the bucket."""
        return min(self.chunk, max(1, exchange.size))

    def _select(self, values, chunk, chunks, exchange):
        """Returns where the largest magnitudes are, with one chunk after the other."""
        compared = sparse.to_compare(values, exchange)
        if self.strided:
            padded = tf.pad(compared, [[0, chunk * chunks - exchange.size]])
            compared = tf.reshape(tf.transpose(tf.reshape(padded, [chunk, chunks])), [-1])
        return ops.chunk_argmax(compared, chunk)
