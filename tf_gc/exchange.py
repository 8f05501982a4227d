"""What a compressor sees of the step, and of the other workers."""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from tf_gc import ops


@dataclasses.dataclass(frozen=True)
class Choice:
    """Which of several compressors a bucket has in this step; the same on all workers.

    Attributes:
      systems: the compressors.
      place: int, which of the step's buckets this is.
      index: int32 scalar, which of the systems.
      ratio: float32 scalar, the part of the values that those without a ratio of their own send.
      measures_links: bool scalar, whether this step measures the links.
      second_moments_age: int64 scalar, how many of the plan's steps ago second moments were used
        last.
      has_units: bool scalar, whether values are compressed in units of the second moment.
      shares_second_moment: bool scalar, whether what is delivered is not for an optimizer to
        square.
      has_fresh_units: bool scalar, whether units follow the gradients soon, as little waits in
        residuals.
      delivers_all: bool scalar, whether it is not compressed, and residuals may wait.
      residuals_version: int64 scalar, another one after each step that may have left something.
      clean_version: int64 variable, that of which it is known that no residual of the bucket
        waits on any worker.
    """

    systems: tuple
    place: int
    index: tf.Tensor
    ratio: tf.Tensor
    measures_links: tf.Tensor
    second_moments_age: tf.Tensor
    has_units: tf.Tensor
    shares_second_moment: tf.Tensor
    has_fresh_units: tf.Tensor
    delivers_all: tf.Tensor
    residuals_version: tf.Tensor
    clean_version: tf.Variable

    def note_clean(self, is_clean: tf.Tensor) -> None:
        """Says whether this step has delivered all that waited, a bool scalar."""
        version = tf.where(is_clean, self.residuals_version, tf.zeros([], tf.int64))
        self.clean_version.assign(version)


@dataclasses.dataclass(frozen=True)
class Companions:
    """Gradients of a small uncompressed bucket that may travel in another bucket's messages.

    Attributes:
      gradients: float tensors, whose dtypes may differ.
      exchange: their own.
    """

    gradients: Sequence[tf.Tensor]
    exchange: "Exchange"


class Agreement:
    """What workers tell each other of their values in a step, in one of its messages.

    Attributes:
      finite: bool [variables], whether this worker's values are finite.
      known: `Exchange.finite` and `Exchange.statistics`, once a message has carried it. Else None.
    """

    def __init__(self, finite: tf.Tensor, statistics: tf.Tensor | None = None):
        """
        Args:
          finite: the attribute.
          statistics: float32 tensor of a known shape, the same on all workers; None for none.
        """
        self.finite = finite
        self._statistics = tf.zeros([0]) if statistics is None else statistics
        self.known = None

    def to_bytes(self) -> tf.Tensor:
        """Returns what this worker tells: packed flags, and its statistics, a uint8 vector."""
        flags = ops.sign_pack(tf.where(self.finite, 1.0, -1.0))
        return tf.concat([flags, to_bytes(self._statistics)], 0)

    def take_bytes(self, messages: tf.Tensor) -> tf.Tensor:
        """Takes it from all workers' messages, uint8 [N, bytes], which begin with it.

        Returns:
          Their rest, uint8 [N, bytes].
        """
        workers, variables = messages.shape[0], self.finite.shape[0]
        shape = self._statistics.shape
        sizes = [-(-variables // 8), 4 * shape.num_elements(), -1]
        flags, statistics, rest = tf.split(messages, sizes, axis=1)
        signs = ops.sign_unpack(tf.reshape(flags, [-1]), workers * sizes[0] * 8)
        everywhere = tf.reduce_all(tf.reshape(signs > 0, [workers, -1]), axis=0)
        statistics = from_bytes(tf.reshape(statistics, [-1]), tf.float32, [workers, *shape])
        self.known = everywhere[:variables], statistics
        return rest

    def to_summands(self) -> tf.Tensor:
        """Returns what this worker tells, 1 for what is not finite, as a float32 vector."""
        flags = tf.where(self.finite, 0.0, 1.0)
        return tf.concat([flags, tf.reshape(self._statistics, [-1])], 0)

    def take_sums(self, sums: tf.Tensor, workers: int) -> None:
        """Takes it from the sums of all workers' vectors, of statistics the means."""
        not_finite, statistics = tf.split(sums, [self.finite.shape[0], -1])
        means = tf.reshape(statistics / workers, [1, *self._statistics.shape])
        self.known = tf.equal(not_finite, 0), means


@dataclasses.dataclass(frozen=True)
class Exchange:
    """One bucket of variables in one step, and the ways to exchange data about it.

    The methods that talk to the other workers must be called by all of them, in
    the same order; each is one asynchronous op, which blocks no other bucket.
    They raise `tf.errors.UnavailableError` when a worker has died, and
    `tf.errors.DeadlineExceededError` when one does not come in time.

    Attributes:
      group_key: key of the workers' devices in TensorFlow's collective runtime.
      workers: the number of workers N.
      rank: which of them this is, 0 ... N - 1.
      timeout_seconds: how long the ops wait for the others; 0 waits for ever.
      bucket: resource handle that orders these ops, and counts what they send; None where there
        are no variables.
      reduce_op: "SUM" or "MEAN", what the strategy was asked for.
      step: int64 scalar, the number of reductions that the optimizer has done
        before; the same on all workers.
      names: the variables' names. None, for the last of an exact bucket, is for
        statistics, which are summed for "MEAN", too.
      shapes: the variables' shapes, as tuples.
      slots: float32 variables that this worker keeps for each variable, by the
        name of the slot. "residual" is what has not been delivered yet.
      finite: bool [number of variables], whether a gradient is finite on all
        workers; None for compressors that do this by themselves.
      statistics: float32 [N, ...], the `statistics` of all workers' compressors,
        by rank; or [1, ...], their mean, where sums or signs have carried them.
      units: for compressors with units "second_moment", by variable the float32
        [rows + columns] of `ops.second_moment_units`, or [0] for a variable that
        is no matrix; the same on all workers. Else None.
      squares: for the same compressors by variable this worker's
        `ops.mean_squares`, or [0] if they are not known yet, or not used in this step.
      choice: for `tf_gc.Auto`, what was chosen for this step. Else None.
      momentum_weight: where variables have been trained by another optimizer before, 1 - beta^t
        after t steps of this one, the weight of its momentum. Else 1.
      companions: gradients whose sums are returned after the bucket's own, by compressors that
        are known to (`tf_gc.compressors.companions`). Else None.
      turn_counter: makes the variable that `take_turn` counts in, when first called.
      agreement: what `finite` and `statistics` will follow from, which the next message carries,
        of `all_gather`, sums or signs; None where they are known, or not needed.
    """

    group_key: int
    workers: int
    rank: int
    timeout_seconds: float
    bucket: tf.Tensor | None = None
    reduce_op: str = "SUM"
    step: tf.Tensor | None = None
    names: tuple[str | None, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    slots: Mapping[str, Sequence[tf.Variable]] = dataclasses.field(default_factory=dict)
    finite: tf.Tensor | None = None
    statistics: tf.Tensor | None = None
    units: Sequence[tf.Tensor] | None = None
    squares: Sequence[tf.Tensor] | None = None
    choice: Choice | None = None
    momentum_weight: tf.Tensor | float = 1.0
    companions: Companions | None = None
    turn_counter: Callable[[], tf.Variable] | None = None
    agreement: Agreement | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The variables' numbers of values."""
        return tuple(tf.TensorShape(shape).num_elements() for shape in self.shapes)

    @property
    def size(self) -> int:
        """The number of values n of the whole bucket."""
        return sum(self.sizes)

    @property
    def residuals(self) -> list[tf.Tensor]:
        """Handles of the residuals, in the variables' order."""
        return [variable.handle for variable in self.slots["residual"]]

    @property
    def arguments(self) -> dict:
        """The arguments that all ops of the exchange share."""
        return {
            "bucket": self.bucket,
            "group_key": self.group_key,
            "group_size": self.workers,
            "timeout_seconds": self.timeout_seconds,
        }

    @property
    def joint_arguments(self) -> dict:
        """The arguments of ops that take companions."""
        if self.companions is None:
            return self.arguments
        of_companions = self.companions.exchange
        return {
            **self.arguments,
            "companions": self.companions.gradients,
            "companions_bucket": of_companions.bucket,
            "statistic_companions": of_companions.names.count(None),
        }

    def seed(self, seed: int, purpose: str = "", shared: bool = False) -> tf.Tensor:
        """Returns an int64 [2] seed of random numbers for this step and bucket.

        The first number follows from `seed`, `purpose`, the variables' names
        and, unless `shared`, this worker's rank; the second one is the step.
        """
        who = "all workers" if shared else f"worker {self.rank}"
        text = "\0".join([str(seed), purpose, who, *self.names])
        key = hashlib.blake2b(text.encode(), digest_size=8).digest()
        key = int.from_bytes(key, "little") & (2**63 - 1)
        return tf.stack([tf.constant(key, tf.int64), tf.cast(self.step, tf.int64)])

    def take_turn(self) -> tf.Tensor:
        """Returns how often it was called for this bucket before, the same on all workers.

        For what workers, or kinds of steps, do in turn. Steps of the optimizer would not do: a
        bucket may have gradients in the even ones alone.

        Returns:
          int64 scalar.
        """
        # A step that fails before its gradients are there has no turn: other workers may have none.
        given = self.finite if self.agreement is None else self.agreement.finite
        with tf.control_dependencies([] if given is None else [given]):
            return self.turn_counter().assign_add(1) - 1

    def sum(self, values: tf.Tensor, topology: str = "sharded", rows: int = 1) -> tf.Tensor:
        """Adds up float tensors of one shape; every worker gets the same bits.

        Args:
          values: float32, float16 or bfloat16 tensor.
          topology: "sharded" (every worker is the server of a part), "ring",
            "tree", or "torus" of so many `rows`.
          rows: the torus' number of rows.

        Returns:
          tensor of the dtype and shape of `values`.
        """
        flat = tf.reshape(values, [-1])
        total = self._carry(ops.exchange_sum, flat, topology=topology, rows=rows)
        return tf.reshape(total, tf.shape(values))

    def lane_sum(
        self,
        packed: tf.Tensor,
        table: Sequence[int],
        bits: int,
        size: int,
        topology: str = "sharded",
        rows: int = 1,
    ) -> tf.Tensor:
        """Adds up table[index] over the workers, in integers that nobody decodes.

        Args:
          packed: uint8, `size` indices of `bits` bits, from `ops.pack_bits`.
          table: 2^bits integers, 0 or more. Sums of N workers travel in
            ceil(log2(N max(table) + 1)) bits, which are 16 at most.
          bits: 2, 3, 4, 5 or 8.
          size: the number of indices.
          topology: "sharded", "ring" or "torus".
          rows: the torus' number of rows.

        Returns:
          uint8 [size], uint16 where sums may take more than 8 bits.
        """
        lanes = tf.uint8 if self.workers * max(table) < 1 << 8 else tf.uint16
        return ops.exchange_lane_sum(
            packed,
            tf.constant(list(table), tf.int32),
            size,
            bits=bits,
            lanes=lanes,
            topology=topology,
            rows=rows,
            **self.arguments,
        )

    def sign_merge(
        self, packed: tf.Tensor, size: int, seed: tf.Tensor, topology: str = "ring", rows: int = 1
    ) -> tf.Tensor:
        """Merges packed signs: a bit is 1 with the probability that a worker's is.

        Args:
          packed: uint8 [ceil(size / 8)], from `ops.sign_pack`.
          size: the number of signs.
          seed: from `seed(..., shared=True)`.
          topology: "ring" or "torus".
          rows: the torus' number of rows.

        Returns:
          uint8 [ceil(size / 8)].
        """
        return self._carry(
            ops.exchange_sign_merge, packed, size, seed, topology=topology, rows=rows
        )

    def sign_majority(self, packed: tf.Tensor, size: int) -> tf.Tensor:
        """Returns the packed signs that at least half of the workers have.

        Args:
          packed: uint8 [ceil(size / 8)], from `ops.sign_pack`.
          size: the number of signs.

        Returns:
          uint8 [ceil(size / 8)].
        """
        return self._carry(ops.exchange_sign_majority, packed, size)

    def cascading_sign(self, values: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Adds up vectors around a ring, cut to stochastic signs at every hop.

        Args:
          values: float32 [n].
          seed: from `seed(..., shared=True)`.

        Returns:
          float32 [n], the same on all workers.
        """
        return self._carry(ops.exchange_cascading_sign, values, seed)

    def all_gather(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the workers' tensors of one shape, stacked in the order of ranks.

        Args:
          values: numeric tensor of the same shape on all workers.

        Returns:
          [N, *shape], of its dtype. Where sizes differ after all, the step is an
          `InvalidArgumentError`.
        """
        own, carried = to_bytes(values), self._open_agreement
        if carried is not None:
            own = tf.concat([carried.to_bytes(), own], 0)
        data, sizes = self._all_gather_bytes(own, own.shape[0])
        are_equal = tf.reduce_all(sizes == tf.size(own, sizes.dtype))
        message = "sizes: a worker has sent more bytes, or fewer; those of all ranks are"
        data = received(data, are_equal, message, sizes)
        if carried is not None:
            data = tf.reshape(carried.take_bytes(tf.reshape(data, [self.workers, -1])), [-1])
        return from_bytes(data, values.dtype, tf.concat([[self.workers], tf.shape(values)], 0))

    def all_gather_unequal(self, values: tf.Tensor) -> tf.RaggedTensor:
        """Returns the workers' vectors, which may have different sizes: row r is of rank r.

        A vector of more than 16 bytes for each value of the bucket and 64 KiB, or of 2^31 bytes,
        makes the step an `InvalidArgumentError`.
        """
        data, sizes = self._all_gather_bytes(to_bytes(values))
        lengths = sizes // values.dtype.size
        return tf.RaggedTensor.from_row_lengths(from_bytes(data, values.dtype, [-1]), lengths)

    def fold(self, add, initial):
        """Returns add(... add(add(initial, 0), 1) ..., N - 1): one loop for any number of workers.

        Args:
          add: function of what was there, and of a rank, an int32 scalar, that
            returns a structure of tensors like `initial`.
          initial: a structure of tensors.
        """
        _, last = tf.while_loop(
            lambda rank, _: rank < self.workers,
            lambda rank, so_far: (rank + 1, add(so_far, rank)),
            (0, initial),
        )
        return last

    def broadcast(self, values: tf.Tensor, root: tf.Tensor) -> tf.Tensor:
        """Returns the vector of the worker `root`, an int scalar; that of others is not sent.

        It has the limit of `all_gather_unequal`.
        """
        data = ops.exchange_broadcast(
            to_bytes(values), tf.cast(root, tf.int32), max_bytes=self._max_bytes, **self.arguments
        )
        return from_bytes(data, values.dtype, [-1])

    def read(self, slot: str) -> tf.Tensor:
        """Returns a slot of all variables, one after the other, as float32 [n]."""
        return tf.concat([tf.reshape(v.read_value(), [-1]) for v in self.slots[slot]], 0)

    def write(self, slot: str, values: tf.Tensor) -> None:
        """Writes float32 [n] to a slot, but where a gradient, or a value itself, is not finite."""
        handles = [variable.handle for variable in self.slots[slot]]
        ops.store_residuals(values, handles, self.agreed().finite)

    def after(self, total: tf.Tensor) -> "Exchange":
        """Returns the exchange once there is a sum: where it has overflowed, nothing is written.

        Args:
          total: float32 [n], or slices of it, the sum of what is delivered.
        """
        agreed = self.agreed()
        finite = agreed.finite & ops.all_finite(total, self.sizes)
        return dataclasses.replace(agreed, finite=finite)

    def agreed(self) -> "Exchange":
        """Returns the exchange with `finite` and `statistics`, which take a message of their own
        unless one has carried them."""
        if self.agreement is None:
            return self
        without = dataclasses.replace(self, agreement=None)
        if self.agreement.known is None:
            self.agreement.take_bytes(without.all_gather(self.agreement.to_bytes()))
        finite, statistics = self.agreement.known
        return dataclasses.replace(without, finite=finite, statistics=statistics)

    @property
    def _open_agreement(self):
        """The agreement that the next message carries, or None."""
        is_open = self.agreement is not None and self.agreement.known is None
        return self.agreement if is_open else None

    def _carry(self, exchange, *values, **attributes):
        """Calls the op of an exchange; with it travels what is to be agreed in."""
        carried = self._open_agreement
        if carried is None:
            return exchange(*values, **attributes, **self.arguments)
        own = carried.to_summands()
        result, sums = exchange(*values, **attributes, carried=own, **self.arguments)
        carried.take_sums(sums, self.workers)
        return result

    def _all_gather_bytes(self, data, max_bytes=None):
        if max_bytes is None:
            max_bytes = self._max_bytes
        return ops.exchange_all_gather(data, max_bytes=max_bytes, **self.arguments)

    @property
    def _max_bytes(self):
        """More than any compressor sends of the bucket in one message."""
        return min(16 * self.size + (1 << 16), (1 << 31) - 1)


def received(data: tf.Tensor, condition: tf.Tensor, *message: str | tf.Tensor) -> tf.Tensor:
    """Returns what other workers have sent, but raises InvalidArgumentError unless it may be so.

    Args:
      data: tensor, of what was received.
      condition: bool scalar.
      message: names the field, and says what is wrong with it; values that show it.
    """
    with tf.control_dependencies([tf.debugging.Assert(condition, message, summarize=-1)]):
        return tf.identity(data)


def to_bytes(values: tf.Tensor) -> tf.Tensor:
    """Returns the bytes of a tensor of numbers, as a uint8 vector."""
    return tf.reshape(tf.bitcast(values, tf.uint8), [-1])


def from_bytes(data: tf.Tensor, dtype: tf.DType, shape) -> tf.Tensor:
    """Returns the tensor of a shape, one size of which may be -1, of which these are the bytes."""
    if dtype.size > 1:
        data = tf.reshape(data, [-1, dtype.size])
    return tf.reshape(tf.bitcast(data, dtype), shape)
