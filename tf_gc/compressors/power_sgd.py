"""PowerSGD: gradients as products of two thin matrices."""

import dataclasses
import functools
import math

import tensorflow as tf

from tf_gc import checks
from tf_gc.compressors.fused import FusedCompressor

__all__ = ["PowerSGD"]


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

    carries_agreement = True

    def __post_init__(self):
        super().__post_init__()
        checks.integer("rank", self.rank, 1)

    def slot_shapes(self, shape):
        columns = shape[-1] if self._is_factored(shape) else 0
        return {**super().slot_shapes(shape), "factor": (columns, self.rank)}

    def reduce(self, values, exchange):
        factored = [self._is_factored(shape) for shape in exchange.shapes]
        matrices, exact = [], []
        for part, shape, is_factored in zip(
            tf.split(values, exchange.sizes), exchange.shapes, factored, strict=True
        ):
            if is_factored:
                matrices.append(tf.reshape(part, [-1, shape[-1]]))
            else:
                exact.append(part)

        factors = self._factors(exchange)
        products = [_product(t, q) for t, q in zip(matrices, factors, strict=True)]
        sums = _sum_together([*products, *exact], exchange)
        bases = [_basis(product) for product in sums[: len(products)]]
        own = [_product(t, p, transpose=True) for t, p in zip(matrices, bases, strict=True)]
        factors = _sum_together(own, exchange)
        total = _interleave(factored, _products(bases, factors), sums[len(products) :])
        exchange.after(total).write("factor", _flatten(factors))
        return total, values - _interleave(factored, _products(bases, own), exact)

    def _is_factored(self, shape):
        if len(shape) < 2:
            return False
        rows, columns = math.prod(shape[:-1]), shape[-1]
        return self.rank * (rows + columns) < rows * columns

    def _factors(self, exchange):
        """Returns Q of each factored variable, orthonormal, so that no scale builds up in it."""
        factors = []
        for slot, name in zip(exchange.slots["factor"], exchange.names, strict=True):
            if slot.shape[0] == 0:
                continue
            kept = slot.read_value()
            seed = exchange.seed(self.seed, name, shared=True)
            factor = tf.cond(
                tf.reduce_all(kept == 0),
                functools.partial(tf.random.stateless_normal, slot.shape, seed),
                functools.partial(tf.identity, kept),
            )
            factors.append(tf.linalg.qr(factor).q)
        return factors


def _basis(product):
    """Returns orthonormal columns that span those of a product.

    It is scaled, as the squares that Householder's method adds up may overflow, or vanish.
    """
    return tf.linalg.qr(tf.math.divide_no_nan(product, tf.reduce_max(tf.abs(product)))).q


def _product(matrix, factor, transpose=False):
    """Returns T Q, or the product of transpose(T) and Q.

    It has the same bits on any number of threads: TensorFlow cuts the inner dimension
    of a product of two matrices to suit that number, but not that of a matrix and a
    batch of vectors, Q's columns. With a single column oneDNN, where TensorFlow uses it,
    cuts that, too: then a worker repeats its bits with the same number of threads alone.
    """
    columns = tf.transpose(factor)[:, tf.newaxis]
    products = tf.matmul(columns, matrix[tf.newaxis], transpose_b=not transpose)
    return tf.transpose(products[:, 0])


def _sum_together(tensors, exchange):
    """Returns the sums over the workers of some tensors, which travel in one message."""
    if not tensors:
        return []
    sums = tf.split(exchange.sum(_flatten(tensors)), [t.shape.num_elements() for t in tensors])
    return [tf.reshape(s, t.shape) for s, t in zip(sums, tensors, strict=True)]


def _products(bases, factors):
    """Returns each P transpose(Q).

    They are sums of outer products: TensorFlow's product of matrices multiplies blocks
    that suit the number of threads and the processor, and rounds differently in each kind.
    """
    return [_sum_of_outer_products(*columns) for columns in zip(bases, factors, strict=True)]


def _sum_of_outer_products(basis, factor):
    """Returns P transpose(Q), one column after another: memory does not grow with the rank."""
    columns, others = tf.transpose(basis)[:, :, tf.newaxis], tf.transpose(factor)
    _, total = tf.while_loop(
        lambda column, _: column < basis.shape[1],
        lambda column, total: (column + 1, total + columns[column] * others[column]),
        (1, columns[0] * others[0]),
        parallel_iterations=1,
    )
    return total


def _interleave(factored, products, exact):
    """Returns the values of all variables, [n], of which some are factored and some exact."""
    products, exact = iter(products), iter(exact)
    return _flatten([next(products if is_factored else exact) for is_factored in factored])


def _flatten(tensors):
    """Returns the values of some tensors, one after the other, as float32 [n]."""
    return tf.concat([tf.zeros([0]), *(tf.reshape(t, [-1]) for t in tensors)], 0)
