"""tf_gc/testing: which failures are measured, on how many workers, and what its checks refuse."""

from unittest import mock

import numpy as np
from absl.testing import absltest

import tf_gc
from tf_gc.testing import Case, conformance, measurements, programs


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


class ChecksTest(absltest.TestCase):
    """What the suite's checks find, of numbers that are made here."""

    def _samples(self, seed):
        """Returns sums as SSDM delivers them: noise a hundred times what is exact, and that."""
        rng = np.random.default_rng(seed)
        exact = rng.standard_normal((30, 30))
        noise = np.linalg.norm(exact) * rng.choice([-1, 1], (programs.SAMPLES, 30, 30))
        return exact, noise, rng

    def test_what_is_right_on_average_passes(self):
        for seed in range(20):
            exact, _, rng = self._samples(seed)
            norm = np.linalg.norm(exact)
            is_up = rng.random((programs.SAMPLES, 30, 30)) < (1 + exact / norm) / 2
            conformance.check_unbiased(self, np.where(is_up, norm, -norm), exact)

    def test_noise_alone_and_half_of_what_is_right_are_biased(self):
        for seed in range(20):
            exact, noise, rng = self._samples(seed)
            norm = np.linalg.norm(exact)
            is_up = rng.random((programs.SAMPLES, 30, 30)) < (1 + exact / norm) / 2
            for samples in (noise, np.where(is_up, norm, -norm) / 2):
                with self.assertRaisesRegex(AssertionError, "biased"):
                    conformance.check_unbiased(self, samples, exact)

    def test_nan_is_not_conserved(self):
        for bad in (np.nan, np.inf):
            run = {"steps": [0], "delivered": {0: {}}, "after": {}, "before": {}}
            for name in programs.COMPRESSED:
                exact = conformance._put_in(name, [0], 1)
                run["delivered"][0][name] = exact
            results = [{"SUM": run}]
            suite = conformance.CompressorConformance()
            suite._conserved(Case(compressor=tf_gc.ThreeLC()), 1, results, "SUM")
            run["delivered"][0]["matrix"] = np.full_like(run["delivered"][0]["matrix"], bad)
            with self.assertRaisesRegex(AssertionError, "of a value of .* is lost"):
                suite._conserved(Case(compressor=tf_gc.ThreeLC()), 1, results, "SUM")

    def test_a_suite_that_measures_nothing_says_so(self):
        class Nothing(conformance.CompressorConformance):
            compressor = tf_gc.ThreeLC()

        class Alone(conformance.CompressorConformance):
            compressors = {"one": tf_gc.ThreeLC()}  # noqa: RUF012
            workers = (1,)

        with self.assertRaisesRegex(ValueError, "Nothing.compressors is empty"):
            Nothing.setUpClass()
        with self.assertRaisesRegex(ValueError, r"Alone: 'one' is measured on \(1,\) workers"):
            Alone.setUpClass()


if __name__ == "__main__":
    absltest.main()
