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
      values_sent: values sent, counted once per receiver.
      bytes_sent: bytes that they took, without message headers.
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
      values_sent: gradient values that the bytes sent stand for.
      uncompressed_bytes: bytes that these values have in their own dtype.
      variables: the same by variable.
    """

    steps: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    values_sent: int = 0
    uncompressed_bytes: int = 0
    variables: tuple[VariableTraffic, ...] = ()

    @property
    def bits_per_value(self) -> float:
        """Bits sent for one value."""
        return _bits_per_value(self.bytes_sent, self.values_sent)

    @property
    def ratio(self) -> float:
        """How many times fewer bytes were sent than without compression."""
        return self.uncompressed_bytes / self.bytes_sent if self.bytes_sent else 1.0

    def as_dict(self) -> dict:
        """Returns everything as numbers, strings, lists and dicts (for JSON)."""
        return {
            **dataclasses.asdict(self),
            "bits_per_value": self.bits_per_value,
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
