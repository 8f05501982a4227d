"""How a compressor's values travel between workers and parameter servers."""

import dataclasses

from tf_gc import schedules


@dataclasses.dataclass(frozen=True)
class ServerCodecs:
    """The codecs of a variable.

    Attributes:
      push: of gradients, as the server ops' attribute `push`.
      pull: of the changes of the model, as their attribute `pull`.
      sparsity_multiplier: of 3LC, in either direction.
    """

    push: str
    pull: str
    sparsity_multiplier: schedules.Hyperparameter = 1.0
