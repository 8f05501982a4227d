"""What the workers have not delivered to the servers, in checkpoints."""

import contextlib
import math

import tensorflow as tf
from absl import logging
from tf_gc.strategy import tensorflow_internals as internals
from tf_gc.strategy import worker_step
from tf_gc.strategy.variables import checkpoint_name, unused_name

from tf_gc import ops


class ServerResiduals(internals.Trackable):
    """The residuals of every pushed variable: in a checkpoint, their sum over the workers.

    And the number of updates so far, which schedules and `start_step` go by.

    To the sum belong the pushes of a round that is not complete yet. On restore,
    every worker gets an equal share: nothing is lost when training goes on, be it
    with another number of workers. What is restored before its variable is made
    waits for that. A worker that cannot be reached while saving has lost its
    residual already, and counts as zero; while restoring, the others share.

    Where pushes have statistics for the second moment, a checkpoint holds their
    mean over the workers, and on restore every worker gets that.

    Args:
      workers: the number of workers.
    """

    def __init__(self, workers):
        self._workers = workers
        self._kept = {}  # server -> _Kept
        self._saved = {}  # name in checkpoints -> _Saved

    def add(self, server, variable):
        """Adds a new `ServerVariable` of some `ServerVariables`."""
        name = unused_name(checkpoint_name(variable.name), self._saved)
        kept = self._kept.setdefault(server, _Kept(server, self._workers))
        kept.variables.append(variable)
        saved = _Saved(kept, variable)
        self._saved[name] = saved
        with tf.init_scope():
            self._track_trackable(saved, name)
            if variable.matrix:
                # Of its own: checkpoints of a program that has none can be restored.
                saved._track_trackable(_SavedSecondMoment(kept, variable), "second_moment")

    def total(self, name: str) -> tf.Tensor:
        """Returns the sum of a variable's residuals, a float32 tensor.

        Raises:
          KeyError: there is no variable of this name.
        """
        return self._saved[checkpoint_name(name)].total()

    def _trackable_children(self, *args, **kwargs):
        for kept in self._kept.values():  # a checkpoint begins with this
            kept.forget()
        return super()._trackable_children(*args, **kwargs)


class _Kept:
    """What the workers keep of a server's variables, and the server of its open round.

    A checkpoint asks for one variable after the other. All of them are read when the first is
    asked for, by one call of each process.

    Attributes:
      variables: the `ServerVariable`s.
    """

    def __init__(self, server, workers):
        self.server = server
        self.variables = []
        self._workers = workers
        self._functions = {}  # (device, ids) -> function that reads
        self._residuals, self._statistics = {}, {}  # by id, of what was read and not asked for yet

    def forget(self):
        """Has all be read anew."""
        self._residuals, self._statistics = {}, {}

    def residual(self, variable):
        """Returns the sum over the workers and the open round."""
        if variable.id not in self._residuals:
            self._residuals, self._statistics = self.read(self.variables)
        return self._residuals.pop(variable.id)

    def statistics(self, variable):
        """Returns those of all workers that can be reached, float32 [workers, rows + columns]."""
        if variable.id not in self._statistics:
            self._residuals, self._statistics = self.read(self.variables)
        return self._statistics.pop(variable.id)

    def read(self, variables):
        """Returns residuals and statistics by id."""
        rounds = self._call(self.server.device, variables, self._read_rounds)
        of_workers = [tf.zeros([0, rounds.shape[0]])]
        for worker in range(self._workers):
            with _if_reached(worker) as device:
                vector = self._call(device, variables, self._read_worker)
                with worker_step.on_worker():
                    of_workers.append(vector[None])
        sizes = [size for v in variables for size in (math.prod(v.shape), sum(v.matrix or ()))]
        with worker_step.on_worker():
            parts = tf.split(tf.concat(of_workers, axis=0), sizes, axis=1)
            in_rounds = tf.split(rounds, sizes)[::2]
            residuals = {
                v.id: tf.reshape(tf.reduce_sum(part, axis=0) + in_round, v.shape)
                for v, part, in_round in zip(variables, parts[::2], in_rounds, strict=True)
            }
        return residuals, {v.id: part for v, part in zip(variables, parts[1::2], strict=True)}

    def write(self, op, variable, share):
        """Writes share(number of workers that can be reached) to each of these."""
        models = []
        for worker in range(self._workers):
            with _if_reached(worker):
                models.append(self.server.local_model())
        for model in models:
            op(model, share(len(models)), id=variable.id)

    def _call(self, device, variables, read):
        """Returns the vector that read(variables) gives on a device, here."""
        key = (device, tuple(v.id for v in variables))
        if key not in self._functions:

            @tf.function(autograph=False)
            def function():
                with tf.device(device):
                    values = tf.concat([tf.reshape(v, [-1]) for v in read(variables)], axis=0)
                with worker_step.on_worker():
                    return tf.identity(values)

            self._functions[key] = function
        with tf.init_scope():
            return self._functions[key]()

    def _read_worker(self, variables):
        model = self.server.local_model()
        # What a step that failed has pushed is part of the round, or of the residuals.
        unsettled = ops.unsettled_pushes(model)
        with self.server.scope():
            counted = ops.counted_pushes(self.server.handle, unsettled)
        ops.settle_unsettled(model, unsettled, counted)
        for v in variables:
            yield ops.read_residual(model, id=v.id, shape=v.shape)
            if v.matrix:
                yield ops.read_second_moment(model, id=v.id, shape=[sum(v.matrix)])

    def _read_rounds(self, variables):
        for v in variables:
            yield ops.read_round(self.server.handle, id=v.id, shape=v.shape)
            if v.matrix:
                yield tf.zeros([sum(v.matrix)])


@contextlib.contextmanager
def _if_reached(worker):
    """Places operations on a worker; leaves them out if it is away."""
    device = f"/job:worker/task:{worker}/device:CPU:0"
    try:
        with tf.device(device):
            yield device
    except tf.errors.UnavailableError:
        logging.warning("worker %d cannot be reached: what it has kept is lost", worker)


class _OfVariable(internals.Trackable):
    def __init__(self, kept, variable):
        self._kept = kept
        self._variable = variable


class _Saved(_OfVariable):
    """What a checkpoint holds of one variable."""

    def total(self):
        residuals, _ = self._kept.read([self._variable])
        return residuals[self._variable.id]

    def _serialize_to_tensors(self):
        return {"residual": self._kept.residual(self._variable), "step": self._kept.server.step()}

    def _restore_from_tensors(self, restored_tensors):
        self._kept.server.set_step(restored_tensors["step"])
        residual = restored_tensors["residual"]
        self._kept.write(ops.write_residual, self._variable, lambda workers: residual / workers)


class _SavedSecondMoment(_OfVariable):
    """The mean of the statistics of those workers that have pushed a gradient."""

    def _serialize_to_tensors(self):
        statistics = self._kept.statistics(self._variable)
        with worker_step.on_worker():
            # Zeros do not count.
            workers = tf.math.count_nonzero(tf.reduce_sum(statistics, axis=1), dtype=tf.float32)
            return {"mean": tf.math.divide_no_nan(tf.reduce_sum(statistics, axis=0), workers)}

    def _restore_from_tensors(self, restored_tensors):
        mean = restored_tensors["mean"]
        self._kept.write(ops.write_second_moment, self._variable, lambda _: mean)
