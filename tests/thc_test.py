"""tf_gc.thc: the optimal tables."""

import itertools
import math
import statistics

import numpy as np
from absl.testing import absltest, parameterized

from tests import testing
from tf_gc import kernels, thc


def _quantization_values(table, t_p):
    return -t_p + 2 * t_p * np.array(table) / table[-1]


def _interval_errors(granularity, t_p):
    """Of every interval of grid positions, by the midpoint rule."""
    x = _quantization_values(range(granularity + 1), t_p)
    steps = 4000
    errors = {}
    for i, j in itertools.combinations(range(granularity + 1), 2):
        y = x[i] + (x[j] - x[i]) * (np.arange(steps) + 0.5) / steps
        density = np.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)
        errors[i, j] = ((y - x[i]) * (x[j] - y) * density).mean() * (x[j] - x[i])
    return errors


def _squared_error(table, errors):
    return sum(errors[interval] for interval in itertools.pairwise(table))


def _all_tables(bits, granularity):
    for inner in itertools.combinations(range(1, granularity), 2**bits - 2):
        yield (0, *inner, granularity)


def _lower_halves(bits, granularity):
    """Of the symmetric tables, for odd granularities."""
    for inner in itertools.combinations(range(1, granularity // 2 + 1), 2 ** (bits - 1) - 1):
        yield (0, *inner)


def _mirrored(table):
    return tuple(table[-1] - value for value in reversed(table))


class OptimalTableTest(parameterized.TestCase):
    def test_golden_tables(self):
        for case in testing.golden("thc_table"):
            result = thc.optimal_table(case["bits"], case["granularity"], case["p"])
            self.assertEqual(result.table, tuple(case["table"]))
            self.assertAlmostEqual(result.t_p, case["t_p"], delta=1e-12)
            self.assertAlmostEqual(
                result.expected_squared_error, case["expected_squared_error"], delta=1e-12
            )

    def test_one_bit_by_hand(self):
        # t^2 - x^2 over the density: (t^2 - 1) (1 - p) + 2 t phi(t).
        result = thc.optimal_table(1, 5, 0.1)
        t_p = statistics.NormalDist().inv_cdf(0.95)
        self.assertEqual(result.table, (0, 5))
        self.assertAlmostEqual(result.t_p, t_p, delta=1e-12)
        expected = (t_p**2 - 1) * 0.9 + 2 * t_p * statistics.NormalDist().pdf(t_p)
        self.assertAlmostEqual(result.expected_squared_error, expected, delta=1e-12)

    @parameterized.parameters(*range(1, 9))
    def test_the_smallest_granularity_gives_the_identity(self, bits):
        result = thc.optimal_table(bits, 2**bits - 1, 1 / 32)
        self.assertEqual(result.table, tuple(range(2**bits)))
        self.assertIsInstance(result.table[1], int)

    @parameterized.parameters(
        *itertools.product([1], [1, 2, 9], [1 / 32]),
        *itertools.product([2], range(3, 15), [0.3, 1 / 32, 1e-6]),
        *itertools.product([3], range(7, 13), [0.3, 1 / 32, 1e-6]),
    )
    def test_no_table_is_better(self, bits, granularity, p):
        result = thc.optimal_table(bits, granularity, p)
        errors = _interval_errors(granularity, result.t_p)
        least = min(_squared_error(table, errors) for table in _all_tables(bits, granularity))
        # The midpoint rule is exact to about 1e-6.
        self.assertAlmostEqual(_squared_error(result.table, errors) / least, 1, delta=1e-9)
        self.assertAlmostEqual(result.expected_squared_error / least, 1, delta=1e-5)

    @parameterized.parameters(
        *itertools.product([2, 3], [9, 15, 21, 33], [1 / 8, 1 / 32, 1 / 1024])
    )
    def test_no_symmetric_table_is_better(self, bits, granularity, p):
        result = thc.optimal_table(bits, granularity, p)
        errors = _interval_errors(granularity, result.t_p)
        least = min(
            _squared_error((*lower, *_mirrored((*lower, granularity))[1:]), errors)
            for lower in _lower_halves(bits, granularity)
        )
        self.assertLessEqual(_squared_error(result.table, errors), least * (1 + 1e-9))

    def test_the_best_table_of_an_odd_granularity_may_be_asymmetric(self):
        # The paper searches symmetric tables only where the granularity is odd.
        result = thc.optimal_table(2, 21, 1 / 8)
        self.assertEqual(result.table, (0, 8, 14, 21))
        errors = _interval_errors(21, result.t_p)
        for inner in range(1, 11):
            symmetric = (0, inner, 21 - inner, 21)
            self.assertGreater(
                _squared_error(symmetric, errors), 1.0001 * _squared_error(result.table, errors)
            )

    def test_of_mirror_images_the_first_even_one_is_taken(self):
        for bits, granularity in [(2, 4), (2, 6), (3, 10), (4, 16), (4, 30), (4, 51)]:
            table = thc.optimal_table(bits, granularity, 1 / 64).table
            for value, mirrored in zip(table, _mirrored(table), strict=True):
                if value != mirrored:
                    self.assertLessEqual((value % 2, value), (mirrored % 2, mirrored))
                    break

    @parameterized.parameters((4, 30, 1 / 32), (3, 200, 1e-4), (6, 255, 1e-9), (2, 1000, 0.999))
    def test_the_error_is_the_integral(self, bits, granularity, p):
        result = thc.optimal_table(bits, granularity, p)
        total = 0.0
        values = _quantization_values(result.table, result.t_p)
        nodes, weights = np.polynomial.legendre.leggauss(60)
        for low, high in itertools.pairwise(values):
            half = (high - low) / 2
            x = (low + high) / 2 + half * nodes
            density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
            total += half * np.sum(weights * (x - low) * (high - x) * density)
        self.assertAlmostEqual(result.expected_squared_error / total, 1, delta=1e-11)

    @parameterized.parameters((4, 30, 1 / 32), (4, 51, 1 / 128), (2, 34, 1 / 512))
    def test_quantized_normal_values_have_that_error(self, bits, granularity, p):
        result = thc.optimal_table(bits, granularity, p)
        draws = 1 << 20
        x = np.random.default_rng(bits + granularity).standard_normal(draws)
        x = x.clip(-result.t_p, result.t_p).astype(np.float32)
        levels = _quantization_values(result.table, result.t_p).astype(np.float32)
        indices = kernels.stochastic_quantize(x, levels, granularity)
        errors = (levels.astype(float)[indices] - x.astype(float)) ** 2
        # Clamped values lie on a level and add nothing, as in the integral. Of
        # the three z-scores one is above 5 with a probability of 2e-6.
        z_score = (errors.mean() - result.expected_squared_error) / (
            errors.std() / math.sqrt(draws)
        )
        self.assertLess(abs(z_score), 5)

    def test_arguments_out_of_range_are_refused(self):
        for message, args in [
            ("bits must be 1 to 8, got 0", (0, 30, 0.1)),
            ("bits must be 1 to 8, got 9", (9, 1000, 0.1)),
            (r"granularity must be at least 2\^bits - 1 = 15, got 14", (4, 14, 0.1)),
            ("p must be greater than 0 and less than 1, got 0", (4, 30, 0)),
            ("p must be greater than 0 and less than 1, got 1", (4, 30, 1)),
            ("p must .*got -0.5", (4, 30, -0.5)),
            ("p must .*got nan", (4, 30, float("nan"))),
        ]:
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message):
                thc.optimal_table(*args)


if __name__ == "__main__":
    absltest.main()
