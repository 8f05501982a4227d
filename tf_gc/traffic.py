"""What crossed the wire."""

import dataclasses
from collections.abc import Iterable

__all__ = ["ServerTraffic", "ServerVariableTraffic", "Traffic", "VariableTraffic"]


def _bits_per_value(bytes_sent, values_sent):
    return 8 * bytes_sent / values_sent if values_sent else 0.0


def _since(now, earlier):
    """Returns `now` with the numbers that it has more than `earlier`."""
    changed = {
        field.name: getattr(now, field.name) - getattr(earlier, field.name)
        for field in dataclasses.fields(now)
        if field.name not in ("name", "compressor", "variables")
    }
    if hasattr(now, "variables"):
        changed["variables"] = _variables_since(now.variables, earlier.variables)
    return dataclasses.replace(now, **changed)


def by_name(variables):
    """Returns the traffic of variables, with those of one name and compressor added up."""
    added = {}
    for variable in variables:
        key = variable.name, variable.compressor
        counts = [getattr(variable, f.name) for f in dataclasses.fields(variable)[len(key) :]]
        added[key] = [a + b for a, b in zip(added.get(key, [0] * len(counts)), counts, strict=True)]
    return tuple(type(variables[0])(*key, *counts) for key, counts in added.items())


def _variables_since(now, earlier):
    # Of one name there may be several, and by now others than before.
    before = {(variable.name, variable.compressor): variable for variable in by_name(earlier)}
    return tuple(
        _since(variable, before[key]) if key in before else variable
        for variable in by_name(now)
        for key in [(variable.name, variable.compressor)]
    )


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
    TensorFlow itself (float64, and `tf.IndexedSlices` without `EmbeddingRows`).

    Attributes:
      steps: the number of reductions of gradients.
      bytes_sent: bytes that this worker sent to all others together.
      bytes_received: bytes that this worker got.
      result_bytes_sent: of `bytes_sent`, those of results (on the way down); the
        rest are the workers' contributions to them (on the way up).
      values_sent: gradient values that the bytes sent stand for: as many as a
        worker sends in an all-reduce that sends each value once up and once
        down, 2 (N - 1) / N of all values with N workers, however many times a
        compressor sends them. Of `tf.IndexedSlices` those of this worker's rows
        count, each row once.
      uncompressed_bytes: bytes that these values have in their own dtype.
      second_moment_bytes_sent: of `bytes_sent`, those of shared second moments,
        without message headers; they stand for no values.
      seconds_waited: seconds in which exchanges waited for other workers'
        messages, or for their own to be taken. Those of buckets that waited at
        the same time are added up.
      variables: the same by variable.
    """

    steps: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    result_bytes_sent: int = 0
    values_sent: int = 0
    uncompressed_bytes: int = 0
    second_moment_bytes_sent: int = 0
    seconds_waited: float = 0.0
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
        """Bits sent for one value of a sum, of those that this worker sends.

        Each worker serves other values. The mean of all workers is that of the model.
        """
        return _bits_per_value(self.result_bytes_sent, self.values_sent / 2)

    @property
    def second_moment_bits_per_value(self) -> float:
        """Of `bits_per_value`, those of shared second moments."""
        return _bits_per_value(self.second_moment_bytes_sent, self.values_sent)

    @property
    def ratio(self) -> float:
        """How many times fewer bytes were sent than without compression."""
        return self.uncompressed_bytes / self.bytes_sent if self.bytes_sent else 1.0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            *(
                getattr(self, field.name) + getattr(other, field.name)
                for field in dataclasses.fields(Traffic)
            )
        )

    def by_name(self) -> "Traffic":
        """Returns the same with variables of one name and compressor added up."""
        return dataclasses.replace(self, variables=by_name(self.variables))

    def since(self, earlier: "Traffic") -> "Traffic":
        """Returns what was exchanged after `earlier`, a traffic of the same strategy."""
        return _since(self, earlier)

    def as_dict(self) -> dict:
        """Returns everything as numbers, strings, lists and dicts (for JSON)."""
        return {
            **dataclasses.asdict(self),
            "bits_per_value": self.bits_per_value,
            "bits_per_value_up": self.bits_per_value_up,
            "bits_per_value_down": self.bits_per_value_down,
            "second_moment_bits_per_value": self.second_moment_bits_per_value,
            "ratio": self.ratio,
            "variables": [
                {**dataclasses.asdict(variable), "bits_per_value": variable.bits_per_value}
                for variable in self.variables
            ],
        }

    def __str__(self):
        second_moments = (
            f" ({self.second_moment_bits_per_value:.3f} of second moments)"
            if self.second_moment_bytes_sent
            else ""
        )
        return (
            f"{self.steps} steps, {self.bytes_sent:,} bytes sent, {self.bytes_received:,} received,"
            f" {self.bits_per_value:.3f} bits a value{second_moments}, {self.ratio:.1f} times fewer"
            " bytes"
        )


@dataclasses.dataclass(frozen=True)
class ServerVariableTraffic:
    """What all workers have exchanged of one variable with its server.

    Attributes:
      name: the variable's name.
      compressor: the compressor, as text.
      values_pushed: gradient values, counted once for each push.
      bytes_pushed: bytes that they took, without message headers.
      second_moment_bytes_pushed: of these, those of second moments.
      values_pulled: values of the model, counted once for each pull.
      bytes_pulled: bytes that they took, without message headers.
    """

    name: str
    compressor: str
    values_pushed: int
    bytes_pushed: int
    second_moment_bytes_pushed: int
    values_pulled: int
    bytes_pulled: int

    @property
    def bits_per_value_pushed(self) -> float:
        return _bits_per_value(self.bytes_pushed, self.values_pushed)


@dataclasses.dataclass(frozen=True)
class ServerTraffic:
    """What all workers have exchanged with the parameter servers.

    Counted are messages as they are handed to TensorFlow, headers included. Not
    counted are its own framing, requests (16 bytes a pull) and answers (10 bytes a
    push), and variables that are read as in TensorFlow.

    Attributes:
      updates: how often the optimizer has run.
      pushes: pushes that were accepted.
      dropped_pushes: pushes that came too late.
      pulls: pulls of all workers.
      encodings: how often changes of the model were encoded, whatever the number
        of workers that pulled them.
      bytes_pushed: bytes from workers to servers.
      bytes_pulled: bytes from servers to workers.
      second_moment_bytes_pushed: of `bytes_pushed`, those of second moments.
      values_pushed: gradient values that they stand for: those of every push.
      values_pulled: values of the model that they keep up to date: those of every
        pull.
      variables: the same by variable.

    With several servers, numbers are sums over them, but for `updates`,
    `pushes`, `dropped_pushes`, `pulls` and `encodings`, where they are the largest.
    """

    updates: int = 0
    pushes: int = 0
    dropped_pushes: int = 0
    pulls: int = 0
    encodings: int = 0
    bytes_pushed: int = 0
    bytes_pulled: int = 0
    second_moment_bytes_pushed: int = 0
    values_pushed: int = 0
    values_pulled: int = 0
    variables: tuple[ServerVariableTraffic, ...] = ()

    @property
    def bits_per_value_pushed(self) -> float:
        """Bits from a worker to the servers for one gradient value."""
        return _bits_per_value(self.bytes_pushed, self.values_pushed)

    @property
    def second_moment_bits_per_value_pushed(self) -> float:
        """Of `bits_per_value_pushed`, those of second moments."""
        return _bits_per_value(self.second_moment_bytes_pushed, self.values_pushed)

    @property
    def bits_per_value_pulled(self) -> float:
        """Bits from the servers to a worker for one value of the model and step."""
        return _bits_per_value(self.bytes_pulled, self.values_pulled)

    @property
    def ratio(self) -> float:
        """How many times fewer bytes were exchanged than by float32 values."""
        exchanged = self.bytes_pushed + self.bytes_pulled
        return 4 * (self.values_pushed + self.values_pulled) / exchanged if exchanged else 1.0

    def since(self, earlier: "ServerTraffic") -> "ServerTraffic":
        """Returns what was exchanged after `earlier`, a traffic of the same strategy."""
        return _since(self, earlier)

    def as_dict(self) -> dict:
        """Returns everything as numbers, strings, lists and dicts (for JSON)."""
        return {
            **dataclasses.asdict(self),
            "bits_per_value_pushed": self.bits_per_value_pushed,
            "second_moment_bits_per_value_pushed": self.second_moment_bits_per_value_pushed,
            "bits_per_value_pulled": self.bits_per_value_pulled,
            "ratio": self.ratio,
            "variables": [
                {**dataclasses.asdict(v), "bits_per_value_pushed": v.bits_per_value_pushed}
                for v in self.variables
            ],
        }

    def __str__(self):
        return (
            f"{self.updates} updates, {self.bytes_pushed:,} bytes pushed "
            f"({self.bits_per_value_pushed:.3f} bits a value), {self.bytes_pulled:,} pulled "
            f"({self.bits_per_value_pulled:.3f}), {self.dropped_pushes} pushes dropped, "
            f"{self.ratio:.1f} times fewer bytes"
        )


_LARGEST = ("updates", "pushes", "dropped_pushes", "pulls", "encodings")


def total_traffic(servers: Iterable[ServerTraffic]) -> ServerTraffic:
    """Returns the traffic with several servers together."""
    servers = list(servers)
    totals = {
        field.name: (max if field.name in _LARGEST else sum)(
            getattr(server, field.name) for server in servers
        )
        for field in dataclasses.fields(ServerTraffic)
        if servers and field.name != "variables"
    }
    variables = tuple(variable for server in servers for variable in server.variables)
    return ServerTraffic(**totals, variables=variables)
