"""tf_gc.kernels: the Hadamard transforms of NumPy arrays, on every instruction set."""

import hypothesis
import ml_dtypes
import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import testing
from tests.kernels.numpy_testing import INSTRUCTION_SETS, MODERATE_FLOAT, InstructionSetTestCase
from tf_gc import kernels


def _hadamard(values):
    """Slowly, the levels in the documented order."""
    size = values.shape[-1]
    h = 1
    while h < size:
        pairs = values.reshape(-1, 2, h)
        first, second = pairs[:, 0], pairs[:, 1]
        values = np.stack([first + second, first - second], 1)
        h *= 2
    return values.reshape(-1, size) * np.float32(size**-0.5)


class HadamardTest(InstructionSetTestCase):
    @parameterized.parameters(*kernels.instruction_sets())
    def test_gives_the_golden_numbers(self, instruction_set):
        kernels.set_instruction_set(instruction_set)
        cases = testing.golden("hadamard")
        for case in cases:
            transformed = kernels.hadamard(np.array(case["x"], np.float32))
            np.testing.assert_allclose(transformed, case["y"], atol=1e-6)

    @hypothesis.given(st.integers(0, 8), st.integers(0, 4), st.data(), INSTRUCTION_SETS)
    def test_agrees_with_the_reference(self, log_size, rows, data, instruction_set):
        kernels.set_instruction_set(instruction_set)
        size = 2**log_size
        drawn = data.draw(st.lists(MODERATE_FLOAT, min_size=1, max_size=2 * size))
        values = np.resize(np.array(drawn, np.float32), [rows, size])
        np.testing.assert_array_equal(kernels.hadamard(values), _hadamard(values))

    def test_the_first_row_holds_sums(self):
        values = testing.gaussian([4, 64])
        transformed = kernels.hadamard(values)
        np.testing.assert_allclose(transformed[:, 0], values.sum(-1) / 8, atol=1e-5)

    def test_the_inverse_restores_the_values(self):
        for size in 1, 16, 1 << 13:
            values = testing.gaussian([3, size])
            transformed = kernels.randomized_hadamard(values, [1, -2])
            restored = kernels.inverse_randomized_hadamard(transformed, [1, -2])
            np.testing.assert_allclose(restored, values, atol=1e-5)
            np.testing.assert_allclose(
                kernels.hadamard(kernels.hadamard(values)), values, atol=1e-5
            )

    def test_random_signs_spread_a_constant_row(self):
        values = np.ones([1 << 12], np.float32)
        self.assertEqual(kernels.hadamard(values).max(), 64)
        self.assertLess(np.abs(kernels.randomized_hadamard(values, 1)).max(), 6)

    def test_instruction_sets_agree(self):
        values = testing.gaussian([3, 1 << 15])
        self.assert_instruction_sets_agree(
            lambda: (
                kernels.hadamard(values),
                kernels.randomized_hadamard(values, 1),
                kernels.inverse_randomized_hadamard(values, 1),
            )
        )

    @parameterized.parameters(np.float16, ml_dtypes.bfloat16)
    def test_half_precision_is_transformed_in_float32(self, dtype):
        values = testing.gaussian([3, 128]).astype(dtype)
        transformed = kernels.hadamard(values)
        self.assertEqual(transformed.dtype, dtype)
        expected = kernels.hadamard(values.astype(np.float32)).astype(dtype)
        np.testing.assert_array_equal(transformed, expected)

    def test_a_strided_array_is_read_in_its_own_order(self):
        values = testing.gaussian([8, 4])
        np.testing.assert_array_equal(
            kernels.hadamard(values.T), kernels.hadamard(np.ascontiguousarray(values.T))
        )

    def test_values_keep_their_array(self):
        values = testing.gaussian([64])
        before = values.copy()
        kernels.randomized_hadamard(values, 1)
        np.testing.assert_array_equal(values, before)

    def test_no_rows_are_fine(self):
        self.assertEqual(kernels.hadamard(np.zeros([0, 8], np.float32)).shape, (0, 8))

    def test_sizes_that_are_no_power_of_two_are_refused(self):
        for shape in (3,), (2, 0), (), (4, 12):
            with self.assertRaisesRegex(ValueError, "values .*power of two.*got shape"):
                kernels.hadamard(np.zeros(shape, np.float32))
            with self.assertRaisesRegex(ValueError, "values .*power of two.*got shape"):
                kernels.randomized_hadamard(np.zeros(shape, np.float32), 1)

    def test_other_types_are_refused(self):
        with self.assertRaisesRegex(TypeError, "values .*got float64"):
            kernels.hadamard(np.zeros(4))
        for seed in 1.5, [1], [1, 2, 3]:
            with self.assertRaisesRegex(ValueError, "seed"):
                kernels.randomized_hadamard(np.zeros(4, np.float32), seed)


if __name__ == "__main__":
    absltest.main()
