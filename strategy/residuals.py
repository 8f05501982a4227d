"""The residuals, what compression has not delivered yet, and all else that compressors keep."""

import collections
import weakref
from typing import Any

import tensorflow as tf
from absl import logging
from tf_gc.strategy import tensorflow_internals as internals
from tf_gc.strategy.variables import checkpoint_name, name_of, unused_name, unwrap


class Residuals(internals.Trackable):
    """The slots of every variable and worker, for as long as the variable lives.

    A slot is a float32 variable that is zero at first. Over the workers, the
    values of a slot add up. `tf.train.Checkpoint` therefore saves their sum and
    gives each worker an equal share on restore: nothing is lost when training
    goes on, be it with another number of workers. Saving reads all workers'
    slots, so all of them must save (to different files), as with every variable
    that TensorFlow synchronizes on read. What all workers share is saved, and
    restored, as it is.

    The residual, "residual", is found by the variable's name in a checkpoint;
    another slot by that and its own name; each by the variable itself in the
    program. The number of steps that an optimizer has done is kept here as well,
    under the name of its first variable.
    """

    def __init__(self, strategy, device):
        self._strategy = weakref.ref(strategy)
        self._device = device
        self._saved = {}  # checkpoint name -> SyncOnReadVariable
        self._names = {}  # id of a variable -> its name in checkpoints
        self._slots = collections.defaultdict(dict)  # id of a variable -> slot -> checkpoint name
        self._maybe_initialize_trackable()
        self._fresh = []  # names that were new after a restore

    def __len__(self) -> int:
        return sum("residual" in slots for slots in self._slots.values())

    def of(self, variable: Any, slot: str = "residual") -> tf.Variable:
        """Returns a slot of a variable; a residual is made when first asked for."""
        shape = unwrap(variable).shape if slot == "residual" else None
        return self._get(variable, slot, shape)

    def local(self, variable, slot, shape):
        """Returns this worker's variable of a slot, which it makes when first asked for."""
        return self._get(variable, slot, shape).values[0]

    def shared(self, variable, slot, shape, dtype=tf.float32):
        """Returns the variable of a slot that is the same on all workers, and saved as it is."""
        aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA
        return self._get(variable, slot, shape, dtype, aggregation).values[0]

    def count_step(self, variable):
        """Returns the number of calls for this variable before, an int64 scalar."""
        counter = self.shared(variable, "steps", (), tf.int64)
        with tf.device(self._device):
            return counter.assign_add(1) - 1

    def name(self, variables):
        """Gives variables their names in checkpoints, of which equal ones are numbered in order."""
        for variable in variables:
            key = unwrap(variable)._unique_id
            if key not in self._names:
                name = checkpoint_name(name_of(variable))
                self._names[key] = unused_name(name, self._names.values())
                # Not when the program ends, with half of TensorFlow gone.
                weakref.finalize(unwrap(variable), self._forget, key).atexit = False

    def report_restored(self):
        """Logs which variables found nothing in a checkpoint that was restored, if any."""
        if not self._fresh:
            return
        unused = ", ".join(sorted(self._deferred_dependencies)) or "none"
        logging.warning(
            "tf_gc: the checkpoint has no residuals for %s, which begin at 0. Those that have "
            "found no variable so far: %s",
            ", ".join(self._fresh),
            unused,
        )
        self._fresh.clear()

    def _get(self, variable, slot, shape, dtype=tf.float32, aggregation=tf.VariableAggregation.SUM):
        key = unwrap(variable)._unique_id
        if slot not in self._slots[key]:
            self._create(key, variable, slot, shape, dtype, aggregation)
        return self._saved[self._slots[key][slot]]

    def _create(self, key, variable, slot, shape, dtype, aggregation):
        self.name([variable])
        name = self._names[key] if slot == "residual" else f"{self._names[key]}:{slot}"
        with tf.init_scope(), tf.device(self._device):
            # Not by the strategy: that would broadcast zeros from the chief.
            local = internals.ResourceVariable(tf.zeros(shape, dtype), trainable=False, name=slot)
            made = _WorkersVariable(self._strategy(), [local], aggregation)
            self._saved[name] = made
            self._slots[key][slot] = name
            if self._update_uid >= 0 and name not in self._deferred_dependencies:
                self._fresh.append(name)
            self._handle_deferred_dependencies(name, made)

    def _forget(self, key):
        del self._names[key]
        for name in self._slots.pop(key, {}).values():
            del self._saved[name]

    def _trackable_children(self, save_type=internals.SaveType.CHECKPOINT, **kwargs):
        children = super()._trackable_children(save_type, **kwargs)
        return {**children, **self._saved}


class _WorkersVariable(internals.SyncOnReadVariable):
    """A variable that every worker has once, be it one replica or several."""

    def _gather_saveables_for_checkpoint(self):
        def saveable(name=self._common_name):
            return _Saveable(self, name)

        return {internals.VARIABLE_VALUE_KEY: saveable}


class _Saveable(internals.SyncOnReadSaveable):
    """Restores what was summed by workers, where TensorFlow's restores it by replicas."""

    def restore(self, restored_tensors, restored_shapes):
        variable = self._sync_on_read_variable
        [total], [local] = restored_tensors, variable.values
        if variable.aggregation == tf.VariableAggregation.SUM:
            total /= variable.distribute_strategy.extended._num_workers
        with tf.device(local.device):
            return tf.group(local.assign(total))
