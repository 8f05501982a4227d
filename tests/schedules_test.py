"""tf_gc.schedules: hyper-parameters that change while training."""

import dataclasses
import pickle

import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import given
from hypothesis import strategies as st

import tf_gc
from tests import testing
from tf_gc import schedules
from tf_gc.compressors import Compressor, sparse

testing.set_up_hypothesis(max_examples=100)


def _at(hyperparameter, step):
    return float(schedules.at_step(hyperparameter, tf.constant(step, tf.int64)))


class LinearTest(parameterized.TestCase):
    @parameterized.parameters((0, 1.0), (10, 1.0), (15, 1.2), (20, 1.4), (30, 1.8), (31, 1.8))
    def test_it_changes_evenly_between_its_steps_and_not_outside(self, step, expected):
        self.assertAlmostEqual(_at(schedules.Linear(1.0, 1.8, steps=20, start=10), step), expected)

    @given(
        begin=st.floats(-10, 10, width=32),
        end=st.floats(-10, 10, width=32),
        steps=st.integers(1, 1000),
        start=st.integers(0, 1000),
        step=st.integers(0, 10**12),
    )
    def test_it_stays_between_its_ends_and_reaches_them(self, begin, end, steps, start, step):
        schedule = schedules.Linear(begin, end, steps, start)
        low, high = min(begin, end), max(begin, end)
        self.assertBetween(_at(schedule, step), low - 1e-5, high + 1e-5)
        self.assertEqual(_at(schedule, start), begin)
        self.assertAlmostEqual(_at(schedule, start + steps), end, places=5)

    @parameterized.parameters(
        ({"steps": 0}, "steps"),
        ({"steps": 5, "start": -1}, "start"),
        ({"steps": 5, "begin": "1"}, "begin"),
        ({"steps": 5, "end": None}, "end"),
    )
    def test_a_bad_argument_is_refused_by_name(self, arguments, name):
        with self.assertRaisesRegex(ValueError, name):
            schedules.Linear(**{"begin": 1.0, "end": 2.0, **arguments})

    def test_an_adjustable_value_is_a_number(self):
        ratio = schedules.Adjustable(0.1)
        for set_to in ratio.assign, schedules.Adjustable:
            with self.assertRaisesRegex(ValueError, "value must be a number, got '0.1'"):
                set_to("0.1")
        ratio.assign(tf.constant(0.25))
        self.assertEqual(_at(ratio, 0), 0.25)

    def test_it_is_a_value(self):
        schedule = schedules.Linear(1.0, 1.8, steps=20)
        self.assertEqual(pickle.loads(pickle.dumps(schedule)), schedule)
        self.assertEqual(hash(dataclasses.replace(schedule)), hash(schedule))


class AdjustableTest(absltest.TestCase):
    def test_what_is_assigned_is_used_without_a_new_trace(self):
        schedule = schedules.Adjustable(0.5)
        traces = []

        @tf.function
        def value(step):
            traces.append(step)
            return schedules.at_step(schedule, step)

        step = tf.constant(0, tf.int64)
        values = [float(value(step))]
        for assigned in (0.25, 0.125):
            schedule.assign(assigned)
            values.append(float(value(step)))
        self.assertEqual(values, [0.5, 0.25, 0.125])
        self.assertLen(traces, 1)

    def test_what_is_assigned_before_the_first_use_counts(self):
        schedule = schedules.Adjustable(0.5)
        schedule.assign(0.25)
        self.assertEqual(_at(schedule, 0), 0.25)

    def test_its_text_and_its_copies_have_the_current_value(self):
        schedule = schedules.Adjustable(0.5)
        self.assertEqual(_at(schedule, 0), 0.5)
        schedule.assign(0.25)
        self.assertEqual(str(schedule), "Adjustable(0.25)")
        self.assertEqual(_at(pickle.loads(pickle.dumps(schedule)), 0), 0.25)


class AtStepTest(parameterized.TestCase):
    def test_a_number_is_itself_at_every_step(self):
        self.assertEqual(_at(0.25, 0), 0.25)
        self.assertEqual(_at(3, 10**9), 3.0)

    def test_a_keras_schedule_is_a_schedule(self):
        schedule = tf.keras.optimizers.schedules.PiecewiseConstantDecay([500], [0.125, 0.5])
        self.assertEqual(_at(schedule, 500), 0.125)
        self.assertEqual(_at(schedule, 501), 0.5)

    def test_a_function_of_the_step_is_a_schedule(self):
        self.assertEqual(_at(lambda step: tf.where(step < 3, 1, 2), 3), 2.0)

    def test_its_value_is_a_float32_scalar(self):
        value = schedules.at_step(lambda step: step, tf.constant(7, tf.int64))
        self.assertEqual((value.dtype, value.shape.rank), (tf.float32, 0))

    @parameterized.parameters((0.01, 1000, 10), (0.0001, 1000, 1), (1.0, 7, 7), (0.5, 0, 0))
    def test_a_ratio_of_some_values_is_one_of_them_at_least(self, ratio, size, expected):
        self.assertEqual(int(sparse.count(ratio, size, tf.constant(0, tf.int64))), expected)


class CheckTest(parameterized.TestCase):
    @parameterized.parameters(0.0, 1.5, -1, float("nan"), "0.1", None, True)
    def test_a_value_that_is_not_allowed_is_refused_with_name_and_range(self, value):
        with self.assertRaisesRegex(ValueError, r"ratio must be in \(0, 1\], got"):
            tf_gc.TopK(ratio=value)

    def test_a_schedule_that_cannot_be_hashed_is_refused_by_name(self):
        @dataclasses.dataclass
        class Decay:
            begin: float

            def __call__(self, step):
                return self.begin / (1 + tf.cast(step, tf.float32))

        for make in (
            lambda: tf_gc.TopK(ratio=Decay(0.1)),
            lambda: tf_gc.SignSGD(step_size=Decay(0.1)),
        ):
            with self.assertRaisesRegex(ValueError, r"(ratio|step_size) must be hashable.*frozen"):
                make()

    @parameterized.parameters(1e-6, 0.5, 1, 1.0)
    def test_a_value_that_is_allowed_is_kept(self, value):
        self.assertEqual(tf_gc.TopK(ratio=value).ratio, value)

    def test_a_schedule_is_kept_unseen(self):
        schedule = schedules.Linear(0.5, 0.01, steps=100)
        self.assertIs(tf_gc.TopK(ratio=schedule).ratio, schedule)

    @parameterized.parameters(-1, 0.5, "first", True)
    def test_a_start_step_is_a_step(self, value):
        with self.assertRaisesRegex(ValueError, "start_step"):
            tf_gc.ThreeLC(start_step=value)

    def test_all_compressors_say_what_they_are(self):
        self.assertTrue(issubclass(tf_gc.TopK, Compressor))
        self.assertEqual(str(tf_gc.TopK(0.1, start_step=5)), "TopK(start_step=5, ratio=0.1)")


if __name__ == "__main__":
    absltest.main()
