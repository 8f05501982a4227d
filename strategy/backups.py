"""The backups of a training: what each worker writes, and which of them all go on from."""

import contextlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from tf_gc.strategy import tensorflow_internals as internals
from tf_gc.strategy.variables import unwrap

_KEPT = 2  # one that all workers have, and one that some may not have ended


class Position(NamedTuple):
    """Where a training goes on: at the first batch that it has not seen."""

    epoch: int
    batch: int


class _Part(NamedTuple):
    """What one worker wrote of a backup."""

    number: int  # they are counted from 1
    workers: int  # in the job that wrote it
    worker: int


class Backups:
    """The backups of a training, of which every worker writes a part of its own.

        <directory>/worker-<index>/backup-<number>-of-<workers>/
            state.index, state.data-*   tf.train.Checkpoint: model, optimizer
            residuals.npz               this worker's
            own.npz                     variables of the model that each worker has for itself
            position.json               epoch and batch

    A part is written under another name, and renamed when all of it is on the disk: what has
    its name is whole. Workers begin a backup when all have ended the one before, and each
    keeps two: so there always is one that all have.

    All methods are for all workers together, at the same place of their programs.

    Args:
      directory: where to write; for all workers the same, or one for each.
      strategy: a `tf.distribute.Strategy`. Its residuals are saved, where it has them.
    """

    def __init__(self, directory, strategy):
        self._directory = pathlib.Path(directory)
        self._strategy = strategy
        self._worker, self._workers = 0, 1
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            self._worker = strategy.extended._id_in_cluster
            self._workers = strategy.extended._num_workers
        self._number = 0  # of the last one
        residuals = getattr(strategy, "residuals", None)
        is_own = hasattr(residuals, "own_values")
        self._own_residuals = residuals if is_own else None
        # With parameter servers: one process writes what all workers have.
        self._all_residuals = None if is_own else residuals

    def write(self, state: Mapping[str, Any], variables: Sequence[Any], position: Position):
        """Writes a backup.

        Args:
          state: what a `tf.train.Checkpoint` is made of, by name.
          variables: those of the model.
          position: where training goes on from here.

        Raises:
          RuntimeError: the workers are at different places.
          OSError, tf.errors.OpError: it cannot be written; those before are still there.
        """
        part = _Part(self._number + 1, self._workers, self._worker)
        places = {tuple(place) for place in self._gather([(part.number, *position)])}
        if len(places) > 1:
            raise RuntimeError(
                "the workers are at different places (number of the backup, epoch, batch): "
                f"{sorted(places)}. All workers must train for as many steps; start them again"
            )
        unfinished = self._folder(self._worker) / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            self._checkpoint(state).write(str(unfinished / "state"))
            np.savez(unfinished / "own.npz", **{k: v.numpy() for k, v in _own(variables).items()})
            if self._own_residuals is not None:
                np.savez(unfinished / "residuals.npz", **self._own_residuals.own_values())
            (unfinished / "position.json").write_text(json.dumps(position._asdict()))
            _flush(*unfinished.iterdir(), unfinished)
            unfinished.rename(self._path(part))
            _flush(self._folder(self._worker))
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        self._number = part.number
        self._remove(lambda number: number <= part.number - _KEPT)

    def restore(self, state: Mapping[str, Any], variables: Sequence[Any]) -> Position | None:
        """Restores the last backup that all workers have ended, if there is one.

        Where as many workers wrote it, each gets what it had; else all get the same model, and
        equal shares of the residuals. Arguments are those of `write`.

        Raises:
          FileNotFoundError: a worker cannot find what it needs of the backup.
        """
        chosen = self._choose()
        self._number = chosen.number if chosen else 0
        self._remove(lambda number: number > self._number)
        if chosen is None:
            return None
        paths = [self._path(chosen._replace(worker=worker)) for worker in self._needed(chosen)]
        self._checkpoint(state).read(str(paths[0] / "state")).expect_partial()
        is_own = chosen.workers == self._workers
        if is_own:
            saved = _load(paths[0] / "own.npz")
            for name, variable in _own(variables).items():
                variable.assign(saved[name])
        if self._own_residuals is not None:
            saved = [_load(path / "residuals.npz") for path in paths]
            self._own_residuals.adopt(saved[0] if is_own else self._own_residuals.shares(saved))
        position = Position(**json.loads((paths[0] / "position.json").read_text()))
        logging.info("tf_gc: goes on from %s, at %s", paths[0], position)
        return position

    def delete(self):
        """Deletes all backups, when all workers have come to this."""
        folders = {self._worker}
        if self._worker == 0:  # those of a larger job before
            folders |= {part.worker for part in self._found() if part.worker >= self._workers}
        self._gather([(0,)])  # from here on other workers delete, too
        for folder in map(self._folder, folders):
            deleted = folder.with_name(f"deleted-{folder.name}")
            shutil.rmtree(deleted, ignore_errors=True)  # what another program has left of it
            with contextlib.suppress(FileNotFoundError):
                folder.rename(deleted)  # at once: what has its name is whole
            shutil.rmtree(deleted, ignore_errors=True)
        with contextlib.suppress(OSError):  # other workers' are still in it
            self._directory.rmdir()

    def _choose(self):
        """Returns this worker's part of the backup to restore, or None.

        Raises:
          FileNotFoundError: there should be one, and some worker cannot find all of it.
        """
        found = [(*part, self._worker) for part in self._found()]
        seen = {tuple(row) for row in self._gather([(0, 0, 0, 0), *found]) if row[0]}
        parts = {_Part(*row[:3]) for row in seen}
        complete = [
            p for p in parts if all(p._replace(worker=w) in parts for w in range(p.workers))
        ]
        if not complete and all(p[:2] == (1, self._workers) for p in parts):
            return None  # the first one was not ended
        newest = max(complete or parts)._replace(worker=self._worker)
        for worker in range(self._workers):
            for other in self._needed(newest, worker):
                if (*newest._replace(worker=other), worker) not in seen:
                    raise FileNotFoundError(
                        f"worker {worker} has not got {self._path(newest._replace(worker=other))}. "
                        f"Start {newest.workers} workers, each with the backup_dir that it had, "
                        "give all workers one that has the backups of all, or an empty one to "
                        "begin anew"
                    )
        return newest

    def _needed(self, part, worker=None):
        """Returns whose parts a worker, by default this one, reads."""
        worker = self._worker if worker is None else worker
        return [worker] if part.workers == self._workers else range(part.workers)

    def _found(self):
        """Returns the parts that can be seen from here."""
        parts = []
        for path in self._directory.glob("worker-*/backup-*-of-*"):
            match = re.fullmatch(r"worker-(\d+)/backup-(\d+)-of-(\d+)", "/".join(path.parts[-2:]))
            if match:
                worker, number, workers = map(int, match.groups())
                parts.append(_Part(number, workers, worker))
        return parts

    def _remove(self, is_meant):
        """Removes this worker's parts whose numbers are meant."""
        removed = self._folder(self._worker) / "unfinished"
        for part in self._found():
            if part.worker == self._worker and is_meant(part.number):
                shutil.rmtree(removed, ignore_errors=True)
                self._path(part).rename(removed)  # at once: what has its name is whole
                shutil.rmtree(removed)

    def _folder(self, worker):
        return self._directory / f"worker-{worker}"

    def _path(self, part):
        return self._folder(part.worker) / f"backup-{part.number}-of-{part.workers}"

    def _checkpoint(self, state):
        if self._all_residuals is not None:
            state = {**state, "residuals": self._all_residuals}
        return tf.train.Checkpoint(**state)

    def _gather(self, rows):
        """Returns the rows of integers of all workers."""
        if self._workers == 1:
            return rows
        rows = self._strategy.run(lambda: tf.constant(rows, tf.int64))
        return self._strategy.gather(rows, axis=0).numpy().tolist()


def _own(variables):
    """Returns those of this worker's variables that others have other values of, by name."""
    return {
        f"{number} {replica}": variable
        for number, container in enumerate(map(unwrap, variables))
        if isinstance(container, internals.SyncOnReadVariable)
        for replica, variable in enumerate(container.values)
    }


def _load(path):
    with np.load(path) as values:
        return dict(values)


def _flush(*paths):
    """Makes sure that files, or the names in folders, are on the disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
