"""What the conformance suite asserts on: everything is measured once, on few clusters.

A cluster of each size is started once and measures all compressors, as the first step of a
process is a slow one. A compressor that fails there breaks its cluster, which is started
again for the next ones; its own results are the exception.
"""

import tempfile
from collections.abc import Iterator, Mapping

from tf_gc.network_namespaces import why_unavailable
from tf_gc.testing import programs
from tf_gc.testing.case import Case
from tf_gc.testing.cluster import Cluster, WorkerError

THREADS = (1, 4)
_TIMEOUT_SECONDS = 5.0  # in which all must come to the first step, too
_BANDWIDTH = "10gbit"  # more than any of it needs

# By worker, or the exception.
Outcome = list | WorkerError


class Measurements:
    """Runs `programs` for some cases.

    Attributes:
      contracts: (name, number of workers) -> outcome of `programs.measure_contracts`.
      restored_from: number of workers -> that of those whose checkpoint they restored.
      modes: name -> outcome of `programs.measure_modes`.
      repetitions: name -> outcome of `programs.measure_repetition`.
      alone: name -> outcome of `programs.alone`.
      killed: (name, number of workers, victim) -> the errors of those that survived.
      absent: (name, number of workers, who is) -> the errors of those that came.
    """

    def __init__(self, cases: Mapping[str, Case], workers: tuple[int, ...]):
        self._cases = cases
        self._workers = {name: case.workers or workers for name, case in cases.items()}
        self._alone = 1 in workers
        self.contracts: dict[tuple[str, int], Outcome] = {}
        self.restored_from: dict[tuple[str, int], int] = {}
        self.modes: dict[str, Outcome] = {}
        self.repetitions: dict[str, Outcome] = {}
        self.alone: dict[str, Outcome] = {}
        self.killed: dict[tuple[str, int, int], Outcome] = {}
        self.absent: dict[tuple[str, int, int], Outcome] = {}

    def outcomes(self) -> Iterator[tuple[str, Outcome]]:
        """What was measured of what, and the outcome."""
        for what, outcomes in vars(self).items():
            if not what.startswith("_") and what != "restored_from":
                for key, outcome in outcomes.items():
                    yield f"{what}: {key}", outcome

    def few(self, name: str) -> int | None:
        """Returns the least number of several workers that a compressor is measured on."""
        return min((n for n in self._workers[name] if n > 1), default=None)

    def run(self) -> None:
        if self._alone:
            self._measure_alone()
        with tempfile.TemporaryDirectory() as directory:
            for workers in sorted(set().union(*self._workers.values()) - {1}):
                self._measure_several(workers, directory)
        for workers in {self.few(name) for name in self._cases} - {None}:
            self._measure_repetitions(workers)
            self._measure_death_of_the_first(workers)

    def _measure_alone(self):
        with _LastingCluster(1) as cluster:
            for name, case in self._cases.items():
                self.alone[name] = cluster.run(programs.alone, case.compressor)

    def _measure_several(self, workers, directory):
        names = [name for name, numbers in self._workers.items() if workers in numbers]
        with _LastingCluster(workers, THREADS[1]) as cluster:
            for name in names:
                case = self._cases[name]
                self.restored_from[name, workers] = self._last_saved(name) or workers
                self.contracts[name, workers] = cluster.run(
                    programs.measure_contracts,
                    case.compressor,
                    f"{directory}/{list(self._cases).index(name)}",
                    self.restored_from[name, workers],
                )
                if workers == self.few(name):
                    self.modes[name] = cluster.run(programs.measure_modes, case)
            # At the end: a failed collective runtime stays failed.
            self._fail(cluster, names, workers, self.killed, victim=workers - 1)

    def _measure_repetitions(self, workers):
        """With another number of threads, and a network on which bytes can be counted."""
        names = self._measured_on_no_fewer(workers)
        bandwidth = None if why_unavailable() else _BANDWIDTH
        with _LastingCluster(workers, THREADS[0], bandwidth=bandwidth) as cluster:
            for name in names:
                self.repetitions[name] = cluster.run(
                    programs.measure_repetition, self._cases[name].compressor, bool(bandwidth)
                )
            # Not in a new cluster, whose first step takes long.
            self._fail(cluster, names, workers, self.absent, absent=1)

    def _measure_death_of_the_first(self, workers):
        names = self._measured_on_no_fewer(workers)
        with _LastingCluster(workers) as cluster:
            self._fail(cluster, names, workers, self.killed, victim=0)

    def _measured_on_no_fewer(self, workers):
        return [name for name in self._cases if self.few(name) == workers]

    def _last_saved(self, name):
        """The number of workers that have saved a checkpoint last, None if none have."""
        saved = [
            workers
            for (other, workers), outcome in self.contracts.items()
            if other == name and not isinstance(outcome, WorkerError)
        ]
        return saved[-1] if saved else None

    def _fail(self, cluster, names, workers, errors, victim=None, absent=None):
        """All compressors reduce at the same time, and one worker dies or stays away."""
        compressors = {name: self._cases[name].compressor for name in names}
        outcome = cluster.run(programs.prepare, compressors, _TIMEOUT_SECONDS if absent else None)
        if not isinstance(outcome, WorkerError):
            others = [n for n in range(workers) if n not in (victim, absent)]
            outcome = cluster.run_on(others, programs.reduce_until_error, victim, absent)
        failed = isinstance(outcome, WorkerError)
        for name in names:
            key = (name, workers, victim if absent is None else absent)
            errors[key] = outcome if failed else [result[name] for result in outcome]


class _LastingCluster:
    """A cluster that is started when first used, and again when a function has failed in it."""

    def __init__(self, workers, threads=None, **arguments):
        self._workers = workers
        self._threads = threads
        self._arguments = arguments
        self._cluster = None

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self._close()

    def run(self, function, *arguments):
        """Returns the results by worker, or the exception."""
        return self.run_on(range(self._workers), function, *arguments)

    def run_on(self, workers, function, *arguments):
        """The same; waits for, and returns the results of, some workers only."""
        if self._cluster is None or self._cluster.broken:
            self._start()
        self._cluster.begin(function, *arguments)
        try:
            return self._cluster.results(workers)
        except WorkerError as error:
            return error

    def _start(self):
        self._close()
        self._cluster = Cluster(self._workers, **self._arguments)
        if self._threads:
            self._cluster.run(programs.set_threads, self._threads)

    def _close(self):
        if self._cluster is not None:
            self._cluster.close()
