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
    residual already, and counts as zero.

    Args:
      workers: the number of workers.
    """

    def __init__(self, workers):
        self._workers = workers
        self._saved = {}  # name in checkpoints -> _Saved

    def add(self, server, variable):
        """Adds a new `ServerVariable` of some `ServerVariables`."""
        name = unused_name(checkpoint_name(variable.name), self._saved)
        self._saved[name] = _Saved(server, variable, self._workers)
        with tf.init_scope():
            self._track_trackable(self._saved[name], name)

    def total(self, name: str) -> tf.Tensor:
        """Returns the sum of a variable's residuals, a float32 tensor.

        Raises:
          KeyError: there is no variable of this name.
        """
        return self._saved[checkpoint_name(name)].total()


class _Saved(internals.Trackable):
    """What a checkpoint holds of one variable."""

    def __init__(self, server, variable, workers):
        self._server = server
        self._variable = variable
        self._workers = workers

    def total(self):
        id_, shape = self._variable.id, self._variable.shape
        with self._server.scope():
            total = ops.read_round(self._server.handle, id=id_, shape=shape)
        for worker in range(self._workers):
            try:
                with _on_worker(worker):
                    model = ops.local_model(self._server.name)
                    residual = ops.read_residual(model, id=id_, shape=shape)
                with worker_step.on_worker():
                    total += tf.identity(residual)
            except tf.errors.UnavailableError:
                logging.warning("worker %d cannot be reached: its residuals are lost", worker)
        return total

    def _serialize_to_tensors(self):
        return {"residual": self.total(), "step": self._server.step()}

    def _restore_from_tensors(self, restored_tensors):
        self._server.set_step(restored_tensors["step"])
        share = restored_tensors["residual"] / self._workers
        for worker in range(self._workers):
            with _on_worker(worker):
                model = ops.local_model(self._server.name)
                ops.write_residual(model, tf.identity(share), id=self._variable.id)


def _on_worker(worker):
    return tf.device(f"/job:worker/task:{worker}/device:CPU:0")
