"""tf_gc/testing/measurements.py: which failures are measured, on how many workers."""

from unittest import mock

from absl.testing import absltest

import tf_gc
from tf_gc.testing import Case, measurements, programs


class _StubbedCluster:
    """One in which a compressor hangs unless worker 0 dies."""

    def __init__(self, workers, threads=None, bandwidth=None):
        self._workers = workers

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        pass

    def run(self, function, *arguments):
        return self.run_on(range(self._workers), function, *arguments)

    def run_on(self, workers, function, *arguments):
        if function is programs.prepare:
            self._names = list(arguments[0])
        if function is not programs.reduce_until_error:
            return [{} for _ in workers]
        victim, absent = arguments
        error = "DeadlineExceededError" if absent else "hangs" if victim else "UnavailableError"
        return [dict.fromkeys(self._names, error) for _ in workers]


def _measured(workers):
    cases = {"one": Case(compressor=tf_gc.ThreeLC(), workers=workers)}
    measured = measurements.Measurements(cases, (1, 2))
    with mock.patch.object(measurements, "_LastingCluster", _StubbedCluster):
        measured.run()
    return measured


class MeasurementsTest(absltest.TestCase):
    def test_the_death_of_the_last_worker_and_of_the_first_one_are_both_kept(self):
        for workers in (2,), (2, 3), (5,), (4, 12):
            with self.subTest(workers=workers):
                expected = {("one", n, n - 1): ["hangs"] * (n - 1) for n in workers}
                few = workers[0]
                expected["one", few, 0] = ["UnavailableError"] * (few - 1)
                self.assertEqual(_measured(workers).killed, expected)

    def test_a_worker_stays_away_on_the_least_number_of_workers(self):
        for workers in (2,), (2, 3), (5,), (4, 12):
            with self.subTest(workers=workers):
                few = workers[0]
                expected = {("one", few, 1): ["DeadlineExceededError"] * (few - 1)}
                self.assertEqual(_measured(workers).absent, expected)

    def test_one_worker_alone_has_no_others_to_fail(self):
        measured = _measured((1,))
        self.assertEmpty(measured.killed | measured.absent)


if __name__ == "__main__":
    absltest.main()
