"""The residuals, what compression has not delivered yet, and all else that compressors keep."""

import collections
import gc
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tf_gc.strategy import restoration
from tf_gc.strategy import tensorflow_internals as internals
from tf_gc.strategy.variables import checkpoint_name, name_of, unused_name, unwrap

# What the slots of outer gradients, of `tf_gc.DiLoCo`, begin with.
OUTER_GRADIENT = "outer_gradient_"
OUTER_RESIDUAL = f"{OUTER_GRADIENT}residual"
OUTER_STEPS = f"{OUTER_GRADIENT}steps"
_RESIDUALS = ("residual", OUTER_RESIDUAL)

_PAUSE_BEFORE_A_SAVE = 0.02  # seconds, and as a rule more than between what one save asks for


class Residuals(internals.Trackable):
    """The slots of every variable and worker, for as long as the variable lives.

    A slot is a float32 variable that is zero at first. Over the workers, the
    values of a slot add up, as gradients do; where means are reduced, their mean
    counts. `tf.train.Checkpoint` therefore saves their sum, of which each worker gets an equal
    share on restore, or their mean, which each gets: nothing is lost when training goes on, be it
    with another number of workers. What is not in a checkpoint was zero when it was saved, and is
    so again. Saving reads all workers' slots, so all of them must save (to different files), as
    with every variable that TensorFlow synchronizes on read. What all workers share is saved, and
    restored, as it is.

    The residual, "residual", is found by the variable's name in a checkpoint;
    another slot by that and its own name; each by the variable itself in the
    program. The number of steps that an optimizer has done is kept here as well,
    under the name of its first variable, or of the next one that lives.

    Variables that nobody uses any more are collected before a checkpoint is made, and
    before a variable gets the name of another one: all workers have the same slots then,
    whenever Python has freed what.
    """

    def __init__(self, strategy, device):
        self._strategy = weakref.ref(strategy)
        self._device = device
        self._saved = {}  # checkpoint name -> SyncOnReadVariable
        self._names = {}  # id of a variable -> its name in checkpoints
        self._slots = collections.defaultdict(dict)  # id of a variable -> slot -> checkpoint name
        # slot of steps -> id of a variable -> by id, those that are counted with it
        self._counted = collections.defaultdict(dict)
        self._maybe_initialize_trackable()
        self._fresh = {}  # names of what is 0 after a restore, if nothing comes -> `_update_uid`
        self._reported = None  # the last restoration whose residuals were all looked for
        self._read = {}  # place in a checkpoint, of what waits for its slot -> a variable with it
        self._awaited = {}  # key of a slot that is not made yet -> a variable with what it had
        self._has_reported_unused = False
        self._has_reported_equal = False
        self._has_reduced = False
        self._adoptions = 0
        self._asked = float("-inf")  # for the slots, last; in seconds

    def __len__(self) -> int:
        return sum(slot in _RESIDUALS for slots in self._slots.values() for slot in slots)

    @property
    def restorations(self) -> tuple[int, int]:
        """Changes whenever slots have got values from an earlier program."""
        updates = [slot._update_uid for slot in list(self._saved.values())]
        return self._adoptions, max([self._update_uid, *updates])

    @property
    def _update_uid(self):
        return super()._update_uid

    @_update_uid.setter
    def _update_uid(self, value):
        # TensorFlow sets it where it restores these slots, before it looks for any of them.
        if value >= 0:
            self._forget_values()
        internals.Trackable._update_uid.fset(self, value)

    def _forget_values(self):
        """Makes the slots as they were before the first step, for what is restored then."""
        for name in self._deferred_dependencies:
            self._forget_read(name)
        self._deferred_dependencies.clear()
        self._awaited.clear()
        with tf.init_scope(), tf.device(self._device):
            for slot in list(self._saved.values()):
                slot.values[0].assign(tf.zeros_like(slot.values[0]))
        self._fresh = {
            name: self._saved[name]._update_uid
            for slots in self._slots.values()
            for slot, name in slots.items()
            if slot in _RESIDUALS
        }
        self._has_reduced |= bool(self._fresh)

    def of(self, variable: Any, slot: str = "residual") -> tf.Variable:
        """Returns a slot of a variable; a residual is made when first asked for.

        Raises:
          ValueError: there is no such slot (yet); the message says which there are.
        """
        native = unwrap(variable)
        if slot != "residual" and slot not in (slots := self._slots.get(native._unique_id, {})):
            raise ValueError(
                f"{name_of(variable)} has no slot {slot!r}; it has: {', '.join(slots) or 'none'}. A"
                " compressor's slots are made when the gradient is first reduced"
            )
        return self._get(variable, slot, native.shape)

    def local(self, variable, slot, shape, reduce_op="SUM"):
        """Returns this worker's variable of a slot, which it makes when first asked for."""
        aggregation = tf.VariableAggregation[reduce_op]
        return self._get(variable, slot, shape, aggregation=aggregation).values[0]

    def shared(self, variable, slot, shape, dtype=tf.float32):
        """Returns the variable of a slot that is the same on all workers, and saved as it is."""
        aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA
        return self._get(variable, slot, shape, dtype, aggregation).values[0]

    def counter(self, variables, slot="steps"):
        """Returns the variable under which the steps of their optimizer are counted.

        It is one that has a count, or else the first; Keras leaves out variables that have no
        gradient, and so perhaps that. When it is gone, it is the next one that lives.
        """
        variables = [unwrap(variable) for variable in variables]
        counted = self._counted[slot]
        known = (counted.get(variable._unique_id) for variable in variables)
        group = next((g for g in known if g is not None), None)
        if group is None:
            first = next((v for v in variables if self.has_shared(v, slot)), variables[0])
            group = weakref.WeakValueDictionary({first._unique_id: first})
        for variable in variables:
            if counted.setdefault(variable._unique_id, group) is group:
                group[variable._unique_id] = variable
        return next(group.values())

    def count_step(self, variable, slot="steps"):
        """Returns the number of calls for this variable before, an int64 scalar."""
        self._has_reduced = True
        counter = self.shared(variable, slot, (), tf.int64)
        with tf.device(self._device):
            return counter.assign_add(1) - 1

    def names(self, variables):
        """Returns the names of variables in checkpoints."""
        self.name(variables)
        return [self._names[unwrap(variable)._unique_id] for variable in variables]

    def name(self, variables):
        """Gives variables their names in checkpoints, of which equal ones are numbered in order."""
        new = {unwrap(v)._unique_id: v for v in variables}
        new = {key: v for key, v in new.items() if key not in self._names}
        names = {checkpoint_name(name_of(v)) for v in new.values()}
        if names.intersection(self._names.values()):
            gc.collect()
            self._report_equal(names.intersection(self._names.values()))
        for key, variable in new.items():
            name = checkpoint_name(name_of(variable))
            self._names[key] = unused_name(name, self._names.values())
            # Not when the program ends, with half of TensorFlow gone.
            weakref.finalize(unwrap(variable), self._forget, key).atexit = False

    def _report_equal(self, names):
        """Logs, once, names that variables of several lists have: a restart may begin with any."""
        if names and not self._has_reported_equal:
            self._has_reported_equal = True
            restoration.report_equal_names(names)

    def own_values(self) -> dict[str, np.ndarray]:
        """Returns what this worker has in its slots, by keys for `adopt` and `shares`."""
        self._collect_garbage()
        made = {_key(name, slot): slot for name, slot in list(self._saved.items())}
        slots = {**self._awaited, **made}
        return {key: slot.values[0].numpy() for key, slot in slots.items()}

    def shares(self, saved: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Returns what this worker gets of the `own_values` of all workers of an earlier run.

        That is an equal share of what adds up over the workers, the mean where that counts, and
        all of what they shared.
        """
        divisors = {"SUM": self._strategy().extended._num_workers, "MEAN": len(saved)}
        keys = dict.fromkeys(key for values in saved for key in values)
        own = {}
        for key in keys:
            values = [v[key] for v in saved if key in v]
            divisor = divisors.get(key.partition("/")[0])
            own[key] = sum(values) / np.float32(divisor) if divisor else values[0]
        return own

    def adopt(self, values: Mapping[str, np.ndarray]) -> None:
        """Gives this worker's slots the values that `own_values` had, or when they are made.

        What slots had before, or a checkpoint for them, is forgotten.
        """
        self._forget_values()
        self._awaited = {key: self._awaiting(key, value) for key, value in values.items()}
        self._adoptions += 1
        if values:
            self._report_unused()
        for name, slot in list(self._saved.items()):
            if self._take_awaited(name, slot):
                self._fresh.pop(name, None)

    def _awaiting(self, key, value):
        aggregation, _, name = key.partition("/")
        return self._make(name, value, tf.VariableAggregation[aggregation])

    def has_shared(self, variable, slot):
        """Whether a `shared` slot is there, or has a value that waits for it."""
        return self._has(slot, variable, tf.VariableAggregation.ONLY_FIRST_REPLICA.name)

    def _has(self, slot, variable, aggregation):
        self.name([variable])
        key = unwrap(variable)._unique_id
        name = self._saved_name(key, slot)
        is_awaited = f"{aggregation}/{name}" in self._awaited or name in self._deferred_dependencies
        return slot in self._slots[key] or is_awaited

    def _saved_name(self, key, slot):
        return self._names[key] if slot == "residual" else f"{self._names[key]}:{slot}"

    def deliver_restored(self, grads_and_vars, reduce_op, slot="residual", is_due=True):
        """Returns the pairs of a worker without others, with what waits for the variables.

        These are residuals of a training with more workers. In a step with a gradient that is not
        finite, which loss scaling leaves out, and where it is not due, they go on waiting.
        """
        self._has_reduced = True
        self.name([variable for _, variable in grads_and_vars])  # as on more workers
        pairs = [(g, v) for g, v in grads_and_vars if g is not None]
        if not any(self._has(slot, variable, reduce_op) for _, variable in pairs):
            return grads_and_vars
        values = [getattr(gradient, "values", gradient) for gradient, _ in pairs]
        is_due &= tf.reduce_all([tf.reduce_all(tf.math.is_finite(v)) for v in values])
        return [(self._with_restored(g, v, reduce_op, slot, is_due), v) for g, v in grads_and_vars]

    def _with_restored(self, gradient, variable, reduce_op, slot, is_due):
        if gradient is None or not self._has(slot, variable, reduce_op):
            return gradient
        residual = self.local(variable, slot, unwrap(variable).shape, reduce_op)
        waiting = residual.read_value()
        delivered = tf.where(is_due, waiting, 0.0)
        residual.assign(waiting - delivered)
        gradient = tf.convert_to_tensor(gradient)  # of rows, which were made dense before, too
        return gradient + tf.cast(delivered, gradient.dtype)

    def report_restored(self):
        """Logs what a restored checkpoint lacks, and what no variable has taken, if any.

        To be called when gradients may have been reduced: then residuals are there.
        """
        if not self._has_reduced:
            return
        self._has_reduced = False
        last = (self._adoptions, self._update_uid)
        unused = self._unused() if last != self._reported else []
        self._reported = last
        fresh = [
            name
            for name, update in self._fresh.items()
            if name in self._saved and self._saved[name]._update_uid == update
        ]
        restoration.report(fresh, len(self), unused)
        self._fresh.clear()

    def _unused(self):
        """Returns the variables' names of restored residuals that wait for theirs."""
        awaited = [key.partition("/")[2] for key in self._awaited]
        names = {*awaited, *self._deferred_dependencies}
        return [n for n in names if ":" not in n or n.partition(":")[2] in _RESIDUALS]

    def _are_used(self):
        strategy = self._strategy()
        workers = strategy.extended._num_workers
        return strategy.compression is not None and (
            workers > 1 or strategy.num_replicas_in_sync == 1 or strategy.trains_locally
        )

    def _report_unused(self):
        """Logs, once, that what a checkpoint has is lost, where nothing is compressed."""
        if not self._are_used() and not self._has_reported_unused:
            self._has_reported_unused = True
            restoration.report_without_compression()

    def _get(self, variable, slot, shape, dtype=tf.float32, aggregation=tf.VariableAggregation.SUM):
        key = unwrap(variable)._unique_id
        if slot not in self._slots[key]:
            self._create(key, variable, slot, shape, dtype, aggregation)
        return self._saved[self._slots[key][slot]]

    def _create(self, key, variable, slot, shape, dtype, aggregation):
        self.name([variable])
        name = self._saved_name(key, slot)
        with tf.init_scope(), tf.device(self._device):
            made = self._make(slot, tf.zeros(shape, dtype), aggregation)
            self._saved[name] = made
            self._slots[key][slot] = name
            is_awaited = self._take_awaited(name, made) or name in self._deferred_dependencies
            is_restored = restoration.is_restored(self, variable, unwrap(variable))
            self._forget_read(name)
            self._handle_deferred_dependencies(name, made)
            if slot in _RESIDUALS and is_restored and not is_awaited:
                self._fresh[name] = made._update_uid

    def _make(self, name, value, aggregation):
        with tf.device(self._device):
            # Not by the strategy: that would broadcast values from the chief.
            local = internals.ResourceVariable(value, trainable=False, name=name)
            made = _WorkersVariable(self._strategy(), [local], aggregation)
        made._maybe_initialize_trackable()  # for `_update_uid`
        return made

    def _forget_read(self, name):
        for place in self._deferred_dependencies.get(name, ()):
            internals.forget_variable(place)

    def _take_awaited(self, name, slot):
        """Returns whether there was a value for a slot."""
        awaited = self._awaited.pop(_key(name, slot), None)
        if awaited is not None:
            slot.values[0].assign(awaited.values[0])
        return awaited is not None

    def _forget(self, key):
        del self._names[key]
        heirs = {slot: next(iter(of.pop(key, ())), None) for slot, of in self._counted.items()}
        for slot, name in self._slots.pop(key, {}).items():
            made = self._saved.pop(name)
            heir = heirs.get(slot)
            if heir and slot not in self._slots[heir]:
                name = self._slots[heir][slot] = self._saved_name(heir, slot)
                self._saved[name] = made

    def _collect_garbage(self):
        """Frees variables that nobody uses, once in a save, which asks for the slots often."""
        if time.monotonic() > self._asked + _PAUSE_BEFORE_A_SAVE:
            gc.collect()
        self._asked = time.monotonic()

    def _trackable_children(self, save_type=None, **kwargs):
        self._collect_garbage()
        children = super()._trackable_children(**kwargs)
        if save_type is not None:
            self.report_restored()
        # Where TensorFlow restores, it gives no `save_type`.
        unmade = self._unmade() if save_type is not None and self._are_used() else {}
        return {**children, **unmade, **self._saved}

    def _unmade(self):
        """Returns variables with what was restored for slots that are not made yet.

        They go to the next checkpoint in the slots' place.
        """
        adopted = {key.partition("/")[2]: slot for key, slot in self._awaited.items()}
        waiting = {name: found[-1] for name, found in self._deferred_dependencies.items()}
        with tf.device(self._device):
            self._read = {
                place: self._read[place] if place in self._read else internals.read_variable(place)
                for place in waiting.values()
            }
        return adopted | {name: self._read[place] for name, place in waiting.items()}

    def _lookup_dependency(self, name, cached_dependencies=None):
        self._report_unused()  # this is what restoring a residual begins with
        if name in self._deferred_dependencies:
            return None  # it waits for its slot, as what was restored before does
        return super()._lookup_dependency(name, cached_dependencies)


class PrefixedSlots:
    """Those slots of `Residuals` whose names begin alike, by what follows."""

    def __init__(self, residuals, prefix):
        self._residuals = residuals
        self._prefix = prefix

    def names(self, variables):
        return self._residuals.names(variables)

    def local(self, variable, slot, *args):
        return self._residuals.local(variable, self._prefix + slot, *args)

    def shared(self, variable, slot, *args):
        return self._residuals.shared(variable, self._prefix + slot, *args)

    def count_step(self, variable):
        return self._residuals.count_step(variable, self._prefix + "steps")


def _key(name, slot):
    return f"{slot.aggregation.name}/{name}"


class _WorkersVariable(internals.SyncOnReadVariable):
    """A variable that every worker has once, be it one replica or several."""

    def _gather_saveables_for_checkpoint(self):
        # In the background TensorFlow saves copies of what there was at the first save.
        if internals.in_async_metrics_context():
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                f"{self._common_name} has come after the first save of this checkpoint, so that "
                "TensorFlow would read it while training goes on: the first asynchronous save "
                "must come after the first step",
            )

        def saveable(name=self._common_name):
            return _Saveable(self, name)

        return {internals.VARIABLE_VALUE_KEY: saveable}


class _Saveable(internals.SyncOnReadSaveable):
    """Restores what was summed by workers, where TensorFlow's restores it by replicas.

    A mean is restored as it is.
    """

    def restore(self, restored_tensors, restored_shapes):
        variable = self._sync_on_read_variable
        [total], [local] = restored_tensors, variable.values
        if variable.aggregation == tf.VariableAggregation.SUM:
            total /= variable.distribute_strategy.extended._num_workers
        with tf.device(local.device):
            return tf.group(local.assign(total))
