"""tf_gc.adaptive: the compression gain from a histogram, against sorting."""

import hypothesis
import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import testing
from tf_gc import adaptive, kernels

testing.set_up_hypothesis(max_examples=200)

_RATIOS = (*adaptive.CANDIDATES, 0.25, 0.5, 0.999, 1.0)
# What a bin's largest values may have above its mean, of its squares.
_WIDTH = ((33 / 32) ** 2 - 1) / 4
_ROUNDING = 2**-28


def _random(name, size=200003):
    rng = np.random.default_rng(0)
    values = {
        "gaussian": lambda: rng.standard_normal(size),
        "laplace": lambda: rng.laplace(size=size),
        "heavy tail": lambda: rng.standard_t(1.5, size),
        "constant": lambda: np.full(size, -0.7),
        "mostly zero": lambda: rng.standard_normal(size) * (rng.random(size) < 0.003),
        "two in a bin": lambda: np.where(rng.random(size) < 0.3, 1.0, 1.031),
        "few": lambda: np.array([3.0, -4.0, 0.0]),
    }[name]()
    return values.astype(np.float32)


def _exact(values, ratio):
    """The definition: of the squares of all values, those of the k largest."""
    squares = np.sort(np.square(values, dtype=np.float64))[::-1]
    k = max(1, round(ratio * len(values)))
    return np.sum(squares[:k]) / np.sum(squares)


def _share_of_bin(values, ratio):
    """What the k-th largest value's bin, of 1 / 32 of an octave's first value, has of all."""
    magnitudes = np.sort(np.abs(values.astype(np.float64)))[::-1]
    bins = magnitudes.astype(np.float32).view(np.uint32) >> 18
    own = bins == bins[max(1, round(ratio * len(values))) - 1]
    return np.sum(magnitudes[own] ** 2) / np.sum(magnitudes**2)


class GainTest(parameterized.TestCase):
    @parameterized.parameters(
        "gaussian", "laplace", "heavy tail", "constant", "mostly zero", "two in a bin", "few"
    )
    def test_equals_the_definition_within_a_bins_width(self, name):
        values = _random(name)
        gains = adaptive.gains(*kernels.magnitude_histogram(values), _RATIOS)
        for ratio, gain in zip(_RATIOS, gains, strict=True):
            exact = _exact(values, ratio)
            self.assertLessEqual(gain, exact + _ROUNDING)
            error = _WIDTH * _share_of_bin(values, ratio)
            self.assertGreaterEqual(gain, exact - error - _ROUNDING)

    @parameterized.parameters("gaussian", "laplace", "heavy tail", "mostly zero")
    def test_is_exact_to_a_thousandth_where_values_are_spread(self, name):
        values = _random(name)
        gains = adaptive.gains(*kernels.magnitude_histogram(values), _RATIOS)
        exact = [_exact(values, ratio) for ratio in _RATIOS]
        np.testing.assert_allclose(gains, exact, rtol=2e-3, atol=1e-4)

    @hypothesis.given(
        st.lists(st.floats(-(2.0**50), 2.0**50, width=32), min_size=1, max_size=300),
        st.lists(st.floats(1e-6, 1), min_size=1, max_size=10).map(sorted),
    )
    def test_properties(self, values, ratios):
        values = np.array(values, np.float32)
        gains = adaptive.gains(*kernels.magnitude_histogram(values), [*ratios, 1.0])
        self.assertEqual(gains[-1], 1)
        self.assertBetween(gains[0], 0, 1)
        self.assertTrue(np.all(np.diff(gains) >= 0))
        if np.max(np.abs(values)) > 1e-30:  # squares of smaller ones may count as 0
            for ratio, gain in zip(ratios, gains, strict=False):
                self.assertAlmostEqual(gain, _exact(values, ratio), delta=_WIDTH + _ROUNDING)

    def test_by_hand(self):
        # 2 of 4 values, that are 1, 2, 3 and 4: (9 + 16) / 30.
        values = np.array([1, 2, -3, 4], np.float32)
        gains = adaptive.gains(*kernels.magnitude_histogram(values), [0.5, 0.01])
        np.testing.assert_allclose(gains, [25 / 30, 16 / 30])

    def test_histograms_of_buckets_add_up(self):
        values = _random("laplace")
        counts, squares = zip(
            *(kernels.magnitude_histogram(part) for part in np.split(values, [50000, 120000])),
            strict=True,
        )
        np.testing.assert_allclose(
            adaptive.gains(sum(counts), sum(squares), _RATIOS),
            adaptive.gains(*kernels.magnitude_histogram(values), _RATIOS),
            rtol=1e-12,
        )

    @parameterized.parameters(0, 1000)
    def test_nothing_is_lost_of_zeros(self, size):
        histogram = kernels.magnitude_histogram(np.zeros(size, np.float32))
        self.assertEqual(adaptive.gains(*histogram, [0.001, 1]).tolist(), [1, 1])

    def test_wrong_arguments_are_named(self):
        counts, squares = kernels.magnitude_histogram(_random("few"))
        for ratio in 0, 1.5, -0.1, float("nan"):
            with self.assertRaisesRegex(ValueError, r"ratio must be in \(0, 1\], got"):
                adaptive.gains(counts, squares, [0.1, ratio])
        with self.assertRaisesRegex(ValueError, r"one size, got shapes \(8160,\) and \(8159,\)"):
            adaptive.gains(counts, squares[1:], [0.1])


if __name__ == "__main__":
    absltest.main()
