"""tf_gc.kernels: second moments of rows and columns, on every instruction set."""

import numpy as np
from absl.testing import absltest, parameterized

from tests import second_moment_reference as reference
from tests import testing
from tests.kernels.numpy_testing import InstructionSetTestCase
from tf_gc import kernels


class SecondMomentTest(InstructionSetTestCase):
    @parameterized.parameters(
        (1, 1), (1, 17), (3, 5), (64, 16), (65, 1024), (63, 1025), (130, 2500), (2000, 3)
    )
    def test_mean_squares_are_the_references_on_every_instruction_set(self, rows, columns):
        values = testing.gradient((rows, columns), seed=rows)
        [statistics] = self.assert_instruction_sets_agree(
            lambda: [kernels.mean_squares(values, rows)]
        )
        np.testing.assert_array_equal(statistics, reference.mean_squares(values, rows))
        exact = np.square(values, dtype=np.float64)
        np.testing.assert_allclose(statistics[:rows], exact.mean(axis=1), rtol=1e-5)
        np.testing.assert_allclose(statistics[rows:], exact.mean(axis=0), rtol=1e-5)

    def test_a_bad_value_is_in_its_row_and_its_column(self):
        values = testing.gaussian((40, 30))
        values[3, 29] = np.nan
        statistics = kernels.mean_squares(values, 40)
        self.assertEqual(np.flatnonzero(~np.isfinite(statistics)).tolist(), [3, 40 + 29])

    def test_units_are_the_references(self):
        slot = np.square(testing.gradient(70))
        slot[[3, 50]] = 0
        units = kernels.second_moment_units(slot, 30)
        np.testing.assert_array_equal(units, reference.units(slot, 30))
        self.assertGreater(units.min(), 0)
        # An average row has the unit 1, and the columns' are roots of mean squares.
        np.testing.assert_array_equal(
            kernels.second_moment_units(np.full(70, 4, np.float32), 30), [1] * 30 + [2] * 40
        )

    def test_units_of_a_new_slot_are_ones(self):
        units = kernels.second_moment_units(np.zeros(70, np.float32), 30)
        np.testing.assert_array_equal(units, np.ones(70))

    def test_bad_arguments_are_refused(self):
        with self.assertRaisesRegex(ValueError, "rows must divide .* 12, got 5"):
            kernels.mean_squares(np.zeros(12, np.float32), 5)
        with self.assertRaisesRegex(ValueError, "rows must divide"):
            kernels.mean_squares(np.zeros(0, np.float32), 1)
        with self.assertRaisesRegex(ValueError, "rows must be in 1 ... .*, 11, got 12"):
            kernels.second_moment_units(np.zeros(12, np.float32), 12)
        for bad in (-1.0, np.nan, np.inf):
            statistics = np.ones(12, np.float32)
            statistics[7] = bad
            with self.assertRaisesRegex(ValueError, "finite and at least 0, got .* at index 7"):
                kernels.second_moment_units(statistics, 5)
        with self.assertRaisesRegex(TypeError, "float64"):
            kernels.mean_squares(np.zeros(12), 3)


if __name__ == "__main__":
    absltest.main()
