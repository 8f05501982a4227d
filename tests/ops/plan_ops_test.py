"""tf_gc.ops: which system each bucket has in a step."""

import time

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from tests.ops.op_testing import OpTestCase
from tf_gc import ops

_NONE, _LATE, _SOON = range(3)  # no compression; 3LC, say; THC, say
_TRAITS = {
    "keeps_residuals": [False, True, True],
    "has_units": [False, True, False],
    "delivers_late": [False, True, False],
}


def _plan(buckets=2, timeline=None, start_step=0, **traits):
    timeline = ops.timeline(8) if timeline is None else timeline
    return ops.plan(timeline, **{**_TRAITS, **traits}, buckets=buckets, start_step=start_step)


def _int64(value):
    return tf.constant(value, tf.int64)


def _follow(plan, step, clean_versions=(0, 0)):
    followed = ops.follow_plan(plan, _int64(step), list(map(_int64, clean_versions)))
    return {
        name: [v.numpy() for v in value] if isinstance(value, list) else value.numpy()
        for name, value in followed._asdict().items()
    }


def _clean(clean_versions, followed):
    """The versions of which nothing waits after a step."""
    return [
        version if choice == _NONE else clean
        for version, choice, clean in zip(
            followed["residuals_versions"], followed["choices"], clean_versions, strict=True
        )
    ]


def _change(
    plan, step, choices, steps=5, restored=0, settled=1, wants_gain=0, measures_links=0, ratio=1.0
):
    decision = [steps, restored, settled, wants_gain, measures_links, ratio, *choices]
    ops.change_plan(plan, _int64(step), tf.constant(decision, tf.float64))


class PlanTest(OpTestCase):
    def test_a_new_plan_has_the_first_system_and_reports_at_once(self):
        followed = _follow(_plan(), 1)
        self.assertEqual(followed["choices"], [_NONE, _NONE])
        self.assertTrue(followed["reports"])
        self.assertEqual(followed["ratio"], 1)

    def test_a_decision_counts_from_the_next_step_on(self):
        plan = _plan()
        _change(plan, 3, [_LATE, _SOON], steps=2, wants_gain=1, ratio=0.25)
        for step, is_due in (4, False), (5, True), (6, True), (2, True):
            with self.subTest(step=step):
                followed = _follow(plan, step)
                self.assertEqual(followed["choices"], [_LATE, _SOON])
                self.assertEqual(followed["has_units"], [True, False])
                self.assertEqual(followed["ratio"], 0.25)
                self.assertEqual(followed["reports"], is_due)
                self.assertEqual(followed["wants_gain"], is_due)
        np.testing.assert_array_equal(ops.read_plan(plan).choices, [_LATE, _SOON])

    def test_second_moments_are_as_old_as_the_last_step_that_used_them(self):
        """Steps of other plans, of which this one does not know, make them no older."""
        # Where something has waited, the optimizer is given them in the next exact step, too.
        for squares, expected in (
            (False, [1, 1, 1, 2, 3, 1, 2, 1]),
            (True, [1, 1, 1, 1, 2, 1, 1, 1]),
        ):
            plan = _plan(squares=squares)
            ages, clean = [], [0, 0]
            for step, choices, settled in (
                (0, [_LATE, _NONE], 1),  # not known
                (1, [_NONE, _LATE], 1),
                (2, [_NONE, _NONE], 1),
                (3, [_NONE, _NONE], 1),
                (7, [_LATE, _NONE], 1),
                (9, [_SOON, _NONE], 0),  # the optimizer is given them
                (14, [_SOON, _LATE], 1),
                (3, [_LATE, _NONE], 1),  # restored
            ):
                _change(plan, step, choices, settled=settled)
                followed = _follow(plan, step, clean)
                ages.append(followed["second_moments_age"])
                clean = _clean(clean, followed)
            self.assertEqual(ages, expected)

    def test_links_are_measured_in_one_of_16_steps_and_after_each_report_where_it_is_wanted(self):
        plan = _plan()
        for wanted, expected in (0, [16, 32, 48, 64]), (1, [8, 33, 61]):
            measured = []
            for step in (*range(7, 60), *range(61, 65)):
                if _follow(plan, step)["measures_links"]:
                    measured.append(step)
                if step in (7, 32, 59):  # the plan has no step 60, which is another optimizer's
                    _change(plan, step, [_NONE, _NONE], measures_links=wanted)
            self.assertEqual(measured, expected)

    def test_before_the_start_step_nothing_is_due_and_no_time_is_known(self):
        plan = _plan(start_step=3)
        before = time.time()
        due = [_follow(plan, step)["reports"] for step in range(5)]
        self.assertEqual(due, [False, False, False, True, True])
        times = ops.read_plan(plan).times.numpy()
        np.testing.assert_array_equal(times[[0, 1, 2, 5, 6, 7]], 0)
        self.assertBetween(times[3], before - 1, times[4])

    def test_second_moments_are_shared_as_long_as_values_come_late(self):
        plan = _plan(buckets=1)
        shared, fresh, all_delivered, clean = [], [], [], [0]
        for choice, settled in [
            (_NONE, 1),  # nothing has waited
            (_LATE, 1),
            (_NONE, 1),  # delivers what has waited
            (_NONE, 1),
            (_SOON, 1),
            (_NONE, 0),  # tried
        ]:
            _change(plan, 0, [choice], settled=settled)
            followed = _follow(plan, 1, clean)
            shared += followed["shares_second_moment"]
            fresh += followed["has_fresh_units"]
            all_delivered += followed["delivers_all"]
            clean = _clean(clean, followed)
        self.assertEqual(shared, [False, True, True, False, False, True])
        self.assertEqual(all_delivered, [True, False, True, False, False, True])
        self.assertEqual(fresh, [True, False, True, True, True, True])

    def test_second_moments_are_shared_where_others_have_left_something(self):
        timeline = ops.timeline(8)
        plan, other = (_plan(buckets=1, timeline=timeline) for _ in range(2))
        _change(plan, 0, [_NONE])
        _change(other, 0, [_LATE])
        clean = _follow(plan, 1, [0])["residuals_versions"]
        _change(plan, 1, [_NONE], restored=1)
        # The second one is as the first where this was not finite.
        shared = [_follow(plan, s, clean)["shares_second_moment"] for s in (2, 3)]
        self.assertEqual(shared, [[True], [True]])
        clean = _follow(plan, 4, clean)["residuals_versions"]
        self.assertEqual(_follow(plan, 5, clean)["shares_second_moment"], [False])
        _follow(other, 6, [0])
        self.assertEqual(_follow(plan, 7, clean)["shares_second_moment"], [True])

    def test_one_system_to_choose_from_has_units_as_without_a_plan(self):
        plan = _plan(buckets=1, keeps_residuals=[True], has_units=[True], delivers_late=[False])
        self.assertEqual(_follow(plan, 0, [0])["has_fresh_units"], [False])

    def test_residuals_have_another_version_after_what_may_have_written_them(self):
        timeline = ops.timeline(8)
        plan, other = _plan(timeline=timeline), _plan(timeline=timeline)
        _follow(plan, 0)
        _change(plan, 0, [_NONE, _NONE])
        first = _follow(plan, 1)["residuals_versions"]
        self.assertEqual(_follow(plan, 2)["residuals_versions"], first)
        self.assertNotIn(0, first)
        _change(plan, 2, [_NONE, _SOON])
        self.assertEqual(_follow(plan, 3)["residuals_versions"], first)
        a, b = _follow(plan, 4)["residuals_versions"]  # the second may have kept something
        self.assertEqual(a, first[0])
        self.assertNotEqual(b, first[1])
        _change(plan, 4, [_NONE, _NONE], restored=1)
        restored = _follow(plan, 5)["residuals_versions"]
        self.assertTrue(np.all(np.not_equal(restored, [a, b])))
        _follow(other, 6)  # without compression
        np.testing.assert_array_equal(_follow(plan, 6)["residuals_versions"], restored)
        _change(other, 6, [_NONE, _SOON])
        _follow(other, 6)
        after = _follow(plan, 7)["residuals_versions"]
        self.assertTrue(np.all(np.not_equal(after, restored)))

    def test_a_timeline_knows_the_steps_of_all_plans(self):
        timeline = ops.timeline(4)
        plan, other = _plan(timeline=timeline), _plan(timeline=timeline)
        for which, step in (plan, 4), (other, 5), (plan, 6):
            _follow(which, step)
        read = ops.read_plan(plan)
        self.assertEqual((read.times.numpy() > 0).tolist(), [True, False, True, False])
        self.assertEqual((read.optimizer_times.numpy() > 0).tolist(), [True, True, True, False])

    def test_what_does_not_fit_is_refused(self):
        plan = _plan()
        for choices, message in [
            ([0], "a choice for each of 2 buckets, got 1"),
            ([0, 3], "choices must be in 0 ... 2, got 3"),
            ([-1, 0], "choices must be in 0 ... 2, got -1"),
        ]:
            self.assert_invalid(message, _change, plan, 0, choices)
        few = tf.zeros([4], tf.float64)
        self.assert_invalid("at least 6 values, got 4", ops.change_plan, plan, _int64(0), few)
        self.assert_invalid("buckets of the plan, 2, got 3", _follow, plan, 0, [0] * 3)
        self.assert_invalid("one value for each system", lambda: _plan(has_units=[True]))

    def test_it_is_followed_in_a_graph_without_another_trace(self):
        plan = _plan()

        @tf.function
        def step(number):
            return ops.follow_plan(plan, number, [_int64(0)] * 2).choices

        for number, choices in enumerate([[0, 1], [2, 0]]):
            _change(plan, number, choices)
            np.testing.assert_array_equal(step(_int64(number)), choices)
        self.assertEqual(step.experimental_get_tracing_count(), 1)


if __name__ == "__main__":
    absltest.main()
