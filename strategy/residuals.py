"""The residuals: what compression has not delivered yet."""

import weakref

import tensorflow as tf
from tensorflow.python.distribute import values
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.trackable import base as trackable
from tf_gc.strategy.variables import name_of, unwrap


class Residuals(trackable.Trackable):
    """One residual per variable and worker, for as long as the variable lives.

    A residual is a float32 variable that is zero at first, of the shape of its
    variable. Over the workers, residuals add up. `tf.train.Checkpoint` therefore
    saves their sum and gives each worker an equal share on restore: nothing is
    lost when training goes on, be it with another number of workers. Saving
    reads all workers' residuals, so all of them must save (to different files),
    as with every variable that TensorFlow synchronizes on read.

    They are found by the variable's name in a checkpoint, and by the variable
    itself in the program.
    """

    def __init__(self, strategy, device):
        self._strategy = weakref.ref(strategy)
        self._device = device
        self._residuals = {}  # checkpoint name -> SyncOnReadVariable
        self._names = {}  # id of a variable -> checkpoint name

    def __len__(self):
        return len(self._residuals)

    def of(self, variable):
        """Returns the residual of a variable, which it makes when first asked."""
        key = unwrap(variable)._unique_id
        if key not in self._names:
            self._create(key, variable)
        return self._residuals[self._names[key]]

    def handle_of(self, variable):
        """Returns the resource handle of this worker's residual of a variable."""
        return self.of(variable).values[0].handle

    def _create(self, key, variable):
        name = self._unused_name(name_of(variable))
        with tf.init_scope(), tf.device(self._device):
            # Not by the strategy: that would broadcast zeros from the chief.
            local = resource_variable_ops.ResourceVariable(
                tf.zeros(unwrap(variable).shape), trainable=False, name="residual"
            )
            residual = values.SyncOnReadVariable(
                self._strategy(), [local], tf.VariableAggregation.SUM
            )
            self._residuals[name] = residual
            self._names[key] = name
            self._handle_deferred_dependencies(name, residual)
        weakref.finalize(unwrap(variable), self._forget, key)

    def _unused_name(self, name):
        name = candidate = name.replace("/", ".")
        suffix = 0
        while candidate in self._residuals:
            suffix += 1
            candidate = f"{name}_{suffix}"
        return candidate

    def _forget(self, key):
        del self._residuals[self._names.pop(key)]

    def _trackable_children(self, save_type=trackable.SaveType.CHECKPOINT, **kwargs):
        children = super()._trackable_children(save_type, **kwargs)
        return {**children, **self._residuals}
