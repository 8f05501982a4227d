"""What crossed the wire."""

import dataclasses


def _bits_per_value(bytes_sent, values_sent):
    return 8 * bytes_sent / values_sent if values_sent else 0.0


@dataclasses.dataclass(frozen=True)
class VariableTraffic:
    """What one worker has sent of one variable's gradients.

    Attributes:
      name: the variable's name.
      compressor: the compressor, as text.
      values_sent: values sent, counted as in `Traffic`.
      bytes_sent: bytes that they took, without message headers; where variables
        are compressed together, the variable's share by its size.
    """

    name: str
    compressor: str
    values_sent: int
    bytes_sent: int

    @property
    def bits_per_value(self) -> float:
        return _bits_per_value(self.bytes_sent, self.values_sent)


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What one worker has exchanged with the others to reduce gradients.

    Counted is what is handed to TensorFlow's transport, headers and padding
    included. Not counted are the transport's own framing, all-reduces of
    anything but optimizers' gradients, and gradients that travel through
    TensorFlow itself (`tf.IndexedSlices`, float64).

    Attributes:
      steps: the number of reductions of gradients.
      bytes_sent: bytes that this worker sent to all others together.
      bytes_received: bytes that this worker got.
      result_bytes_sent: of `bytes_sent`, those of results (on the way down); the
        rest are the workers' contributions to them (on the way up).
      values_sent: gradient values that the bytes sent stand for: as many as a
        worker sends in an all-reduce that sends each value once up and once
        down, 2 (N - 1) / N of all values with N workers, however many times a
        compressor sends them.
      uncompressed_bytes: bytes that these values have in their own dtype.
      variables: the same by variable.
    """

    steps: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    result_bytes_sent: int = 0
    values_sent: int = 0
    uncompressed_bytes: int = 0
    variables: tuple[VariableTraffic, ...] = ()

    @property
    def bits_per_value(self) -> float:
        """Bits sent for one value."""
        return _bits_per_value(self.bytes_sent, self.values_sent)

    @property
    def bits_per_value_up(self) -> float:
        """Bits sent for one value on the way to where it is summed."""
        return _bits_per_value(self.bytes_sent - self.result_bytes_sent, self.values_sent / 2)

    @property
    def bits_per_value_down(self) -> float:
        """Bits sent for one value of a sum."""
        return _bits_per_value(self.result_bytes_sent, self.values_sent / 2)

    @property
    def ratio(self) -> float:
        """How many times fewer bytes were sent than without compression."""
        return self.uncompressed_bytes / self.bytes_sent if self.bytes_sent else 1.0

    def as_dict(self) -> dict:
        """Returns everything as numbers, strings, lists and dicts (for JSON)."""
        return {
            **dataclasses.asdict(self),
            "bits_per_value": self.bits_per_value,
            "bits_per_value_up": self.bits_per_value_up,
            "bits_per_value_down": self.bits_per_value_down,
            "ratio": self.ratio,
            "variables": [
                {**dataclasses.asdict(variable), "bits_per_value": variable.bits_per_value}
                for variable in self.variables
            ],
        }

    def __str__(self):
        return (
            f"{self.steps} steps, {self.bytes_sent:,} bytes sent, {self.bytes_received:,} received,"
            f" {self.bits_per_value:.3f} bits a value, {self.ratio:.1f} times fewer bytes"
        )
