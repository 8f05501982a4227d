"""Backups of a training with `fit`, from which it goes on where it was."""

import os
import signal
from collections.abc import Callable
from typing import Any, Literal

import keras
import tensorflow as tf

from tf_gc.strategy import keras_callbacks, keras_seams, tensorflow_internals
from tf_gc.strategy.backups import Backups, Position


class BackupAndRestore(keras_callbacks.TfKerasCallback, keras.callbacks.Callback):
    """Goes on with a training that was interrupted, as if it had not been.

    Takes the place of `keras.callbacks.BackupAndRestore`, which on several workers of one machine
    has all of them write one file, and knows of no residuals:

        model.fit(dataset, epochs=10, callbacks=[tf_gc.keras.BackupAndRestore("backups")])

    A backup holds the model, its optimizer, its layers' random numbers, epoch, batch, and of every
    worker what compression has not delivered yet, with all else in `strategy.residuals`. Every
    worker writes a part of its own, `<backup_dir>/worker-<index>`; `backup_dir` is the same for
    all, or one for each, such as a disk of its machine. `fit` begins at the first batch that the
    last backup which all workers have ended has not seen; it reads and leaves out those before in
    that epoch. With the same number of workers and a dataset that gives each epoch the same batches
    in each run, the end is the same, bit for bit, as without an interruption (in tf_keras random
    layers need `tf.keras.backend.experimental.enable_tf_random_generator()` for that). With another
    number of workers each has an equal share of the sums of the residuals; then all need one
    `backup_dir`.

    A kill or a full disk while a backup is written leave those before untouched. With parameter
    servers the program backs up at the ends of epochs.

    Args:
      backup_dir: a folder of the file system, for this training alone.
      save_freq: "epoch", or the number of batches from one backup to the next; False for none but
        those before preemption.
      double_checkpoint: taken for Keras's sake: the last two backups are always kept.
      delete_checkpoint: whether backups are deleted when `fit` has ended.
      save_before_preemption: whether to back up when any worker gets SIGTERM, and then to exit,
        with code 42; see `tf.distribute.experimental.PreemptionCheckpointHandler`.

    Raises:
      ValueError: an argument is something else.
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike,
        save_freq: Literal["epoch", False] | int = "epoch",
        *,
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
        save_before_preemption: bool = False,
    ) -> None:
        super().__init__()
        del double_checkpoint
        self.backup_dir = os.fspath(backup_dir)
        if not self.backup_dir or "://" in self.backup_dir:
            raise ValueError(f"backup_dir must be a folder of the file system, got {backup_dir!r}")
        if save_freq not in ("epoch", False) and (
            not isinstance(save_freq, int) or save_freq is True or save_freq < 1
        ):
            raise ValueError(f"save_freq must be 'epoch', an integer or False, got {save_freq!r}")
        if not save_freq and not save_before_preemption:
            raise ValueError("without save_freq, save_before_preemption must be True")
        self.save_freq = save_freq
        self.delete_checkpoint = delete_checkpoint
        self.save_before_preemption = save_before_preemption
        self._backups = None
        self._preemption = None
        self._position = Position(0, 0)
        self._unsaved_batches = 0
        keras_seams.redirect()

    def on_train_begin(self, logs: Any = None) -> None:
        """Restores the last backup, if there is one."""
        strategy = self.model.distribute_strategy
        # Within an epoch no dataset of parameter servers can be gone on with.
        if hasattr(strategy, "push_gradients") and (
            self.save_freq != "epoch" or self.save_before_preemption
        ):
            raise ValueError(
                "with parameter servers save_freq must be 'epoch', and save_before_preemption False"
            )
        self._backups = Backups(self.backup_dir, strategy)
        with strategy.scope():
            position = self._backups.restore(*keras_callbacks.training_state(self.model))
        if position:
            keras_callbacks.resume(self.model, *position)
        self._position = position or Position(0, 0)
        self._unsaved_batches = 0
        if self.save_before_preemption:
            self._preemption = _PreemptionWatch.of_process(
                strategy.cluster_resolver, os.path.join(self.backup_dir, "none")
            )
            self._preemption.begin(self._write)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._position.epoch != epoch:
            self._position = Position(epoch, 0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._unsaved_batches += batch + 1 - self._position.batch
        self._position = self._position._replace(batch=batch + 1)
        if self._preemption:
            self._preemption.step_has_ended()
        if self.save_freq != "epoch" and 0 < self.save_freq <= self._unsaved_batches:
            self._write()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._position = Position(epoch + 1, 0)
        if self.save_freq == "epoch":
            self._write()

    def on_train_end(self, logs: Any = None) -> None:
        """Deletes the backups, if that is wanted."""
        keras_callbacks.forget_resumption(self.model)
        if self._preemption:
            self._preemption.end()
        if self.delete_checkpoint:
            self._backups.delete()

    def _write(self):
        self._unsaved_batches = 0
        self._backups.write(*keras_callbacks.training_state(self.model), self._position)


class _PreemptionWatch:
    """TensorFlow's handler of preemption, which writes a backup in place of its checkpoint.

    There is one for all calls of `fit`: the thread of a handler, which waits for signals of other
    workers, runs until the process ends, and those of several would all answer the first signal.
    """

    _of_process = None

    @classmethod
    def of_process(cls, resolver, directory):
        """Returns it. In the directory, which TensorFlow asks for, it finds and writes nothing."""
        if not cls._of_process:
            cls._of_process = cls(resolver, directory)
        return cls._of_process

    def __init__(self, resolver, directory):
        nothing = tf.train.CheckpointManager(tf.train.Checkpoint(), directory, max_to_keep=1)
        config = tf.distribute.experimental.TerminationConfig(save_fn=lambda: self._write())
        former = signal.getsignal(signal.SIGTERM)
        with tensorflow_internals.preemption_by_sigterm():
            self._handler = tf.distribute.experimental.PreemptionCheckpointHandler(
                resolver, nothing, termination_config=config
            )
        self._on_signal = signal.signal(signal.SIGTERM, former)

    def begin(self, write: Callable[[], None]) -> None:
        self._write = write
        self._former = signal.signal(signal.SIGTERM, self._on_signal)

    def step_has_ended(self) -> None:
        """Backs up and exits if it is time to."""
        self._handler.save_checkpoint_if_preempted()

    def end(self) -> None:
        signal.signal(signal.SIGTERM, self._former)
        self._write = None
