"""What the workers have not delivered to the servers, in checkpoints."""

import re

import tensorflow as tf
from absl import logging
from tensorflow.python.trackable import base as trackable
from tf_gc.strategy import worker_step

from tf_gc import ops


class ServerResiduals(trackable.Trackable):
    """The residuals of every pushed variable: in a checkpoint, their sum over the workers.

    And the number of updates so far, which schedules and `start_step` go by.

    To the sum belong the pushes of a round that is not complete yet. On restore,
    every worker gets an equal share: nothing is lost when training goes on, be it
    with another number of workers. A worker that cannot be reached while saving
    has lost its residual already, and counts as zero.

    Args:
      servers: the strategy's `ServerVariables`, by device.
      workers: the number of workers.
    """

    def __init__(self, servers, workers):
        self._servers = servers
        self._workers = workers

    def total(self, name):
        """Returns the sum of a variable's residuals, a float32 tensor.

        Raises:
          KeyError: there is no variable of this name.
        """
        server, variable = self._variables()[_key(name)]
        return self._total(server, variable)

    def _variables(self):
        """Returns key in a checkpoint -> (ServerVariables, ServerVariable)."""
        found = {}
        for server in self._servers.values():
            for variable in server.variables:
                name = candidate = _key(variable.name)
                suffix = 0
                while candidate in found:
                    suffix += 1
                    candidate = f"{name}_{suffix}"
                found[candidate] = server, variable
        return found

    def _serialize_to_tensors(self):
        totals = {
            name: self._total(server, variable)
            for name, (server, variable) in self._variables().items()
        }
        steps = [server.step() for server in self._servers.values()]
        with worker_step.on_worker():
            return totals | {_STEP: tf.reduce_max(tf.stack([tf.constant(0, tf.int64), *steps]))}

    def _restore_from_tensors(self, restored_tensors):
        for server in self._servers.values():
            server.set_step(restored_tensors[_STEP])
        for name, (server, variable) in self._variables().items():
            share = restored_tensors[name] / self._workers
            for worker in range(self._workers):
                with tf.device(_device(worker)):
                    model = ops.local_model(server.name)
                    ops.write_residual(model, tf.identity(share), id=variable.id)

    def _total(self, server, variable):
        with server.scope():
            total = ops.read_round(server.handle, id=variable.id, shape=variable.shape)
        for worker in range(self._workers):
            try:
                with tf.device(_device(worker)):
                    model = ops.local_model(server.name)
                    residual = ops.read_residual(model, id=variable.id, shape=variable.shape)
                with worker_step.on_worker():
                    total += tf.identity(residual)
            except tf.errors.UnavailableError:
                logging.warning("worker %d cannot be reached: its residuals are lost", worker)
        return total


# No variable has this key, as no name begins with a separator.
_STEP = ":step"


def _key(name):
    """Returns a name without what TensorFlow escapes in keys: not alike in saving and restoring."""
    return re.sub("[./]", ":", name)


def _device(worker):
    return f"/job:worker/task:{worker}/device:CPU:0"
