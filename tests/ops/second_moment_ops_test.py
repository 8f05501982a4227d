"""tf_gc.ops: second moments from those of rows and columns."""

import functools

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from tf_gc.ops.library import library
from tf_gc.strategy import second_moments

from tests import second_moment_reference as reference
from tests import testing
from tests.ops.op_testing import MODES, OpTestCase, run_on_threads
from tf_gc import ops

_NAN = float("nan")


def _slots(*values):
    return [tf.Variable(tf.constant(v, tf.float32)) for v in values]


def _handles(slots):
    return [slot.handle for slot in slots]


class MeanSquaresTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_gradients_of_all_types_have_one_vector(self, compile_function):
        gradients = [
            tf.constant(testing.gaussian((3, 4, 5))),
            tf.constant(testing.gaussian((70, 20), seed=1), tf.float16),
            tf.constant(testing.gaussian((8, 9), seed=2), tf.bfloat16),
        ]
        mean_squares = compile_function(lambda *g: ops.mean_squares(list(g), [12, 70, 8]))
        expected = [
            reference.statistics([tf.cast(g, tf.float32).numpy()], rows)
            for g, rows in zip(gradients, [12, 70, 8], strict=True)
        ]
        statistics = mean_squares(*gradients)
        self.assertEqual(statistics.dtype, tf.bfloat16)
        np.testing.assert_array_equal(tf.cast(statistics, tf.float32), np.concatenate(expected))

    def test_large_matrices_use_all_threads_and_give_the_same(self):
        values = testing.gaussian((1500, 2300))
        [statistics] = self.assert_same_on_any_threads(
            lambda v: ops.mean_squares([v], [1500]), values
        )
        np.testing.assert_array_equal(
            statistics.astype(np.float32), reference.statistics([values], 1500)
        )

    def test_rows_that_do_not_divide_are_refused(self):
        self.assert_invalid("rows", ops.mean_squares, [tf.zeros([12])], [5])
        self.assert_invalid("rows", ops.mean_squares, [tf.zeros([0])], [1])
        self.assert_invalid("rows must be 1, got 2", ops.mean_squares, [tf.zeros([12])], [3, 4])
        self.assert_invalid("at least 1, got 0", ops.mean_squares, [tf.zeros([12])], [0])


class SlotTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_slots_follow_the_references(self, compile_function):
        slots = _slots(np.zeros(8), np.zeros(6))

        @compile_function
        def update(statistics):
            ops.update_second_moments(statistics, _handles(slots), scale=0.5, decay=0.9)

        expected = [slot.numpy() for slot in slots]
        for step in range(3):
            sums = tf.cast(np.square(testing.gaussian(12, seed=step)), tf.bfloat16)
            update(sums)
            means = np.float32(0.5) * tf.cast(sums, tf.float32).numpy()
            expected = [
                reference.update(slot, part, 0.9)
                for slot, part in zip(expected, np.split(means, [7]), strict=True)
            ]
        for slot, values in zip(slots, expected, strict=True):
            np.testing.assert_array_equal(slot, values)

    def test_a_slot_stays_where_a_statistic_is_not_finite(self):
        slots = _slots([1, 2, 3, 1], [4, 5, 1])
        statistics = tf.constant([9, _NAN, 9, 6, 7], tf.bfloat16)
        ops.update_second_moments(statistics, _handles(slots), 1.0, 0.5)
        np.testing.assert_array_equal(slots[0], [1, 2, 3, 1])
        np.testing.assert_array_equal(slots[1], [5, 6, 1])

    @parameterized.named_parameters(*MODES)
    def test_what_is_not_wanted_is_not_computed_and_changes_nothing(self, compile_function):
        [slot] = _slots([1, 2, 3, 4, 1])

        @compile_function
        def update(wanted):
            statistics = ops.mean_squares([tf.ones([2, 2])], [2], wanted)
            ops.update_second_moments(statistics, [slot.handle], 1.0, 0.5)
            return statistics

        self.assertEmpty(update(tf.constant(False)).numpy())
        np.testing.assert_array_equal(slot, [1, 2, 3, 4, 1])
        self.assertLen(update(tf.constant(True)).numpy(), 4)
        np.testing.assert_array_equal(slot, [1, 1.5, 2, 2.5, 1])

    def test_what_is_old_loses_weight(self):
        slots = _slots([4, 8, 0, 1])
        statistics = tf.constant([0, 16, 0], tf.bfloat16)
        ops.update_second_moments(statistics, _handles(slots), 1.0, 0.5, age=3)
        np.testing.assert_allclose(slots[0], [0.8, 14.4, 0, 0.625], rtol=1e-6)

    def test_who_has_read_a_slot_keeps_what_it_has_read(self):
        [slot] = _slots([1, 2, 3, 1])
        before = slot.read_value()
        ops.update_second_moments(tf.constant([3, 3, 3], tf.bfloat16), [slot.handle], 1.0, 0.5)
        np.testing.assert_array_equal(before, [1, 2, 3, 1])
        np.testing.assert_array_equal(slot, [2, 2.5, 3, 1])

    def test_units_are_those_before_an_update_that_comes_later(self):
        [slot] = _slots(np.square(testing.gaussian(10)))
        before = slot.numpy()[:-1]

        @tf.function
        def step():
            [units] = ops.second_moment_units([slot.handle], [4])
            ops.update_second_moments(tf.ones([9], tf.bfloat16), [slot.handle], 1.0, 0.0)
            [updated] = ops.second_moment_units([slot.handle], [4])
            return units, updated

        units, updated = step()
        np.testing.assert_array_equal(units, reference.units(before, 4))
        np.testing.assert_array_equal(updated, np.ones(9))

    def test_statistics_and_slots_of_other_sizes_are_refused(self):
        handles = _handles(_slots([1, 2, 3, 1]))
        statistics = tf.zeros([2], tf.bfloat16)
        self.assert_invalid("3 values", ops.update_second_moments, statistics, handles, 1.0, 0.5)
        statistics = tf.zeros([3], tf.bfloat16)
        self.assert_invalid("decay", ops.update_second_moments, statistics, handles, 1.0, 1.5)
        with_age_0 = functools.partial(ops.update_second_moments, age=0)
        self.assert_invalid("age", with_age_0, statistics, handles, 1.0, 0.5)
        few = "more statistics than the 3 rows, got 3"
        self.assert_invalid(few, ops.second_moment_units, handles, [3])
        matrix = [tf.Variable(tf.zeros([3, 3])).handle]
        self.assert_invalid("one dimension", ops.second_moment_units, matrix, [1])


class SecondMomentsTest(OpTestCase):
    def test_another_number_of_shapes_is_refused_when_traced(self):
        @tf.function
        def second_moments_of_one():
            statistics = tf.zeros([6], tf.bfloat16)
            return library.tf_gc_second_moments(
                statistics, 1.0, N=1, rows=[1, 1], shapes=[[2], [2]]
            )

        with self.assertRaisesRegex(ValueError, "shapes must be one per second moment"):
            second_moments_of_one()

    @parameterized.named_parameters(*MODES)
    def test_they_are_the_references(self, compile_function):
        first, second = np.square(testing.gaussian(7)), np.square(testing.gaussian(9, seed=1))
        statistics = tf.cast(np.concatenate([first, second]), tf.bfloat16)
        second_moments = compile_function(
            lambda s: ops.second_moments(s, 3.0, [3, 4], [[3, 4], [2, 2, 5]])
        )
        of_first, of_second = second_moments(statistics)
        values = tf.cast(statistics, tf.float32).numpy()
        np.testing.assert_array_equal(of_first, reference.second_moments(values[:7], 3, 3.0))
        expected = reference.second_moments(values[7:], 4, 3.0).reshape(2, 2, 5)
        np.testing.assert_array_equal(of_second, expected)

    def test_those_of_a_product_of_rows_and_columns_are_exact(self):
        rows, columns = np.array([1, 2, 4]), np.array([1, 8])
        squares = np.outer(rows, columns)
        statistics = np.concatenate([squares.mean(axis=1), squares.mean(axis=0)])
        [moments] = ops.second_moments(tf.cast(statistics, tf.bfloat16), 1.0, [3], [[3, 2]])
        np.testing.assert_allclose(moments, squares, rtol=0.01)

    def test_zeros_give_zeros_and_a_bad_statistic_nan_for_its_variable(self):
        statistics = tf.constant([0, 0, 0, 0, 1, _NAN, 1, 1, 1, 1, 1, 1], tf.bfloat16)
        zeros, bad, good = ops.second_moments(statistics, 1.0, [2] * 3, [[2, 2]] * 3)
        np.testing.assert_array_equal(zeros, np.zeros([2, 2]))
        self.assertTrue(np.isnan(bad).all())
        np.testing.assert_array_equal(good, np.ones([2, 2]))

    def test_large_ones_use_all_threads_and_give_the_same(self):
        statistics = np.square(testing.gaussian(3000)).astype(tf.bfloat16.as_numpy_dtype)
        self.assert_same_on_any_threads(
            lambda s: ops.second_moments(s, 1.0, [1000], [[1000, 2000]]), statistics
        )

    def test_other_numbers_of_statistics_are_refused(self):
        statistics = tf.zeros([6], tf.bfloat16)
        self.assert_invalid("7 values", ops.second_moments, statistics, 1.0, [3], [[3, 4]])
        self.assert_invalid("rows must be 1", ops.second_moments, statistics, 1.0, [3, 4], [[3, 4]])


class SpreadUnitsTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_a_variable_without_units_has_ones(self, compile_function):
        units = np.abs(testing.gaussian(7))
        spread = compile_function(
            lambda u: ops.spread_units([tf.zeros([0]), u, tf.zeros([0])], [1, 3, 1], [5, 12, 0])
        )(tf.constant(units))
        np.testing.assert_array_equal(spread[:5], np.ones(5))
        np.testing.assert_array_equal(spread[5:], reference.spread(units, 3))

    def test_other_numbers_of_units_are_refused(self):
        self.assert_invalid("7 values", ops.spread_units, [tf.ones([6])], [3], [12])
        self.assert_invalid("sizes must be 1", ops.spread_units, [tf.ones([6])], [3], [12, 3])
        self.assert_invalid("at least 0, got -3", ops.spread_units, [tf.ones([6])], [3], [-3])


class ScaleTest(OpTestCase):
    """What a gradient that is clipped after its reduction does to its second moment."""

    def test_any_number_of_threads_gives_the_same_bits(self):
        def scaled(gradient):
            second_moments.attach(gradient, tf.ones([]))
            shorter = gradient * 0.001
            second_moments.scale(gradient, shorter)
            return second_moments.of(shorter)

        for seed in range(8):
            gradient = testing.gaussian((2048, 1024), seed)
            one, eight = (run_on_threads(threads, scaled, gradient) for threads in (1, 8))
            np.testing.assert_array_equal(one, eight)


if __name__ == "__main__":
    absltest.main()
