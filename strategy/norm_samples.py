"""Norms of gradients and residuals, taken in single steps."""

import contextlib
import dataclasses
import math

import tensorflow as tf
from tf_gc.strategy import tensorflow_internals as internals


@dataclasses.dataclass(frozen=True)
class VariableNorms:
    """Euclidean norms of one variable and worker, in one step.

    Attributes:
      name: the variable's name.
      gradient: of the worker's gradient g, before it is reduced.
      handed_in: of t = g + e, what is compressed: with the residual e of before the step.
      residual: of e', the residual of after the step.
    """

    name: str
    gradient: float
    handed_in: float
    residual: float

    @property
    def residual_ratio(self) -> float:
        """||e'|| / ||g||: how many steps' gradients wait, if they all pointed in one direction."""
        return ratio(self.residual, self.gradient)

    @property
    def compression_error(self) -> float:
        """||e'|| / ||t||: the part of what was handed in that the step has not delivered."""
        return ratio(self.residual, self.handed_in)


def ratio(numerator: float, denominator: float) -> float:
    """Returns the quotient of two norms; 0 / 0 is 0."""
    if denominator == 0:
        return math.inf if numerator else 0.0
    return numerator / denominator


@dataclasses.dataclass
class _Sample:
    """The norms of one bucket."""

    names: tuple[str, ...]
    variables: tuple[str, ...]  # their ids
    due: tf.Variable  # bool scalar
    norms: tf.Variable  # float32 [3, variables], in the order of `VariableNorms`
    last: list[VariableNorms] = dataclasses.field(default_factory=list)
    requests: int = 0  # that had come when the last ones were found to be taken

    def look(self, requests):
        """Looks whether norms were taken since, after so many requests."""
        if not self.due.numpy():
            rows = zip(self.names, *self.norms.numpy().tolist(), strict=True)
            self.last = [VariableNorms(*row) for row in rows]
            self.requests = requests


class NormSamples:
    """The norms that a worker has taken last, of all variables that have a residual.

    Norms are taken in the first step of each bucket, and in its next one after each
    `request`. Other steps only look whether they are to be taken.
    """

    def __init__(self, device):
        self._device = device
        self._samples = {}  # key of a bucket -> _Sample
        self._requests = 0

    def request(self) -> None:
        """Has every bucket take norms in its next step."""
        samples = self._look()
        self._requests += 1
        for sample in samples:
            sample.due.assign(True)

    def forget(self, key) -> None:
        """Lets go of a bucket whose variables are gone."""
        self._samples.pop(key, None)

    def read(self) -> list[VariableNorms]:
        """Returns the norms that were taken last.

        Buckets that have let two requests pass are not in use any more. Of a variable that was in
        several buckets, as after layers were unfrozen, only the latest norms count.
        """
        samples = sorted(self._look(), key=lambda sample: sample.requests)
        newest = samples[-1].requests if samples else 0
        latest = {
            variable: norms
            for sample in samples
            if sample.requests >= newest - 1
            for variable, norms in zip(sample.variables, sample.last, strict=False)
        }
        return list(latest.values())

    def _look(self):
        samples = list(self._samples.values())  # another thread may be tracing
        for sample in samples:
            sample.look(self._requests)
        return samples

    @contextlib.contextmanager
    def around(self, key, gradients, exchange):
        """Takes the norms, where they are due, of what is compressed in this context.

        Args:
          key: the bucket's, which ends with the ids of its variables.
          gradients: float tensors, this worker's.
          exchange: the bucket's `tf_gc.exchange.Exchange`.
        """
        sample = self._sample(key, exchange.names)
        residuals = exchange.slots["residual"]
        due = sample.due.read_value()
        before = tf.cond(
            due,
            lambda: _norms_before(gradients, residuals),
            lambda: tf.zeros([2, len(residuals)]),
        )
        yield
        tf.cond(due, lambda: _store(sample, before, residuals), lambda: ())

    def _sample(self, key, names):
        if key not in self._samples:
            with tf.init_scope(), tf.device(self._device):
                due = internals.ResourceVariable(True, trainable=False)
                norms = internals.ResourceVariable(tf.zeros([3, len(names)]), trainable=False)
            self._samples[key] = _Sample(names, key[-len(names) :], due, norms)
        return self._samples[key]


def _norms_before(gradients, residuals):
    gradients = [tf.cast(gradient, tf.float32) for gradient in gradients]
    sums = [g + e.read_value() for g, e in zip(gradients, residuals, strict=True)]
    return tf.stack([_norms(gradients), _norms(sums)])


def _store(sample, before, residuals):
    after = _norms([residual.read_value() for residual in residuals])
    sample.norms.assign(tf.concat([before, [after]], axis=0))
    sample.due.assign(False)
    return ()


def _norms(tensors):
    # In one pass without a copy, which tf.norm is not.
    return tf.sqrt(2 * tf.stack([tf.nn.l2_loss(tensor) for tensor in tensors]))
