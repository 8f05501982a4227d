"""tf_gc.Auto on real workers."""

import importlib.util
import itertools
import tempfile
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

import tf_gc
from tests import auto_programs as programs
from tests import second_moment_programs
from tests import second_moment_reference as reference
from tests.cases import some_of
from tests.clusters import shared_cluster
from tf_gc.adaptive.run_record import read_run
from tf_gc.compressors.auto import AnyRatio
from tf_gc.testing.cluster import Cluster

_ALL = tf_gc.Auto(ratios=(0.1, 0.01))
# Its systems: uncompressed, THC, 3LC, AR-Topk on a ring, on a tree, and with a sharded server.
_SCRIPT = [
    ([system], ratio)
    for system, ratio in (
        (2, None),
        (0, None),
        (1, None),
        (3, 0.1),
        (0, None),
        (4, 0.01),
        (2, None),
        (5, 0.1),
    )
]


class RootTest(absltest.TestCase):
    def test_buckets_of_a_step_are_selected_by_different_workers(self):
        roots = []
        for place in range(4):
            exchange = mock.Mock(workers=4, choice=mock.Mock(place=place))
            exchange.take_turn.return_value = 6
            roots.append(AnyRatio(topology="ring").root(exchange))
        self.assertEqual(roots, [2, 3, 0, 1])


class StepsTest(parameterized.TestCase):
    @some_of(("float32", 1e-4), ("float16", 0.3))
    def test_nothing_is_lost_between_systems_and_all_deliver_the_same(self, dtype, tolerance):
        workers = shared_cluster(3).run(programs.reduce_steps, _ALL, 40, _SCRIPT, 0, dtype)
        gradients = shared_cluster(3).run(programs.gradient_sums, 40)
        self._check_agreement(workers)
        for variable in range(2):
            given = sum(worker[variable] for worker in gradients)
            waiting = sum(worker[1][variable].astype(np.float64) for worker in workers)
            arrived = workers[0][0][variable]
            np.testing.assert_allclose(arrived + waiting, given, atol=tolerance)
        choices = workers[0][2]
        self.assertLen(set(choices), 6)

    def test_buckets_have_choices_of_their_own(self):
        script = [([0, 2], None), ([2, 1], None), ([1, 0], None), ([3, 4], 0.1)]
        workers = shared_cluster(2).run(programs.reduce_steps, _ALL, 24, script, 1 << 14)
        self._check_agreement(workers)
        self.assertLen(set(workers[0][2]), 4)

    @some_of(1, 0)
    def test_a_worker_that_measures_something_else_does_not_choose_something_else(self, liar):
        for network in ((1e-6, 1e12), (10.0, 1e3)):
            lie = (liar, *network)
            arguments = (_ALL, 30, None, 0, "float32", lie)
            self._check_agreement(shared_cluster(2).run(programs.reduce_steps, *arguments))

    def test_uncompressed_steps_leave_no_residual(self):
        script = [([2], None)] * 3 + [([0], None)] * 100
        for worker in shared_cluster(2).run(programs.reduce_steps, _ALL, 8, script):
            self.assertEqual({worker[2][0], worker[2][-1]}, {(2,), (0,)})
            for residual in worker[1]:
                self.assertFalse(residual.any())

    def test_what_steps_with_other_variables_have_left_is_delivered(self):
        compression = tf_gc.Auto(systems=(None, tf_gc.ThreeLC()))
        lists = [False] * 3 + [True] * 4 + [False] * 3
        workers = shared_cluster(2).run(
            programs.reduce_with_and_without_the_last, compression, lists, (0, 1)
        )
        given = sum(of_worker for _, of_worker, _, _ in workers)
        for delivered, _, residual, _ in workers:
            np.testing.assert_allclose(delivered, given, atol=1e-4)
            self.assertFalse(residual.any())

    def test_steps_with_other_variables_in_turn_are_measured(self):
        workers = shared_cluster(2).run(
            programs.reduce_with_and_without_the_last, _ALL, [False, True] * 60, None
        )
        *_, measured = workers[0]
        self.assertLen(measured, 2)
        self.assertGreater(min(measured), 6)

    def test_restored_residuals_are_delivered_where_nothing_is_compressed(self):
        arguments = (_ALL, 12, [([0], None)], 0, "float32", None, 6)
        workers = shared_cluster(2).run(programs.reduce_steps, *arguments)
        gradients = shared_cluster(2).run(programs.gradient_sums, 12)
        for variable in range(2):
            given = sum(worker[variable] for worker in gradients)
            # Two ones for each value; the step counter is shared, and is no residual.
            np.testing.assert_allclose(workers[0][0][variable] - given, 2, atol=1e-4)
            self.assertFalse(workers[0][1][variable].any())

    def test_a_policy_may_have_several(self):
        policy = tf_gc.Policy(
            default=tf_gc.Auto(systems=(tf_gc.THC(),)),
            rules={"a": tf_gc.Auto(systems=(tf_gc.ThreeLC(1.0),))},
        )
        workers = shared_cluster(2).run(programs.reduce_steps, policy, 4)
        self._check_agreement(workers)
        bits = {v["name"]: v["bits_per_value"] for v in workers[0][-1]["variables"]}
        self.assertLess(bits["a"], 2)
        self.assertGreater(bits["b"], 5)

    def test_several_know_the_same_links(self):
        policy = tf_gc.Policy(default=_ALL, rules={"a": tf_gc.Auto(systems=(None, tf_gc.THC()))})
        known, _ = shared_cluster(2).run(programs.bandwidths_of_several, policy, 1e6)
        self.assertLen(known, 2)
        np.testing.assert_allclose(known, 1e6, rtol=0.01)

    def test_before_the_start_step_sums_are_exact(self):
        auto = tf_gc.Auto(systems=(tf_gc.ThreeLC(),), start_step=4)
        for worker in shared_cluster(2).run(programs.reduce_steps, auto, 4):
            gradients = shared_cluster(2).run(programs.gradient_sums, 4)
            np.testing.assert_allclose(worker[0][0], sum(g[0] for g in gradients), atol=1e-5)

    def test_steps_before_the_start_step_are_no_measurement(self):
        with tempfile.TemporaryDirectory() as directory:
            auto = tf_gc.Auto(start_step=20, record=f"{directory}/run.json")
            shared_cluster(2).run(programs.reduce_steps, auto, 24)
            first = read_run(auto.record).points[0]
        self.assertEqual(first.step, 20)
        self.assertIsNone(first.step_seconds)

    @some_of(1, 0)
    def test_a_worker_may_not_know_its_bandwidth_at_first(self, rank):
        workers = shared_cluster(2).run(programs.reduce_after_a_short_probe, _ALL, rank)
        self._check_agreement(workers)

    @parameterized.parameters(
        (tf_gc.Auto(systems=(None,), ratios=(0.1, 0.01)), ["a"]),
        # The means of all squares travel with the last bucket.
        (tf_gc.Auto(systems=(None, tf_gc.THC(), tf_gc.ThreeLC())), ["a", "b"]),
    )
    def test_no_bucket_but_the_last_waits_for_the_gradients_of_others(self, auto, last):
        [waited, _] = shared_cluster(2).run(programs.gradients_waited_for, auto)
        self.assertCountEqual(waited, [last, ["b"]])

    def test_gains_are_those_of_gradients_and_residuals(self):
        for measured, of_steps in shared_cluster(2).run(programs.gains_of_steps, (0.1, 0.01), 12):
            distances = [np.abs(measured - expected).max() for expected in of_steps]
            self.assertLess(min(distances), 1e-6)

    def test_gradients_without_a_finite_value_say_nothing_of_gains(self):
        cluster = shared_cluster(2)
        for gains in cluster.run(programs.gains_after_an_overflow, (0.1, 0.01), False):
            self.assertTrue(np.isnan(gains).all())
        for gains in cluster.run(programs.gains_after_an_overflow, (0.1, 0.01), True):
            self.assertFalse(np.isnan(gains).any())

    def test_what_has_waited_is_not_squared(self):
        script = [([2], None)] * 6 + [([0], None)] * 100
        auto = tf_gc.Auto(systems=(None, tf_gc.THC(), tf_gc.ThreeLC()))
        moments = shared_cluster(2).run(programs.second_moments, auto, 12, script, True)[0][0]
        means = [np.mean(of_step[0]) for of_step in moments]  # of the kernel
        self.assertLess(max(means), 1.5 * min(means))

    @parameterized.parameters(
        (False, (None, tf_gc.THC(), tf_gc.ThreeLC()), True),  # one of them shares second moments
        (True, (None, tf_gc.THC(), tf_gc.ThreeLC()), False),
        (False, (None, tf_gc.THC(), tf_gc.THC(bits=8)), False),
    )
    def test_second_moments_are_of_one_kind_while_the_choice_is_open(self, settled, systems, same):
        script = [([0], None), ([1], None)] * 6
        auto = tf_gc.Auto(systems=systems)
        moments = shared_cluster(2).run(programs.second_moments, auto, 12, script, settled)[0][0]
        # Shared ones are a product of rows and columns, which squares are not.
        matrices = [of_step[0].reshape(48, 64) for of_step in moments]
        ranks = [np.linalg.matrix_rank(matrix, rtol=1e-4) for matrix in matrices]
        self.assertEqual(set(ranks) == {1}, same)

    @some_of(
        ((tf_gc.compressors.OneBit(), tf_gc.ThreeLC()), True),
        ((tf_gc.EFSignSGD(), tf_gc.ThreeLC()), False),
        ((tf_gc.Marsit(),), True),
        ((tf_gc.THC(), tf_gc.ThreeLC()), False),
        ((tf_gc.compressors.OneBit(),), True),
        ((tf_gc.EFSignSGD(),), False),
        ((tf_gc.Marsit(), tf_gc.ThreeLC()), True),
        ((tf_gc.THC(),), False),
        ((tf_gc.THC(units="gradient"), tf_gc.ThreeLC()), False),
        count=4,
    )
    def test_no_optimizer_divides_by_nothing_in_columns_without_gradients(self, systems, settled):
        arguments = (tf_gc.Auto(systems=systems), 3, [([0], None)], settled, 2)
        [(moments, _, reduced), _] = shared_cluster(2).run(programs.second_moments, *arguments)
        for (of_kernel, *_), (kernel, *_) in zip(moments, reduced, strict=True):
            self.assertGreater(of_kernel[kernel != 0].min(), 0)

    def test_second_moments_that_nothing_shares_are_left_to_the_optimizer(self):
        for systems in (None,), (tf_gc.THC(units="gradient"), tf_gc.THC(bits=8, units="gradient")):
            arguments = (tf_gc.Auto(systems=systems), 2, [([0], None)], False)
            [(moments, *_), _] = shared_cluster(2).run(programs.second_moments, *arguments)
            self.assertEqual(moments, [[], []])

    def test_what_comes_late_is_not_squared_in_columns_without_gradients(self):
        auto = tf_gc.Auto(systems=(None, tf_gc.compressors.OneBit(), tf_gc.ThreeLC()))
        arguments = (auto, 4, [([2], None)], True, 2)
        [(moments, *_), _] = shared_cluster(2).run(programs.second_moments, *arguments)
        for of_kernel, *_ in moments:
            self.assertEqual(of_kernel[..., :2].max(), 0)

    @parameterized.parameters((0, True, 0.9), (1, False, 0.9), (1, True, 0.99))
    def test_units_follow_gradients_soon_where_nothing_waits(self, system, settled, decay):
        script = [([system], None)]
        auto = tf_gc.Auto(systems=(tf_gc.THC(), tf_gc.ThreeLC()))
        _, slots, _ = shared_cluster(2).run(programs.second_moments, auto, 8, script, settled)[0]
        gradients = [second_moment_programs.gradient("kernel", 7, worker) for worker in (0, 1)]
        statistics = reference.statistics(gradients, second_moment_programs.ROWS, 1 / 2)
        (before, _), (after, weight) = ((slot[:-1], slot[-1]) for slot in slots[6:])
        self.assertAlmostEqual(weight, 1 - decay**8, delta=1e-5)
        moved = (after - before) / (statistics - before)
        self.assertAlmostEqual(np.median(moved), (1 - decay) / weight, delta=1e-4)

    def test_units_that_nothing_has_used_for_long_soon_follow_gradients_again(self):
        script = [([1], None)] * 4 + [([0], None)] * 60 + [([1], None)] * 100
        auto = tf_gc.Auto(systems=(None, tf_gc.ThreeLC()))
        _, slots, _ = shared_cluster(2).run(programs.second_moments, auto, 72, script, True)[0]
        weights = [float(slot[-1]) for slot in slots]
        updates = [i for i in range(1, len(weights)) if weights[i] != weights[i - 1]]
        [(last, first)] = [(i, j) for i, j in itertools.pairwise(updates) if j > i + 1]
        age = first - last
        self.assertGreater(age, 50)
        self.assertAlmostEqual(weights[first], 0.99**age * weights[last] + 0.01, delta=1e-5)

    def test_units_know_of_no_steps_in_which_their_variables_have_no_gradient(self):
        """As those of two models that are trained in turn."""
        slots = []
        for compression in tf_gc.Auto(systems=(tf_gc.ThreeLC(),)), tf_gc.ThreeLC():
            results, _ = shared_cluster(2).run(
                second_moment_programs.steps_with_second_moments,
                compression,
                10,
                names=("kernel", "other"),
                without_first=(1, 3, 4, 5, 8),
            )
            slots.append(results["slots"])
        np.testing.assert_array_equal(*slots)
        self.assertAlmostEqual(slots[0][-1][-1], 1 - 0.99**5, delta=1e-5)

    def test_units_of_a_system_that_is_named_are_none_of_its_business(self):
        auto = tf_gc.Auto(systems=(tf_gc.THC(), tf_gc.ThreeLC()))
        policy = tf_gc.Policy(default=auto, rules={"kernel": tf_gc.ThreeLC()}, min_elements=0)
        arguments = (policy, 8, [([0], None)], True)
        _, slots, _ = shared_cluster(2).run(
            programs.second_moments, *arguments, names=("kernel", "other")
        )[0]
        self.assertAlmostEqual(slots[-1][-1], 1 - 0.99**8, delta=1e-5)

    def test_statistics_are_sent_in_steps_that_use_them(self):
        auto = tf_gc.Auto(systems=(None, tf_gc.ThreeLC()))
        for system, least, most in ((0, 0, 0), (1, 0.1, 1)):
            script = [([system], None)]
            traffic = shared_cluster(2).run(programs.reduce_steps, auto, 6, script)[0][-1]
            sent = traffic["second_moment_bytes_sent"] / traffic["values_sent"]
            self.assertBetween(8 * sent, least, most)

    def test_one_system_is_that_system(self):
        auto = tf_gc.Auto(systems=(tf_gc.THC(),))
        adaptive = shared_cluster(2).run(programs.reduce_steps, auto, 4)
        self.assertLess(adaptive[0][-1]["bits_per_value"], 7)

    def _check_agreement(self, workers):
        for worker in workers[1:]:
            self.assertEqual(worker[2], workers[0][2])  # choices
            self.assertEqual(worker[3], workers[0][3])  # what was delivered
        for worker in workers:
            self.assertEqual(worker[4], 1)  # traces


class AgreementTest(absltest.TestCase):
    def test_workers_that_have_other_systems_to_choose_from_are_told(self):
        with Cluster(2) as cluster:
            outcomes = cluster.outcomes(programs.reduce_without_pymoo, 1)
        for outcome in outcomes:
            self.assertRegex(str(outcome), "the system to choose from is .*AR-Topk on a ring")

    def test_all_workers_are_told_why_worker_0_cannot_choose(self):
        cannot = programs.reduce_where_worker_0_cannot_choose
        with tempfile.TemporaryDirectory() as directory, Cluster(2) as cluster:
            for path, has_broken_pymoo, why in (
                (f"{directory}/missing/run.json", False, "No such file.*missing/run.json"),
                (f"{directory}/run.json", True, "no numbers in pymoo"),
            ):
                own, others = cluster.outcomes(cannot, path, has_broken_pymoo)
                self.assertRegex(str(own), why)
                self.assertRegex(str(others), f"worker 0 .*{why}")

    def test_worker_0_alone_may_keep_a_record(self):
        with tempfile.TemporaryDirectory() as directory:
            path = f"{directory}/run.json"
            first, second = shared_cluster(2).run(programs.reduce_with_a_record_on_worker_0, path)
            self.assertEqual(first, second)
            self.assertNotEmpty(read_run(path).candidates)


class DeterminismTest(absltest.TestCase):
    def test_choices_by_time_are_refused_where_every_run_is_to_be_the_same(self):
        with Cluster(2) as cluster:
            outcomes = cluster.outcomes(programs.reduce_deterministically, "auto")
        for outcome in outcomes:
            self.assertRegex(str(outcome), "tf_gc.Auto chooses by measured times")


class TrainingTest(parameterized.TestCase):
    @some_of(("adam", 1, True), ("sgd", 4, False), ("sgd", 1, True), ("adam", 1, False), count=2)
    def test_fits(self, optimizer, *mode):
        workers = shared_cluster(2).run(programs.train, "auto", optimizer, 40, *mode)
        self.assertEqual(workers[0][0], workers[1][0])
        first, last = workers[0][1]
        self.assertLess(last, first)

    def test_uncompressed_is_keras_own_adam(self):
        exact = tf_gc.Auto(systems=(None,))
        adaptive = shared_cluster(2).run(programs.train, exact, "adam", 12)
        plain = shared_cluster(2).run(programs.train, tf_gc.compressors.Uncompressed(), "adam", 12)
        np.testing.assert_allclose(adaptive[0][1], plain[0][1], rtol=1e-5)

    def test_adaptations_that_are_made_separately_keep_records_of_their_own(self):
        with tempfile.TemporaryDirectory() as directory:
            path = f"{directory}/run.json"
            auto = tf_gc.Auto(systems=(None, tf_gc.THC()), record=path)
            leaves_out = [True, False] * 10
            shared_cluster(2).run(programs.reduce_with_and_without_the_last, auto, leaves_out, None)
            for name, label in ("run.json", "first"), ("run-1.json", "last and 1 more"):
                with self.subTest(name):
                    run = read_run(f"{directory}/{name}")
                    self.assertEqual([bucket.label for bucket in run.buckets], [label])
                    self.assertNotEmpty(run.points)

    def test_keeps_a_record(self):
        with tempfile.TemporaryDirectory() as directory:
            path = f"{directory}/run.json"
            shared_cluster(2).run(programs.train, tf_gc.Auto(record=path), "sgd", 60)
            run = read_run(path)
        self.assertEqual(run.workers, 2)
        self.assertEqual(run.candidates[0], "uncompressed")
        self.assertNotEmpty(run.points)
        self.assertIsNotNone(run.points[0].why)


class ArgumentsTest(parameterized.TestCase):
    @parameterized.parameters(
        ({"systems": ()}, "systems"),
        ({"systems": (tf_gc.Auto(),)}, "systems"),
        ({"systems": (tf_gc.ThreeLC(start_step=5),)}, "systems"),
        ({"systems": (tf_gc.compressors.OneBitAdam(),)}, "systems"),
        ({"systems": ("3LC",)}, "systems"),
        ({"ratios": (0.1, 1.5)}, "ratios"),
        ({"ratios": (0.1, 0.0)}, "ratios"),
        ({"ratios": (0.1, 0.1)}, "ratios"),
        ({"ratios": (0.01, 0.1)}, "ratios must be in descending order"),
        ({"record": True}, "record must be a path or None, got True"),
    )
    def test_what_cannot_be_is_refused_by_name(self, arguments, name):
        with self.assertRaisesRegex(ValueError, name):
            tf_gc.Auto(**arguments)

    def test_lists_are_taken_as_tuples(self):
        auto = tf_gc.Auto(systems=[None, tf_gc.THC()], ratios=[0.1, 0.01])
        self.assertEqual(auto, tf_gc.Auto(systems=(None, tf_gc.THC()), ratios=(0.1, 0.01)))
        self.assertEqual(hash(auto), hash(auto))

    @parameterized.parameters(
        ({"systems": tf_gc.ThreeLC()}, "systems must be a tuple or None, got ThreeLC"),
        ({"ratios": 0.1}, "ratios must be a tuple or None, got 0.1"),
        ({"systems": (tf_gc.ScaleCom(100, beta=0.1),)}, "beta, which must be 1.0, got ScaleCom"),
    )
    def test_what_cannot_be_chosen_from_is_named(self, arguments, message):
        with self.assertRaisesRegex(ValueError, message):
            tf_gc.Auto(**arguments)

    def test_without_pymoo_ar_top_k_is_left_out(self):
        self.assertLen(tf_gc.Auto().candidates(squares=False), 6)
        with mock.patch.object(importlib.util, "find_spec", return_value=None):
            self.assertLen(tf_gc.Auto().candidates(squares=False), 3)

    def test_ratios_without_pymoo_say_what_to_install(self):
        with (
            mock.patch.object(importlib.util, "find_spec", return_value=None),
            self.assertRaisesRegex(ValueError, r"ratios.* pip install 'tf-gc\[adaptive\]'"),
        ):
            tf_gc.Auto(ratios=(0.1,))

    def test_text(self):
        self.assertEqual(tf_gc.compressors.from_string("auto"), tf_gc.Auto())
        self.assertEqual(str(tf_gc.Auto()), "Auto()")


if __name__ == "__main__":
    absltest.main()
