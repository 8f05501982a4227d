"""PowerSGD: gradients as products of two thin matrices."""

import dataclasses
import math

import tensorflow as tf

from tf_gc import schedules
from tf_gc.compressors.fused import FusedCompressor


@dataclasses.dataclass(frozen=True)
class PowerSGD(FusedCompressor):
    """PowerSGD (Vogels, Karimireddy, Jaggi: "PowerSGD: Practical Low-Rank Gradient Compression
    for Distributed Optimization", NeurIPS 2019).

    A variable of shape [..., m] is a matrix of m columns. With the gradient plus
    residual T [n, m] of a worker, and the factor Q [m, r]:

        P = orthonormal basis of sum of the workers' T Q
        Q <- sum of the workers' transpose(T) P
        sum = P transpose(Q),    e <- T - P transpose(P) T

    It is one step of a power iteration. Q is kept, so that successive steps
    approach the sum's largest r singular vectors (warm start); at first, and
    where it has become 0, it is random. What the r vectors do not hold is
    delivered later, by error feedback.

    All P's travel in one sum, and all Q's in another, r (n + m) float32 values
    for a variable. Variables for which these are not fewer than n m, vectors
    among them, are summed exactly together with the P's. All workers compute the
    same products of the same sums, which have the same bits if their processors
    are of one kind.

    Attributes:
      rank: r, at least 1; 1 ... 4 in the paper.
      seed: of the first factors.

    Raises:
      ValueError: the rank is out of range.
    """

    rank: int = 2
    seed: int = 0

    def __post_init__(self):
        super().__post_init__()
        schedules.check(
            "rank", self.rank, "an integer, 1 or more", lambda r: r >= 1 and r == int(r)
        )

    def slot_shapes(self, shape):
        columns = shape[-1] if self._is_factored(shape) else 0
        return {**super().slot_shapes(shape), "factor": (columns, self.rank)}

    def reduce(self, values, exchange):
        parts = tf.split(values, exchange.sizes)
        factored = [self._is_factored(shape) for shape in exchange.shapes]
        matrices = [
            tf.reshape(part, [-1, shape[-1]])
            for part, shape, low_rank in zip(parts, exchange.shapes, factored, strict=True)
            if low_rank
        ]
        factors = self._factors(exchange)
        exact = [part for part, low_rank in zip(parts, factored, strict=True) if not low_rank]

        products = [tf.matmul(t, q) for t, q in zip(matrices, factors, strict=True)]
        *products, exact_sum = _sum_together([*products, tf.concat(exact, 0)], exchange)
        bases = [tf.linalg.qr(product).q for product in products]
        own = [tf.matmul(t, p, transpose_a=True) for t, p in zip(matrices, bases, strict=True)]
        factors = _sum_together(own, exchange)
        exchange.write("factor", _flatten(factors))

        total = _interleave(factored, _multiply(bases, factors), exact_sum, exchange)
        delivered = _interleave(factored, _multiply(bases, own), tf.concat(exact, 0), exchange)
        return total, values - delivered
