"""The variables of one parameter server: what it publishes, and under which names."""

import collections
import dataclasses
import itertools
import threading
import weakref

import tensorflow as tf
from tf_gc.strategy import worker_step
from tf_gc.strategy.tensorflow_internals import placed_on

from tf_gc import ops, schedules
from tf_gc.compressors import Compressor, Uncompressed
from tf_gc.compressors.server_codecs import ServerCodecs
from tf_gc.second_moments import has_statistics, matrix_shape
from tf_gc.traffic import ServerTraffic, ServerVariableTraffic, by_name


@dataclasses.dataclass(frozen=True)
class ServerVariable:
    """A variable, as its server and the workers know it.

    Attributes:
      id: its number, which messages carry; unique in the program.
      name: its name, for the policy, the traffic and checkpoints.
      shape: its shape, as a tuple.
      compressor: what its gradients and its changes travel by.
      codecs: the compressor's `ServerCodecs`, for this variable.
      matrix: (rows, columns) of the matrix that its pushes have statistics of, or
        None.
      is_pulled: whether steps read a copy that is pulled; if not, they read it
        from the server, as in TensorFlow.
    """

    id: int
    name: str
    shape: tuple[int, ...]
    compressor: Compressor
    codecs: ServerCodecs
    matrix: tuple[int, int] | None
    is_pulled: bool


class ServerVariables:
    """All trainable variables of one parameter server.

    Args:
      servers: all of the strategy, by their devices.
      device: the server's device.
      container: of its resources on the server and the workers, unique among all
        strategies.
      pushes_per_round: of the synchronous mode; None for the asynchronous one.
      max_staleness: the most versions that a push may be old; None for any.
      updates_per_version: of the asynchronous mode; None for what the load asks for.
      lease_seconds: the time that a worker has for an update.
    """

    def __init__(
        self,
        servers,
        device,
        container,
        pushes_per_round,
        max_staleness,
        updates_per_version,
        lease_seconds,
    ):
        self._servers = servers
        self.device = device
        self.name = f"tf_gc/{container}/{device}"
        self._container = container
        self._is_synchronous = pushes_per_round is not None
        self.pushes_per_round = pushes_per_round or 1
        self._variables = {}
        self._handles = {}  # id of a variable -> its handle
        self._channels = {}  # id of a variable -> those that it was pushed on
        self._dead = collections.deque()  # ids of variables that are gone
        self._dropped = collections.deque()  # channels of optimizers that are gone
        self._retired = ()  # their traffic
        self._lock = threading.Lock()  # held while the server knows other variables than this
        with tf.init_scope(), self.scope():
            self.handle = ops.parameter_server(
                shared_name=self.name,
                container=container,
                synchronous=self._is_synchronous,
                pushes_per_round=self.pushes_per_round,
                max_staleness=-1 if max_staleness is None else max_staleness,
                updates_per_version=updates_per_version or 0,
                lease_seconds=lease_seconds,
            )

    @property
    def variables(self):
        return list(self._variables.values())

    @property
    def pulled_variables(self):
        return [v for v in self._variables.values() if v.is_pulled]

    @property
    def handles(self):
        """Those of the pulled variables."""
        return [self._handles[v.id] for v in self.pulled_variables]

    @property
    def read_after_pulls(self):
        """The handles of variables that are read from the server once a pull has its answer.

        In rounds that may be long after it has come, and they are to be of its version.
        """
        if not self._is_synchronous:
            return []
        return [self._handles[v.id] for v in self.variables if not v.is_pulled]

    def variable(self, id_):
        return self._variables[id_]

    def add(self, id_, name, variable, compressor, is_pulled):
        """Returns the new `ServerVariable` of a `tf.Variable` on this server.

        Raises:
          ValueError: the compressor has no form for parameter servers.
        """
        shape = tuple(variable.shape)
        compressor = compressor or Uncompressed()
        codecs = compressor.server_codecs(pushes=self.pushes_per_round)
        if codecs.scale_is_pulled and not is_pulled:
            compressor = Uncompressed()
            codecs = compressor.server_codecs(pushes=self.pushes_per_round)
        matrix = None
        if codecs.has_statistics and has_statistics(shape):
            matrix = matrix_shape(shape)
            codecs = codecs.with_statistics(rows=matrix[0])
        entry = ServerVariable(id_, name, shape, compressor, codecs, matrix, is_pulled)
        with self._lock, tf.init_scope(), self.scope():
            ops.add_variable(
                self.handle,
                variable.handle,
                id=id_,
                name=name,
                shape=shape,
                push=codecs.push,
                pull=codecs.pull,
                start_step=compressor.start_step,
            )
            self._variables[id_] = entry
            self._handles[id_] = variable.handle
        # Not when the program ends, with half of TensorFlow gone.
        weakref.finalize(variable, self._dead.append, id_).atexit = False
        return entry

    def in_rounds_with(self, id_):
        """Yields each other server that has a part in a variable's rounds, and its ids there."""
        channels = set(self._channels.get(id_, ())) if self._is_synchronous else set()
        for server in [*self._servers.values()]:
            ids = sorted(other for other, own in [*server._channels.items()] if own & channels)
            if ids and server is not self:
                yield server, ids

    def push_on(self, channel, id_):
        """Says that a variable's gradients are pushed on a channel."""
        self._channels.setdefault(id_, set()).add(channel)

    def drop(self, channel):
        """Says that the optimizer of a channel is gone, and with it who would apply its round."""
        self._dropped.append(channel)

    def retire(self):
        """Frees what the server has of variables and optimizers that are gone.

        What it has counted stays.

        Returns:
          The ids of these variables, of which workers may have something, too.
        """
        ids = [self._dead.popleft() for _ in range(len(self._dead))]
        dropped = [self._dropped.popleft() for _ in range(len(self._dropped))]
        if ids or dropped:
            with self._lock:
                self._forget(ids, dropped)
        return ids

    def _forget(self, ids, dropped):
        self._retired = by_name(self._retired + self._variable_traffic(ids, self._statistics()))
        # A channel goes with its optimizer or last variable: the others' sums wait in its round.
        for channels in self._channels.values():
            channels.difference_update(dropped)
        gone = set(dropped).union(*(self._channels.pop(id_, ()) for id_ in ids))
        channels = sorted(gone.difference(*self._channels.values()))
        with tf.init_scope():
            with self.scope():
                ops.forget_variables(self.handle, ids, channels)
            with tf.device(None), worker_step.on_worker():  # the chief's own copy
                ops.forget_copies(self.local_model(), ids)
        for id_ in ids:
            del self._variables[id_]
            del self._handles[id_]

    @property
    def has_schedules(self):
        """Whether the multiplier of some variable's scale is a function of the step."""
        return any(callable(v.codecs.multiplier) for v in self.variables)

    def multipliers(self, ids, step):
        """Returns the multipliers of the scales of variables at a step, float32 [len(ids)].

        The step may be None without schedules.
        """
        values = [self._variables[id_].codecs.multiplier for id_ in ids]
        if any(callable(value) for value in values):
            return tf.stack([schedules.at_step(value, step) for value in values])
        return tf.constant(values, tf.float32)

    def local_model(self):
        """Returns the handle of the copy of the process that the operation is placed on."""
        return ops.local_model(self.name, container=self._container)

    def own_copy(self):
        """Returns the copy of the process that calls a function outside of a worker's step.

        Returns:
          Its handle, and how many updates it has seen, brought up to date.
        """
        with tf.init_scope():
            with worker_step.on_worker():
                model = self.local_model()
            ids = [v.id for v in self.pulled_variables]
            return model, worker_step.pull(self, model, ids)

    def traffic(self):
        """Returns the `ServerTraffic` of this server, to any thread."""
        with self._lock:
            statistics = self._statistics()  # once: all numbers are of one moment
            variables = self._retired + self._variable_traffic(self._variables, statistics)
        totals = _totals(statistics)
        counted = {key: value for key, value in totals.items() if key in _IN_TRAFFIC}
        return ServerTraffic(
            **counted,
            values_pushed=sum(v.values_pushed for v in variables),
            values_pulled=sum(v.values_pulled for v in variables),
            second_moment_bytes_pushed=sum(v.second_moment_bytes_pushed for v in variables),
            variables=variables,
        )

    def _variable_traffic(self, ids, counts):
        """Returns what `ServerStatistics` have of variables that are still there, a tuple."""
        traffic = {
            id_: ServerVariableTraffic(
                self._variables[id_].name, str(self._variables[id_].compressor), *rest
            )
            for id_, *rest in zip(
                counts.ids.numpy().tolist(),
                counts.values_pushed.numpy().tolist(),
                counts.bytes_pushed.numpy().tolist(),
                counts.second_moment_bytes_pushed.numpy().tolist(),
                counts.values_pulled.numpy().tolist(),
                counts.bytes_pulled.numpy().tolist(),
                strict=True,
            )
        }
        return tuple(traffic[id_] for id_ in ids)

    def counters(self):
        """Returns all that the server counts, by name."""
        return _totals(self._statistics())

    def step(self):
        """Returns how many updates the variables have seen, in earlier programs too; int64 []."""
        return self._statistics().counters[_COUNTERS.index("step")]

    def set_step(self, step):
        """Sets how many updates the variables have seen; workers know with their next pull."""
        with self.scope():
            ops.set_server_step(self.handle, step)

    def _statistics(self):
        with self.scope():
            return ops.server_statistics(self.handle)

    def scope(self):
        """Places operations on the server, in a context."""
        return placed_on(self.device)


def _totals(statistics):
    return dict(zip(_COUNTERS, statistics.counters.numpy().tolist(), strict=True))


# Of ServerStatistics.
_COUNTERS = (
    "version",
    "step",
    "updates",
    "pushes",
    "dropped_pushes",
    "pulls",
    "bytes_pushed",
    "bytes_pulled",
    "encodings",
    "log_bytes",
    "open_pushes",
    "leases_passed_on",
    "parked_pulls",
)
_IN_TRAFFIC = {field.name for field in dataclasses.fields(ServerTraffic)}

# Ids are unique in a program, so that no two strategies share one on a server.
variable_ids = itertools.count()
