"""tf_gc.kernels: ternary quantisation for NumPy, on every instruction set."""

import hypothesis
import ml_dtypes
import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import philox_reference, testing, three_lc_reference
from tests.kernels.numpy_testing import (
    ANY_FLOATS,
    INSTRUCTION_SETS,
    INT64,
    InstructionSetTestCase,
    as_floats,
)
from tf_gc import kernels

_SCALES = st.floats(0, width=32, allow_infinity=False, allow_nan=False)


def _nearest(values, scale):
    """2 |v| > scale, without rounding."""
    magnitudes = np.abs(values.astype(np.float64))
    is_large = (2 * magnitudes > scale) & (scale > 0)
    return np.where(is_large, np.where(values > 0, 1, -1), 0)


def _stochastic(values, scale, seed):
    """|v| > r scale, with r scale rounded to float32."""
    words = philox_reference.words(seed, -(-values.size // 8))
    halves = philox_reference.halves(words)[: values.size]
    # Of 41 bits: exact, before it is rounded.
    limits = ((halves + 0.5) / 65536 * np.float64(scale)).astype(np.float32)
    is_large = (np.abs(values) > limits) & (scale > 0)
    return np.where(is_large, np.where(values > 0, 1, -1), 0)


class TernaryQuantizeTest(InstructionSetTestCase):
    def test_by_hand(self):
        values = as_floats([[0.5, 0.75, -0.75, -0.5], [0, np.nan, np.inf, -np.inf]])
        ternary = kernels.ternary_quantize(values, 1.0)
        self.assertEqual(ternary.tolist(), [[0, 1, -1, 0], [0, 0, 1, -1]])
        self.assertEqual(ternary.dtype, np.int8)

    @hypothesis.given(ANY_FLOATS, _SCALES, INSTRUCTION_SETS)
    def test_agrees_with_the_reference(self, values, scale, instruction_set):
        kernels.set_instruction_set(instruction_set)
        # The scale itself and its half are the hard ones.
        hard = np.float32(scale)
        values = np.concatenate([values, as_floats([hard, -hard, hard / 2, -hard / 2])])
        np.testing.assert_array_equal(
            kernels.ternary_quantize(values, scale), _nearest(values, scale)
        )

    @parameterized.parameters(1.0, 1.5, 1.999)
    def test_gives_what_3lc_sends_without_a_residual(self, multiplier):
        for n in 0, 1, 5, 64, 199, 12345:
            values = testing.gaussian(n)
            scale, sent, _ = kernels.three_lc_quantize(values, np.zeros(n, np.float32), multiplier)
            ternary = kernels.ternary_quantize(values, scale)
            np.testing.assert_array_equal(ternary, sent)
            expected, _ = three_lc_reference.encode(values, np.zeros(n, np.float32), multiplier)
            quartic = kernels.quartic_encode(ternary)
            self.assertEqual(kernels.zero_run_encode(quartic).tolist(), expected[4:])


class StochasticTernaryQuantizeTest(InstructionSetTestCase):
    @hypothesis.given(
        ANY_FLOATS,
        _SCALES,
        INT64,
        INSTRUCTION_SETS,
    )
    def test_agrees_with_the_reference(self, values, scale, seed, instruction_set):
        kernels.set_instruction_set(instruction_set)
        hard = np.float32(scale)
        values = np.concatenate([values, as_floats([hard, -hard, hard / 2, hard / 65536])])
        np.testing.assert_array_equal(
            kernels.stochastic_ternary_quantize(values, scale, seed),
            _stochastic(values, scale, seed),
        )

    def test_instruction_sets_agree_on_large_arrays(self):
        values = testing.gaussian(300007)
        self.assert_instruction_sets_agree(
            lambda: [kernels.stochastic_ternary_quantize(values, 2.5, (1, 2))]
        )

    @parameterized.parameters(1.0, 0.7, 1.2e-38)
    def test_is_unbiased_up_to_the_scale(self, scale):
        # A z-test for each of 20 values, 2^20 times each, with a fixed seed:
        # |z| < 4.5 fails with probability 7e-6 for a seed that is drawn at
        # random.
        count = 2**20
        scale = np.float32(scale)
        for k, fraction in enumerate(np.linspace(-1, 1, 21)):
            value = np.float32(fraction) * scale
            p = abs(np.float64(value)) / np.float64(scale)
            ternary = kernels.stochastic_ternary_quantize(np.full(count, value), scale, (3, k))
            if p in (0, 1):
                self.assertTrue(np.all(ternary == np.sign(fraction)))
                continue
            mean = np.sum(ternary * np.sign(fraction)) / count
            z = (mean - p) * np.sqrt(count / (p * (1 - p)))
            self.assertLess(abs(z), 4.5, fraction)

    def test_values_above_the_scale_have_their_sign(self):
        values = np.tile(as_floats([1, -1, 1.5, -2, 3e38, -np.inf]), 20000)
        ternary = kernels.stochastic_ternary_quantize(values, 1.0, 0)
        np.testing.assert_array_equal(ternary, np.sign(values))

    def test_neighbours_are_uncorrelated(self):
        # |z| < 5 fails with probability 6e-7 for each.
        p = 0.3
        sent = kernels.stochastic_ternary_quantize(np.full(2**22, np.float32(p)), 1.0, 4)
        deviation = sent - np.float64(np.float32(p))
        for lag in 1, 2, 4, 7, 8, 9, 16, 32, 64, 128:
            z = np.sum(deviation[:-lag] * deviation[lag:]) / (p * (1 - p) * np.sqrt(sent.size))
            self.assertLess(abs(z), 5, lag)

    def test_a_seed_is_an_integer_or_two(self):
        def quantize(seed):
            return kernels.stochastic_ternary_quantize(testing.gaussian(100), 3.0, seed).tobytes()

        self.assertEqual(quantize(3), quantize((3, 0)))
        self.assertLen({quantize(seed) for seed in (3, 4, (3, 1), -3)}, 4)


class BothTest(parameterized.TestCase):
    def _quantize_both(self, values, scale):
        yield kernels.ternary_quantize(values, scale)
        yield kernels.stochastic_ternary_quantize(values, scale, 0)

    @parameterized.parameters(np.float16, ml_dtypes.bfloat16)
    def test_half_precision_is_quantized_as_its_float32(self, dtype):
        values = testing.gaussian(1000).astype(dtype)
        for got, expected in zip(
            self._quantize_both(values, 1.5),
            self._quantize_both(values.astype(np.float32), 1.5),
            strict=True,
        ):
            np.testing.assert_array_equal(got, expected)

    def test_a_scale_of_zero_gives_zeros(self):
        values = as_floats([0, 1, -1, 1e-45, np.nan, np.inf, -np.inf])
        for ternary in self._quantize_both(values, 0.0):
            self.assertFalse(ternary.any())

    @parameterized.parameters((), (0,), (3, 0), (2, 3, 5))
    def test_shapes_stay(self, *shape):
        for ternary in self._quantize_both(np.ones(shape, np.float32), 1.0):
            self.assertEqual(ternary.shape, shape)
            self.assertTrue(np.all(ternary == 1))

    @parameterized.parameters(-1e-45, -1.0, np.nan, np.inf, -np.inf, 1e39)
    def test_a_scale_that_is_negative_or_not_finite_is_refused(self, scale):
        with self.assertRaisesRegex(ValueError, "scale must be finite and at least 0, got"):
            kernels.ternary_quantize(testing.gaussian(3), scale)
        with self.assertRaisesRegex(ValueError, "scale must be finite and at least 0, got"):
            kernels.stochastic_ternary_quantize(testing.gaussian(3), scale, 0)

    def test_wrong_types_are_refused(self):
        with self.assertRaisesRegex(TypeError, "values .*got float64"):
            kernels.ternary_quantize(np.zeros(3), 1.0)
        with self.assertRaisesRegex(TypeError, "values .*got int8"):
            kernels.stochastic_ternary_quantize(np.zeros(3, np.int8), 1.0, 0)
        with self.assertRaisesRegex(ValueError, "seed"):
            kernels.stochastic_ternary_quantize(testing.gaussian(3), 1.0, [1, 2, 3])


if __name__ == "__main__":
    absltest.main()
