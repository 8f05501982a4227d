"""What the workers have not delivered to the servers, in checkpoints."""

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
        self._saved = {}  # name in checkpoints -> _Saved

    def add(self, server, variable):
        """Adds a new `ServerVariable` of some `ServerVariables`."""
        name = unused_name(checkpoint_name(variable.name), self._saved)
        saved = _Saved(server, variable, self._workers)
        self._saved[name] = saved
        with tf.init_scope():
            self._track_trackable(saved, name)
            if variable.matrix:
                # Of its own: checkpoints of a program that has none can be restored.
                moment = _SavedSecondMoment(server, variable, self._workers)
                saved._track_trackable(moment, "second_moment")

    def total(self, name: str) -> tf.Tensor:
        """Returns the sum of a variable's residuals, a float32 tensor.

        Raises:
          KeyError: there is no variable of this name.
        """
        return self._saved[checkpoint_name(name)].total()


class _OfWorkers(internals.Trackable):
    """What the workers' models hold of one variable."""

    def __init__(self, server, variable, workers):
        self._server = server
        self._variable = variable
        self._workers = workers

    def _read(self, read, shape):
        """Returns the values of all workers that can be reached, with an op of theirs."""
        values = [read(model, id=self._variable.id, shape=shape) for model in self._models()]
        with worker_step.on_worker():
            return [tf.identity(value) for value in values]

    def _write(self, write, share):
        """Writes share(number of workers that can be reached) to these, with an op of theirs."""
        models = self._models()
        for model in models:
            write(model, share(len(models)), id=self._variable.id)

    def _models(self):
        """Returns the handles of the models of all workers that can be reached."""
        models = []
        for worker in range(self._workers):
            try:
                with tf.device(f"/job:worker/task:{worker}/device:CPU:0"):
                    models.append(self._server.local_model())
            except tf.errors.UnavailableError:
                logging.warning("worker %d cannot be reached: what it has kept is lost", worker)
        return models


class _Saved(_OfWorkers):
    """What a checkpoint holds of one variable."""

    def total(self):
        id_, shape = self._variable.id, self._variable.shape
        with self._server.scope():
            total = ops.read_round(self._server.handle, id=id_, shape=shape)
        for residual in self._read(ops.read_residual, shape):
            with worker_step.on_worker():
                total += residual
        return total

    def _serialize_to_tensors(self):
        return {"residual": self.total(), "step": self._server.step()}

    def _restore_from_tensors(self, restored_tensors):
        self._server.set_step(restored_tensors["step"])
        residual = restored_tensors["residual"]
        self._write(ops.write_residual, lambda workers: residual / workers)


class _SavedSecondMoment(_OfWorkers):
    """The mean of the statistics of those workers that have pushed a gradient."""

    def _serialize_to_tensors(self):
        shape = [sum(self._variable.matrix)]
        statistics = self._read(ops.read_second_moment, shape)
        with worker_step.on_worker():
            # Of zeros, which do not count, if no worker can be reached.
            statistics = tf.stack([tf.zeros(shape), *statistics])
            workers = tf.math.count_nonzero(tf.reduce_sum(statistics, axis=1), dtype=tf.float32)
            return {"mean": tf.math.divide_no_nan(tf.reduce_sum(statistics, axis=0), workers)}

    def _restore_from_tensors(self, restored_tensors):
        self._write(ops.write_second_moment, lambda _: restored_tensors["mean"])
