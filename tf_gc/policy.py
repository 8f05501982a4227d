"""Which variable's gradients are compressed, and how."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Literal

import tensorflow as tf

from tf_gc import checks
from tf_gc.compressors import Auto, Compressor, EmbeddingRows

__all__ = ["Policy"]


@dataclasses.dataclass(frozen=True)
class Policy:
    """Chooses a compressor for every variable.

    The first rule whose regular expression is found in the variable's name
    (Keras: its path, such as "resnet/dense_1/kernel") decides. Without one,
    variables with fewer than two dimensions (biases, normalisation) and those
    with fewer than `min_elements` elements are not compressed, as in the papers;
    all others get the default.

    Gradients that are not compressed are fused and summed exactly. So are those
    of other types than float32, float16 and bfloat16, by TensorFlow itself.

    Attributes:
      default: the compressor of variables that no rule names, or None.
      rules: regular expression -> compressor or None, tried in order.
      min_elements: variables with fewer elements are not compressed.
      compress_vectors: whether variables with fewer than two dimensions are
        compressed too.
      sparse_as_dense: whether `tf.IndexedSlices`, the gradients of embeddings, are
        made dense, and compressed as other gradients are.
      embeddings: what compresses them in place of that, whatever the variable's
        name and size; None where they travel exactly, as in TensorFlow.

    Raises:
      ValueError: an attribute is out of range, a rule is no regular expression, or
        both `embeddings` and `sparse_as_dense` are given.
    """

    default: Compressor | None = None
    rules: Mapping[str, Compressor | None] = dataclasses.field(default_factory=dict)
    min_elements: int = 1024
    compress_vectors: bool = False
    sparse_as_dense: bool = False
    embeddings: EmbeddingRows | None = None

    def __post_init__(self):
        checks.number("min_elements", self.min_elements, "0 or more", lambda count: count >= 0)
        checks.boolean("compress_vectors", self.compress_vectors)
        checks.boolean("sparse_as_dense", self.sparse_as_dense)
        _check_compressor("default", self.default)
        if not isinstance(self.rules, Mapping):
            raise ValueError(
                "rules must be a dict, from regular expressions to compressors or None, got "
                f"{self.rules!r}"
            )
        for pattern, compressor in self.rules.items():
            try:
                re.compile(pattern)
            except (re.error, TypeError) as error:
                raise ValueError(f"rules: {pattern!r} is no regular expression: {error}") from error
            _check_compressor(f"rules[{pattern!r}]", compressor)
        if not isinstance(self.embeddings, EmbeddingRows | None):
            raise ValueError(
                f"embeddings must be a tf_gc.EmbeddingRows, or None, got {self.embeddings!r}"
            )
        if self.embeddings is not None and self.sparse_as_dense:
            raise ValueError(
                "embeddings and sparse_as_dense exclude each other: leave out embeddings where "
                "tf.IndexedSlices are to be made dense"
            )

    def compressor_for(self, name: str, shape: tf.TensorShape) -> Compressor | None:
        """Returns the compressor for a variable of this name and `tf.TensorShape`."""
        rule = self._rule_for(name)
        if rule is not None:
            return self.rules[rule]
        if shape.rank < 2 and not self.compress_vectors:
            return None
        return self.default if shape.num_elements() >= self.min_elements else None

    def leaves_alone(self, name: str) -> bool:
        """Whether a rule says None for a variable of this name."""
        rule = self._rule_for(name)
        return rule is not None and self.rules[rule] is None

    def _rule_for(self, name):
        return next((pattern for pattern in self.rules if re.search(pattern, name)), None)


def as_policy(
    compression: Compressor | Policy | Literal["auto"] | None, argument: str = "compression"
) -> Policy | None:
    """Returns the policy that an argument of this name stands for."""
    if compression == "auto":
        return Policy(default=Auto())
    if compression is None or isinstance(compression, Policy):
        return compression
    if isinstance(compression, EmbeddingRows):
        return Policy(embeddings=compression)
    if isinstance(compression, Compressor):
        return Policy(default=compression)
    raise ValueError(
        f"{argument} must be 'auto', a compressor such as tf_gc.ThreeLC(), a tf_gc.Policy or None, "
        f"got {compression!r}"
    )


def _check_compressor(attribute, compressor):
    if isinstance(compressor, EmbeddingRows):
        raise ValueError(
            f"{attribute} is for dense gradients: give {compressor} as Policy(embeddings=...)"
        )
    if compressor is not None and not isinstance(compressor, Compressor):
        raise ValueError(
            f"{attribute} must be a compressor such as tf_gc.ThreeLC(), or None, got {compressor!r}"
        )
