"""The private parts of Keras that callbacks use, and what they ask of callbacks.

A training that goes on from a backup goes on within an epoch, too. Keras 3 knows the first
epoch only, and tf_keras counts batches from the right one, but reads the data from its start.

Used here are, in Keras 3.15: _initial_epoch of a model, _enumerate_iterator, _num_batches and
_distributed_dataset of an epoch iterator; in tf_keras 2.21: _steps_per_execution, _train_counter,
_training_state, _flatten_layers of a model, _random_generator of a layer, _generator of that,
_model, _dataset, _initial_step and _inferred_steps of a data handler.
"""

import weakref

# Trainer of Keras 3 -> weak references to the epoch iterators that it has made last.
_epoch_iterators = weakref.WeakKeyDictionary()


class TfKerasCallback:
    """What tf_keras (2.17 to 2.21) asks a callback that has Keras 3's base class."""

    # On parameter servers it takes a callback with methods for batches only with this.
    _supports_tf_logs = True

    def _implements_train_batch_hooks(self):
        return True

    def _implements_test_batch_hooks(self):
        return False

    def _implements_predict_batch_hooks(self):
        return False


def steps_per_execution(model):
    """Returns how many steps a model of either Keras takes at once."""
    if hasattr(model, "steps_per_execution"):
        return model.steps_per_execution
    return int(model._steps_per_execution or 1)  # None before it is compiled


def training_state(model):
    """Returns what is saved of a compiled model, by name: see `tf.train.Checkpoint`; and variables.

    Where the model is built, its optimizer is built, too.
    """
    optimizer = model.optimizer
    if model.built and hasattr(optimizer, "build"):
        is_built = getattr(optimizer, "built", getattr(optimizer, "_built", False))
        if not is_built:
            optimizer.build(model.trainable_variables)
    variables = list(model.variables) if model.built else []
    if hasattr(model, "_train_counter"):  # of tf_keras, for callbacks that write logs
        more = {"train_counter": model._train_counter, "random": _generators(model)}
    else:
        # Keras 3's trackable objects leave out random seeds, and what is in a MultiOptimizer.
        more = {"variables": variables}
        if optimizer is not None:
            more["optimizer_variables"] = list(optimizer.variables)
    if optimizer is not None:  # a model may have its own way
        more["optimizer"] = optimizer
    return {"model": model, **more}, variables


def _generators(model):
    """Returns the random generators of tf_keras's layers, which checkpoints leave out.

    Layers have them if `tf.keras.backend.experimental.enable_tf_random_generator` was called. If
    not, the kernels of their random ops have states, which nobody can read.
    """
    layers = [getattr(layer, "_random_generator", None) for layer in model._flatten_layers()]
    generators = [getattr(layer, "_generator", None) for layer in layers]
    return [generator for generator in generators if generator is not None]


def resume(model, epoch, batch):
    """Makes the `fit` that calls `on_train_begin` begin at a batch of an epoch.

    What comes before in the epoch is read from the dataset, and left out.
    """
    if hasattr(model, "_maybe_load_initial_counters_from_ckpt"):
        model._training_state = _Resumption(epoch, batch)
        return
    if batch:
        # That of `fit`: those of evaluations before have ended.
        *_, iterator = filter(None, (made() for made in _epoch_iterators[model]))
        if _has_rest(iterator, batch):
            _begin_epoch_at(iterator, batch)
        else:
            epoch += 1  # an epoch without steps would have no logs
    model._initial_epoch = epoch


def forget_resumption(model):
    """Ends what `resume` has begun: the next `fit` begins where it is told to."""
    name = "_training_state" if hasattr(model, "_training_state") else "_initial_epoch"
    setattr(model, name, None)


def note_epoch_iterator(trainer, iterator):
    """Remembers an epoch iterator that a trainer of Keras 3 has made, for `resume`."""
    living = [made for made in _epoch_iterators.get(trainer, ()) if made() is not None]
    _epoch_iterators[trainer] = [*living, weakref.ref(iterator)]


def _has_rest(epoch_iterator, batch):
    """Whether an epoch of Keras 3's `TFEpochIterator` has more batches than that."""
    count = epoch_iterator.steps_per_epoch or epoch_iterator._num_batches
    if count:
        return batch < count
    batches = iter(epoch_iterator._distributed_dataset)
    _leave_out(batch, batches)
    return next(batches, None) is not None


def _begin_epoch_at(epoch_iterator, first):
    """Makes the next epoch of Keras 3's `TFEpochIterator` begin at a batch."""
    enumerate_epoch = epoch_iterator._enumerate_iterator

    def enumerate_rest():
        del epoch_iterator._enumerate_iterator  # back to that of the class
        for begin, end, batches in enumerate_epoch():
            if begin >= first:
                yield begin, end, batches
                continue
            for _ in range(begin, end + 1):
                next(batches, None)

    epoch_iterator._enumerate_iterator = enumerate_rest


class _Resumption:
    """What tf_keras's `fit` asks for its first epoch and batch."""

    def __init__(self, epoch, batch):
        self._epoch = epoch
        self._batch = batch

    def maybe_load_initial_counters_from_ckpt(self, steps_per_epoch, initial_epoch, mode):
        del initial_epoch, mode
        if self._batch == steps_per_epoch:  # an epoch without steps would be an error
            return self._epoch + 1, 0
        return self._epoch, self._batch


def leave_out_first_batches(enumerate_epochs):
    """For tf_keras's `enumerate_epochs(data_handler)`."""

    def enumerate_rest(handler):
        resumes = isinstance(getattr(handler._model, "_training_state", None), _Resumption)
        left_out = handler._initial_step if resumes else 0
        for epoch, iterator in enumerate_epochs(handler):
            _leave_out(left_out, iterator)
            if left_out and handler._inferred_steps is None:
                if next(iterator, None) is None:  # it was the whole epoch
                    handler._inferred_steps, handler._initial_step, left_out = left_out, 0, 0
                    continue
                iterator = iter(handler._dataset)
                _leave_out(left_out, iterator)
            left_out = 0
            yield epoch, iterator

    return enumerate_rest


def _leave_out(count, iterator):
    for _ in range(count):
        next(iterator, None)
