"""What an optimizer reduces in a step: entries, of which lists travel in buckets."""

import dataclasses
from typing import Any

import tensorflow as tf
from tf_gc.strategy.statistics import Statistics
from tf_gc.strategy.variables import name_of, unwrap

from tf_gc.compressors import Compressor
from tf_gc.exchange import Choice


@dataclasses.dataclass(eq=False)
class Entry:
    """A gradient that is to be reduced.

    Attributes:
      gradient: a tensor; `tf.IndexedSlices` with `EmbeddingRows` alone.
      variable: what it is the gradient of; or `Statistics`, whose gradient they are.
      compressor: what reduces it.
      name: one that no other entry has; None for statistics.
      units: of its compressor, if it has some.
      squares: statistics of this worker's gradient, if they are exchanged.
      first_moment: the optimizer's, if it has one.
      choice: of `Auto`'s systems, in this step.
    """

    gradient: tf.Tensor | tf.IndexedSlices
    variable: Any
    compressor: Compressor
    name: str | None = None
    units: tf.Tensor | None = None
    squares: tf.Tensor | None = None
    first_moment: tf.Variable | None = None
    choice: Choice | None = None

    @property
    def is_statistics(self) -> bool:
        """Whether it is no variable's gradient."""
        return isinstance(self.variable, Statistics)

    @property
    def variables(self) -> list[tf.Variable]:
        """The variables that it is, or tells, something of."""
        return self.variable.variables if self.is_statistics else [unwrap(self.variable)]

    @property
    def shape(self) -> tf.TensorShape:
        """The variable's."""
        return unwrap(self.variable).shape

    @property
    def size(self) -> int:
        """The number of values."""
        return self.shape.num_elements()

    @property
    def bytes(self) -> int:
        """What the values take."""
        return self.size * self.gradient.dtype.size

    @property
    def systems(self) -> tuple[Compressor, ...]:
        """The compressors that it may have."""
        return self.choice.systems if self.choice else (self.compressor,)


@dataclasses.dataclass(frozen=True)
class Step:
    """What the reductions of all buckets in a step of an optimizer have in common.

    Attributes:
      reduce_op: "SUM" or "MEAN".
      number: int64 scalar, how many steps came before.
      squares: whether the optimizer squares gradients, so that it is to get second moments.
      weight: of its first moments.
      momentum_weight: of the momentum of a new optimizer, if variables had another one before:
        1 - beta^t after t steps. Else 1.
      new_weight: the same of any new optimizer, with momentum or without.
    """

    reduce_op: str
    number: tf.Tensor
    squares: bool
    weight: tf.Tensor | float
    momentum_weight: tf.Tensor | float
    new_weight: tf.Tensor | float


def bucket_key(entries: list[Entry]) -> tuple:
    """Returns what tells the bucket of some entries from others, in every trace."""
    dtypes = tuple(entry.gradient.dtype for entry in entries)
    ids = (unwrap(entry.variable)._unique_id for entry in entries)
    return (entries[0].compressor, dtypes, *ids)


def names_of(entries: list[Entry]) -> tuple[str | None, ...]:
    """Returns the names of variables, None for statistics."""
    return tuple(None if entry.is_statistics else name_of(entry.variable) for entry in entries)


def label(names: tuple[str | None, ...]) -> str:
    """Says for warnings what is in a bucket."""
    named = [name or "second moments" for name in names]
    others = f" and {len(named) - 1} more" if len(named) > 1 else ""
    return named[0] + others
