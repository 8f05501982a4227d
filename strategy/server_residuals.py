"""What the workers have not delivered to the servers, in checkpoints."""

import collections
import contextlib
import gc
import math
import time

import tensorflow as tf
from absl import logging
from tf_gc.strategy import message_pieces, restoration, worker_step
from tf_gc.strategy import tensorflow_internals as internals
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
      is_used: whether variables are added.
    """

    def __init__(self, workers, is_used):
        self._workers = workers
        self._is_used = is_used
        self._reported = set()  # names of variables that no checkpoint had, and `_update_uid`s
        self._kept = {}  # server -> _Kept
        self._saved = {}  # name in checkpoints -> _Saved
        self._collected = float("-inf")  # when, in seconds
        self._survivors = collections.Counter()  # the variables that had a name then

    def add(self, server, variable):
        """Adds a new `ServerVariable` of some `ServerVariables`."""
        name = checkpoint_name(variable.name)
        if name in self._saved:
            self._collect_garbage(variable.name)  # a model may follow one that was dropped
            name = unused_name(name, self._saved)
        kept = self._kept.setdefault(server, _Kept(server, self._workers))
        saved = _Saved(kept, variable)
        kept.saved.append(saved)
        self._saved[name] = saved
        with tf.init_scope():
            if variable.matrix:
                # Of its own: checkpoints of a program that has none can be restored.
                moment = _SavedSecondMoment(kept, variable)
                kept.saved.append(moment)
                saved._track_trackable(moment, "second_moment")
            self._handle_deferred_dependencies(name, saved)

    def retire(self):
        """Frees what workers and servers keep of variables and optimizers that are gone."""
        with tf.init_scope():  # a variable may be made while a step is traced
            for server, kept in self._kept.items():
                ids = server.retire()
                if ids:
                    self._saved = {n: s for n, s in self._saved.items() if s.variable.id not in ids}
                    kept.remove(ids)

    def _collect_garbage(self, name):
        """Frees variables of a name that nobody uses.

        Many may share it, and collecting takes a while: within a second it is done again only when
        there are twice as many as the last time has left.
        """
        count = sum(saved.variable.name == name for saved in self._saved.values())
        if count >= 2 * self._survivors[name] or time.monotonic() > self._collected + 1:
            gc.collect()
            self.retire()
            names = (saved.variable.name for saved in self._saved.values())
            self._survivors = collections.Counter(names)
            self._collected = time.monotonic()

    def total(self, name: str) -> tf.Tensor:
        """Returns the sum of a variable's residuals, a float32 tensor.

        Raises:
          KeyError: there is no variable of this name.
        """
        return self._saved[checkpoint_name(name)].total()

    def report_restored(self, pulled):
        """Logs what a restored checkpoint lacks of `PulledVariable`s, and what none has taken."""
        names = {saved.variable.id: name for name, saved in self._saved.items()}
        pushed = {names[v.tf_gc_entry.id]: v for v in pulled}
        fresh = [
            name
            for name, variable in pushed.items()
            if not restoration.is_restored(self._saved[name])
            and restoration.is_restored(self, variable)
        ]
        is_new = self._update_uid not in self._reported
        restoration.report(
            [name for name in fresh if name not in self._reported],
            len(pushed),
            self._deferred_dependencies if is_new else (),
        )
        self._reported.update(fresh, [self._update_uid])

    def _trackable_children(self, *args, **kwargs):
        self.retire()
        for kept in self._kept.values():  # a checkpoint begins with this
            kept.forget()
        return {**super()._trackable_children(*args, **kwargs), **self._saved}

    def _lookup_dependency(self, name, cached_dependencies=None):
        if not self._is_used and not self._reported:
            self._reported.add(name)
            restoration.report_without_compression()
        return self._saved.get(name) or super()._lookup_dependency(name, cached_dependencies)


class _Kept:
    """What the workers keep of a server's variables, and the server of its open round.

    A checkpoint asks for one variable after the other. All of them are read when the first is
    asked for, and written when the last was restored, by one call of each process.

    Attributes:
      saved: what checkpoints have, `_OfVariable`s.
      step: the number of updates, of the last checkpoint that was saved or restored.
    """

    def __init__(self, server, workers):
        self.server = server
        self.saved = []
        self.step = tf.zeros([], tf.int64)
        self._restored_uid = -1  # of the restoration that has set the server's steps
        self._workers = workers
        self._functions = {}  # (device, ids) -> function that reads
        self._residuals, self._statistics = {}, {}  # by id, of what was read and not asked for yet

    def forget(self):
        """Has all be read anew."""
        self._residuals, self._statistics = {}, {}

    def remove(self, ids):
        """Frees what workers keep of variables."""
        self.saved = [saved for saved in self.saved if saved.variable.id not in ids]
        self._functions.clear()
        self.forget()
        for worker in range(self._workers):
            with _if_reached(worker):
                ops.forget_copies(self.server.local_model(), ids)

    def residual(self, variable):
        """Returns the sum over the workers and the open round."""
        if variable.id not in self._residuals:
            self._read_all()
        return self._residuals.pop(variable.id)

    def statistics(self, variable):
        """Returns those of all workers that can be reached, float32 [workers, rows + columns + 1].

        The last one of a worker is the weight of the others (`ops.update_second_moments`).
        """
        if variable.id not in self._statistics:
            self._read_all()
        return self._statistics.pop(variable.id)

    def _read_all(self):
        variables = [saved.variable for saved in self.saved if isinstance(saved, _Saved)]
        self._residuals, self._statistics = self.read(variables)
        self.step = self.server.step()

    def read(self, variables):
        """Returns by id residuals, empty where nothing waits, and the workers' statistics."""
        count = len(variables)
        with tf.init_scope():
            residuals = self._call(self.server.device, variables, self._read_rounds)
            statistics = [[] for _ in variables]
            for worker in range(self._workers):
                with _if_reached(worker) as device:
                    values = self._call(device, variables, self._read_worker)
                    with worker_step.on_worker():
                        residuals = list(map(_add, residuals, values[:count]))
                    for rows, row in zip(statistics, values[count:], strict=True):
                        rows.append(row)
            read = {}, {}
            with worker_step.on_worker():
                for v, residual, rows in zip(variables, residuals, statistics, strict=True):
                    is_kept = tf.size(residual)
                    read[0][v.id] = tf.reshape(residual, v.shape) if is_kept else residual
                    read[1][v.id] = tf.stack(rows) if rows else tf.zeros([0, _slot_size(v)])
            return read

    def write_restored(self, uid):
        """Writes what was restored, unless more of the same restoration, `uid`, is to come.

        TensorFlow gives all objects that it finds in a checkpoint the restoration's id, and then
        one after the other its values.
        """
        found = [saved for saved in self.saved if saved._update_uid == uid]
        if any(saved.is_awaited() for saved in found):
            return
        restored = [saved for saved in found if saved.restored is not None]
        if uid != self._restored_uid:  # else it is of a variable that was made later
            self._restored_uid = uid
            self.server.set_step(self.step)
        workers, reached = list(range(self._workers)), None
        while reached != workers:  # once, if all can be reached
            reached = workers
            workers = [w for w in reached if self._write(w, restored, len(reached))]
        for saved in restored:
            saved.restored = None

    def _write(self, worker, restored, workers):
        """Writes a share of so many workers to one; returns whether it can be reached."""

        @tf.function(autograph=False)
        def function(values):
            with tf.device(device):
                model = self.server.local_model()
                for saved, value in zip(restored, values, strict=True):
                    saved.write(model, value, workers)

        with _if_reached(worker) as device:
            function([saved.restored for saved in restored])
            return True
        return False

    def _call(self, device, variables, read):
        """Returns the vectors that read(variables) gives on a device, here."""
        key = (device, tuple(v.id for v in variables))
        if key not in self._functions:
            count = message_pieces.count(v.shape for v in variables)

            @tf.function(autograph=False)
            def function():
                with tf.device(device):
                    vectors = [tf.reshape(value, [-1]) for value in read(variables)]
                    sizes = tf.stack([tf.size(vector, tf.int64) for vector in vectors])
                    pieces = message_pieces.cut(tf.concat(vectors, axis=0), count)
                with worker_step.on_worker():
                    return tf.nest.map_structure(tf.identity, (sizes, pieces))

            self._functions[key] = function
        sizes, pieces = self._functions[key]()
        with worker_step.on_worker():
            return tf.split(message_pieces.join(pieces), sizes)

    def _read_worker(self, variables):
        model = self.server.local_model()
        # What a step that failed has pushed is part of the round, or of the residuals.
        unsettled = ops.unsettled_pushes(model)
        with self.server.scope():
            counted = ops.counted_pushes(self.server.handle, unsettled)
        ops.settle_unsettled(model, unsettled, counted)
        for v in variables:
            yield ops.read_residual(model, id=v.id, shape=v.shape)
        for v in variables:
            yield ops.read_second_moment(model, id=v.id, shape=[_slot_size(v)])

    def _read_rounds(self, variables):
        for v in variables:
            yield ops.read_round(self.server.handle, id=v.id, shape=v.shape)


def _add(a, b):
    """Returns the sum of two vectors, of which one that is empty stands for zeros."""
    return a + b if tf.size(a) and tf.size(b) else b if tf.size(b) else a


# Of a worker that is new, and so has kept nothing, the latter two: it does not know of the program,
# or not of the program's functions yet.
_AWAY = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.NotFoundError)


@contextlib.contextmanager
def _if_reached(worker):
    """Places operations on a worker; leaves them out if it is away."""
    device = f"/job:worker/task:{worker}/device:CPU:0"
    try:
        with tf.device(device):
            yield device
    except _AWAY:
        logging.warning("worker %d cannot be reached: what it has kept is lost", worker)


class _OfVariable(internals.Trackable):
    """What a checkpoint holds of one variable.

    Attributes:
      variable: the `ServerVariable`.
      restored: a value that is to be written to the workers, or None.
    """

    def __init__(self, kept, variable):
        self._kept = kept
        self.variable = variable
        self.restored = None
        self._restored_uid = -1

    def is_awaited(self):
        """Whether it has a part in a restoration and has not got its value yet."""
        return self._restored_uid != self._update_uid

    def _restore(self, value, shape, nothing):
        """Takes a value of this shape, or else, as of a shard among others than now, `nothing`."""

        def left_out():
            tf.print(
                f"tf_gc: {self.variable.name}, which has the shape {self.variable.shape}, begins "
                "without what the checkpoint has for another shape",
                output_stream=tf.compat.v1.logging.warning,
            )
            return nothing

        fits = tf.equal(tf.size(value), math.prod(shape)) | tf.equal(tf.size(value), 0)
        self.restored = tf.cond(fits, lambda: value, left_out)
        self._restored_uid = self._update_uid
        self._kept.write_restored(self._update_uid)


class _Saved(_OfVariable):
    """The residual, the sum over all workers; empty where nothing waits, as of a table of rows."""

    def total(self):
        residuals, _ = self._kept.read([self.variable])
        residual = residuals[self.variable.id]
        return residual if tf.size(residual) else tf.zeros(self.variable.shape)

    def write(self, model, value, workers):
        ops.write_residual(model, value / workers, id=self.variable.id)

    def _serialize_to_tensors(self):
        return {"residual": self._kept.residual(self.variable), "step": self._kept.step}

    def _restore_from_tensors(self, restored_tensors):
        self._kept.step = restored_tensors["step"]
        self._restore(restored_tensors["residual"], self.variable.shape, tf.zeros([0]))


def _slot_size(variable):
    """How many statistics a worker has of a `ServerVariable`, their weight included."""
    return sum(variable.matrix) + 1 if variable.matrix else 0


class _SavedSecondMoment(_OfVariable):
    """The mean of the workers' statistics, by their weights, and the largest weight."""

    def _serialize_to_tensors(self):
        statistics = self._kept.statistics(self.variable)
        with worker_step.on_worker():
            means, weights = statistics[:, :-1], statistics[:, -1:]
            total = tf.reduce_sum(weights, axis=0)
            mean = tf.math.divide_no_nan(tf.reduce_sum(weights * means, axis=0), total)
            # With no worker the largest of its weights is less than any number.
            weight = tf.maximum(tf.reduce_max(weights, axis=0), 0.0)
            return {"mean": tf.concat([mean, weight], axis=0)}

    def write(self, model, value, workers):
        del workers
        ops.write_second_moment(model, value, id=self.variable.id)

    def _restore_from_tensors(self, restored_tensors):
        size = _slot_size(self.variable)
        self._restore(restored_tensors["mean"], [size], tf.zeros([size]))
