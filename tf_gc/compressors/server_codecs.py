"""How a compressor's values travel between workers and parameter servers."""

import dataclasses

from tf_gc import schedules
from tf_gc.second_moments import DECAY


@dataclasses.dataclass(frozen=True)
class ServerCodecs:
    """The codecs of a variable.

    Attributes:
      push: of gradients, as the server ops' attribute `push`.
      pull: of the changes of the model, as their attribute `pull`.
      multiplier: of 3LC's scale, in either direction.
      has_statistics: whether pushes have the statistics of the worker's gradients, which
        the server's optimizer gets.
      units: of pushes with statistics, as a compressor's.
      scale_is_pulled: whether workers have the scale of their pushes with pulls. What is not
        pulled is then not compressed.
    """

    push: str
    pull: str
    multiplier: schedules.Hyperparameter = 1.0
    has_statistics: bool = False
    units: str = "gradient"
    scale_is_pulled: bool = False

    def with_statistics(self, rows: int) -> "ServerCodecs":
        """Returns the codecs of a variable that is seen as a matrix of so many rows."""
        units = int(self.units == "second_moment")
        push = f"{self.push} rows={rows} decay={DECAY} units={units}"
        return dataclasses.replace(self, push=push)
