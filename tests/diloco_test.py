"""tf_gc.DiLoCo on clusters of real processes."""

import dataclasses
import functools
import tempfile

import diloco_programs as programs
import keras
import numpy as np
import strategy_programs
import tensorflow as tf
from absl.testing import absltest, parameterized

import tf_gc
from tests.cases import some_of, some_of_product
from tests.clusters import one, shared_cluster
from tf_gc.testing.cluster import Cluster

_LEGACY_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
_AVERAGE = tf_gc.OuterSGD(1.0, 0.0)
_ALL, _REST = slice(None), slice(1, None)  # of the variables
_COMPRESS_ALL = tf_gc.Policy(tf_gc.ThreeLC(), min_elements=0, compress_vectors=True)


class Reference:
    """The paper's algorithm 1, slowly: plain gradient descent inside, exact means outside."""

    def __init__(self, diloco, workers):
        self.diloco, self.workers = diloco, workers
        self.theta = {n: np.zeros(s) for n, s in programs.SHAPES.items()}
        self.momentum = {n: np.zeros(s) for n, s in programs.SHAPES.items()}
        self.copies = [dict(self.theta) for _ in range(workers)]

    def step(self, number):
        is_local = number >= self.diloco.start_step
        number_of_inner = number + 1 - self.diloco.start_step
        for name in self.theta:
            own = [programs.gradient(name, number, worker) for worker in range(self.workers)]
            for worker, copy in enumerate(self.copies):
                gradient = own[worker] if is_local else np.mean(own, axis=0)
                copy[name] = copy[name] - programs.INNER_RATE * gradient
            if not is_local:
                self.theta[name] = self.copies[0][name]
            elif (number_of_inner - self.first_outer_step(name)) % self.diloco.inner_steps == 0:
                self.outer_step(name)

    def first_outer_step(self, name):
        # Of the 4279 values, "kernel" has the first 3072, "bias" 7, "second" the others.
        fragment = {"kernel": 0, "bias": self.diloco.fragments - 1, "second": -1}[name]
        fragment %= self.diloco.fragments
        return self.diloco.inner_steps * (fragment + 1) // self.diloco.fragments

    def outer_step(self, name):
        outer = self.diloco.outer_optimizer
        delta = np.mean([self.theta[name] - copy[name] for copy in self.copies], axis=0)
        self.momentum[name] = outer.momentum * self.momentum[name] + delta
        step = outer.momentum * self.momentum[name] + delta
        self.theta[name] = self.theta[name] - outer.learning_rate * (
            step if outer.nesterov else self.momentum[name]
        )
        for copy in self.copies:
            copy[name] = self.theta[name]


class WithoutClusterTest(absltest.TestCase):
    def test_a_program_without_tf_config_takes_outer_steps(self):
        strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.DiLoCo(2))
        with strategy.scope():
            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
        history = model.fit(np.ones([8, 3]), np.ones([8, 1]), batch_size=2, epochs=2, verbose=0)
        self.assertLess(history.history["loss"][1], history.history["loss"][0])


def assert_close(values, expected, tolerance=1e-5):
    for name in values:
        np.testing.assert_allclose(values[name], expected[name], atol=tolerance, err_msg=name)


def assert_learnt(results, steps, slot="outer_gradient_residual"):
    """Outside it is plain averaging, and what was learnt is in the model or the residuals.

    Those of first steps are of gradients, which the workers' number divides.
    """
    workers = len(results)
    rate = programs.INNER_RATE * workers if slot == "residual" else 1
    for name, moved in one([values for values, _ in results]).items():
        gradients = [programs.gradient(name, s, w) for s in range(steps) for w in range(workers)]
        kept = rate * sum(slots[name, slot] for _, slots in results)
        np.testing.assert_allclose(
            kept - workers * moved, programs.INNER_RATE * sum(gradients), atol=1e-4, err_msg=name
        )


class OuterStepTest(parameterized.TestCase):
    """Loops with reduce_gradients and outer_step."""

    @some_of_product(
        workers=[1, 2, 3],
        diloco=[
            tf_gc.DiLoCo(inner_steps=3),
            tf_gc.DiLoCo(4, tf_gc.OuterSGD(0.5, 0.8, nesterov=False), fragments=2),
            tf_gc.DiLoCo(2, start_step=5),
            tf_gc.DiLoCo(4, fragments=2, start_step=3),
        ],
        reduce_op=["SUM", "MEAN"],
        count=6,
    )
    def test_every_step_is_that_of_the_reference(self, workers, diloco, reduce_op):
        steps = diloco.start_step + 3 * diloco.inner_steps + 1
        results = shared_cluster(workers).run(programs.train, diloco, steps, reduce_op)
        reference = Reference(diloco, workers)
        for step in range(steps):
            reference.step(step)
            for worker, (values, _, _) in enumerate(results):
                assert_close(values[step], reference.copies[worker])

    def test_with_one_inner_step_and_no_momentum_it_is_plain_averaging(self):
        diloco = tf_gc.DiLoCo(inner_steps=1, outer_optimizer=_AVERAGE)
        steps = 4
        values = one([v for v, _, _ in shared_cluster(3).run(programs.train, diloco, steps)])
        for name, value in values[-1].items():
            gradients = [programs.gradient(name, s, w) for s in range(steps) for w in range(3)]
            expected = -programs.INNER_RATE * sum(gradients) / 3
            np.testing.assert_allclose(value, expected, atol=1e-6, err_msg=name)

    @some_of(None, tf_gc.ThreeLC(), tf_gc.THC(), tf_gc.ARTopK(0.1), count=2)
    def test_copies_agree_after_outer_steps_and_only_then(self, compression):
        diloco = tf_gc.DiLoCo(inner_steps=3, compression=compression)
        results = shared_cluster(3).run(programs.train, diloco, 7)
        for step in range(7):
            copies = [programs.fingerprint(values[step].values()) for values, _, _ in results]
            self.assertLen(set(copies), 1 if step in (2, 5) else 3, f"step {step}")

    def test_nothing_is_sent_between_outer_steps(self):
        diloco = tf_gc.DiLoCo(inner_steps=3, compression=tf_gc.ThreeLC())
        for _, sent, _ in shared_cluster(2).run(programs.train, diloco, 7):
            self.assertEqual([s > b for b, s in zip([0, *sent], sent, strict=False)][:7], _DUE)

    def test_fragments_send_the_same_bytes_spread_over_the_period(self):
        def sent(fragments):
            diloco = tf_gc.DiLoCo(inner_steps=4, fragments=fragments)
            return np.array(shared_cluster(2).run(programs.train, diloco, 8)[0][1])

        whole, fragments = sent(1), sent(2)
        np.testing.assert_array_equal(np.flatnonzero(np.diff(whole, prepend=0)), [3, 7])
        np.testing.assert_array_equal(np.flatnonzero(np.diff(fragments, prepend=0)), [1, 3, 5, 7])
        self.assertBetween(fragments[-1] - whole[-1], 0, 512)  # headers

    @parameterized.parameters(tf_gc.ThreeLC(), tf_gc.ThreeLC(1.75), tf_gc.TopK(0.1))
    def test_what_workers_have_learnt_is_in_the_model_or_in_the_residuals(self, compression):
        """With plain averaging theta moves by what is delivered, nothing else."""
        policy = dataclasses.replace(_COMPRESS_ALL, default=compression)
        diloco = tf_gc.DiLoCo(2, _AVERAGE, policy)
        results = shared_cluster(3).run(programs.train, diloco, 6)
        assert_learnt([(values[-1], slots) for values, _, slots in results], steps=6)

    def test_compressed_first_steps_are_those_of_all_workers_and_lose_nothing(self):
        diloco = tf_gc.DiLoCo(2, _AVERAGE, start_step=4, start_compression=_COMPRESS_ALL)
        results = shared_cluster(3).run(programs.train, diloco, 4)
        for step in range(4):
            one([values[step] for values, _, _ in results])
        assert_learnt([(v[-1], slots) for v, _, slots in results], 4, "residual")

    def test_periods_begin_after_compressed_first_steps(self):
        diloco = tf_gc.DiLoCo(3, _AVERAGE, start_step=2, start_compression=tf_gc.ThreeLC())
        results = shared_cluster(2).run(programs.train, diloco, 8)
        for step in range(8):
            copies = {programs.fingerprint(values[step].values()) for values, _, _ in results}
            self.assertLen(copies, 1 if step in (0, 1, 4, 7) else 2, f"step {step}")
        start = one([values[1] for values, _, _ in results])
        end = one([values[4] for values, _, _ in results])
        for name in start:
            gradients = [programs.gradient(name, s, w) for s in (2, 3, 4) for w in range(2)]
            expected = start[name] - programs.INNER_RATE * sum(gradients) / 2
            np.testing.assert_allclose(end[name], expected, atol=1e-5, err_msg=name)

    @parameterized.parameters(1, 2)
    def test_synchronize_ends_the_period(self, fragments):
        diloco = tf_gc.DiLoCo(4, _AVERAGE, fragments=fragments)
        results = shared_cluster(2).run(programs.synchronize, diloco, 3, 4)
        self.assertNotEqual(*[programs.fingerprint(before.values()) for before, *_ in results])
        after = one([after for _, after, _, _ in results])
        for name in after:
            expected = np.mean([before[name] for before, *_ in results], axis=0)
            np.testing.assert_allclose(after[name], expected, atol=1e-6, err_msg=name)
            if fragments == 1:  # the next period has all of its steps
                one([last[name] for *_, last in results])
        for _, _, again, _ in results:
            np.testing.assert_equal(again, after)

    def test_synchronize_before_the_first_period_changes_nothing(self):
        results = shared_cluster(2).run(programs.synchronize, tf_gc.DiLoCo(3, start_step=4), 2, 5)
        reference = Reference(tf_gc.DiLoCo(3, start_step=4), 2)
        for step in range(7):
            reference.step(step)
        for before, after, again, last in results:
            np.testing.assert_equal([after, again], [before, before])
            assert_close(last, reference.theta)

    def test_synchronize_takes_no_other_variables_than_an_optimizers(self):
        results = shared_cluster(2).run(programs.synchronize_others, tf_gc.DiLoCo(4))
        self.assertEqual(results, [None, None])

    def test_synchronize_of_nothing_is_refused(self):
        for error in shared_cluster(2).outcomes(programs.synchronize_nothing, tf_gc.DiLoCo(4)):
            self.assertIsInstance(error, ValueError)
            self.assertIn("variables must be those of an optimizer", str(error))

    @some_of(
        {"steps": 4, "synchronize": False},  # at the end of a period
        {"steps": 3, "synchronize": True},
        {"steps": 3, "synchronize": True, "fragments": 2},
        {"steps": 4, "synchronize": False, "restores": True},
    )
    def test_variables_may_join_between_periods(
        self, steps, synchronize, fragments=1, restores=False
    ):
        diloco = tf_gc.DiLoCo(2, _AVERAGE, fragments=fragments)
        directory = self.create_tempdir().full_path if restores else None
        results = shared_cluster(2).run(
            programs.unfreeze, diloco, steps, synchronize, directory=directory
        )
        gradients = [
            programs.gradient("second", s, w) for s in (steps, steps + 1) for w in range(2)
        ]
        joined = one([values["second"] for values in results])
        np.testing.assert_allclose(joined, -programs.INNER_RATE * sum(gradients) / 2, atol=1e-6)

    @some_of(
        {"steps": 3, "fragments": 1},
        {"steps": 4, "fragments": 2},
        {"steps": 3, "fragments": 1, "trained": slice(1, None)},
        {"steps": 3, "fragments": 1, "restores": True},
        {"steps": 3, "fragments": 1, "trained": slice(1, None), "restores": True},
        count=2,
    )
    def test_variables_that_join_within_a_period_are_refused(
        self, steps, fragments, trained=slice(-1), restores=False
    ):
        diloco = tf_gc.DiLoCo(2, _AVERAGE, fragments=fragments)
        directory = self.create_tempdir().full_path if restores else None
        with Cluster(2) as cluster:
            for error in cluster.outcomes(
                programs.unfreeze, diloco, steps, False, trained, directory
            ):
                self.assertIsInstance(error, tf.errors.InvalidArgumentError)
                self.assertIn("strategy.synchronize", str(error))

    def test_variables_may_join_before_the_others_between_periods(self):
        diloco = tf_gc.DiLoCo(2, _AVERAGE)
        results = shared_cluster(2).run(programs.unfreeze, diloco, 4, False, slice(1, None))
        for name in programs.SHAPES:
            one([values[name] for values in results])

    @some_of(0, 4)
    def test_the_first_variable_may_leave_between_periods(self, start_step):
        diloco = tf_gc.DiLoCo(2, _AVERAGE, start_step=start_step)
        turns = [(_ALL, start_step + 2), (_REST, 4)]
        results = shared_cluster(2).run(programs.train_in_turns, diloco, turns)
        # The list of the others begins with a period.
        are_equal = [True] * start_step + [False, True] * 3
        for values, is_equal in zip(zip(*results, strict=True), are_equal, strict=True):
            copies = {programs.fingerprint(worker.values()) for worker in values}
            self.assertEqual(len(copies) == 1, is_equal)

    @some_of(
        ((1, 1, [(_REST, 3), (_ALL, 2), (_REST, 1)]), [0, 1, 2, 3, 4, 5]),
        ((1, 1, [(_ALL, 3), (_REST, 2), (_ALL, 1)]), [0, 1, 2, 3, 4, 5]),
        # The second fragment begins with a variable of the first one, which has been counted there.
        ((2, 2, [(_REST, 4), (_REST, "synchronize"), (_ALL, 2)]), [0, 0, 1, 1, 2, 3, 2]),
    )
    def test_outer_steps_are_counted_on_where_the_first_variable_is_another(self, arguments, steps):
        for seen in shared_cluster(2).run(programs.outer_steps_seen, *arguments):
            self.assertEqual(seen, steps)

    @some_of(
        {"turns": [(_ALL, 3), (_REST, 2), (_REST, 1), (_ALL, 2)]},
        {"turns": [(_REST, 2), (_ALL, 2), (_ALL, 1), (_REST, 2)]},
        {"turns": [(slice(2), 2), (slice(0, 3, 2), 2), (slice(2), 1), (slice(0, 3, 2), 1)]},
        {"turns": [(_ALL, 1), (_REST, 1)] * 4, "start_step": 2},
        {"turns": [(_ALL, 3), tf_gc.DiLoCo(2, _AVERAGE), (_REST, 4)]},
        {"turns": [(_ALL, 1), tf_gc.DiLoCo(1, _AVERAGE), (_ALL, 1)]},
        {"turns": [(_ALL, 7), tf_gc.DiLoCo(2, _AVERAGE), (_ALL, 2)], "start_step": 5},
        # First steps, of which all workers would take the same from different copies.
        {"turns": [(_ALL, 3), tf_gc.DiLoCo(2, _AVERAGE, start_step=6), (_ALL, 1)]},
        {"turns": [(_ALL, 5), (_REST, 1)], "start_step": 4},
        count=6,
    )
    def test_no_period_begins_within_that_of_others(self, turns, start_step=0):
        diloco = tf_gc.DiLoCo(2, _AVERAGE, start_step=start_step)
        directory = self.create_tempdir().full_path
        with Cluster(2) as cluster:
            for error in cluster.outcomes(programs.train_in_turns, diloco, turns, directory):
                self.assertIsInstance(error, tf.errors.InvalidArgumentError)
                self.assertIn("strategy.synchronize", str(error))

    @some_of(
        # The first variable is that of another list, too, which was traced since.
        [[(slice(2), 2), (slice(0, 3, 2), 2), (slice(2), 1), (slice(2), "synchronize")]],
        [[(_ALL, 1), (_REST, "refused"), (_ALL, "synchronize")]],
        [[(_ALL, 1), (slice(-1), "refused"), (_ALL, "synchronize")]],
        # Two optimizers.
        [[(slice(1), 1), (_REST, 1), (_ALL, "synchronize")]],
        [[(_ALL, 3), tf_gc.DiLoCo(2, _AVERAGE), (_REST, "refused"), (_ALL, "synchronize")]],
    )
    def test_synchronize_ends_the_periods_that_there_are(self, turns):
        diloco, directory = tf_gc.DiLoCo(2, _AVERAGE), self.create_tempdir().full_path
        results = shared_cluster(2).run(programs.train_in_turns, diloco, turns, directory)
        for name in programs.SHAPES:
            one([values[-1][name] for values in results])
            before = {programs.fingerprint([values[-2][name]]) for values in results}
            is_whole = name == "second" and turns[0] == (slice(2), 2)
            self.assertLen(before, 1 if is_whole else 2)

    @some_of(
        [[(_ALL, 1), (slice(-1), "refused"), (slice(-1), "synchronize")]],
        # All of one optimizer's, and some of another's.
        [[(slice(1), 1), (_REST, 1), (slice(2), "synchronize")]],
    )
    def test_synchronize_within_a_period_of_others_is_refused(self, turns):
        with Cluster(2) as cluster:
            for error in cluster.outcomes(
                programs.train_in_turns, tf_gc.DiLoCo(2, _AVERAGE), turns
            ):
                self.assertIsInstance(error, tf.errors.InvalidArgumentError)
                self.assertIn("strategy.synchronize", str(error))

    @parameterized.parameters(
        ([[0, 1]], [[0, 1, 2]]),
        ([[0, 1]], [[1, 0]]),
        ([[0], [1]], [[0, 1]]),
        ([], [[0, 1, 2]]),
    )
    def test_a_step_that_ends_with_other_variables_is_refused(self, lists, ended):
        for error in shared_cluster(2).outcomes(
            programs.mixed_lists, tf_gc.DiLoCo(1, _AVERAGE), lists, ended
        ):
            self.assertIsInstance(error, ValueError)
            self.assertIn("outer_step must get the variables", str(error))

    @parameterized.parameters([[[0, 1], [2, 1]]], [[[0, 1], [0, 2]]])
    def test_a_variable_of_two_optimizers_is_refused(self, lists):
        for error in shared_cluster(2).outcomes(
            programs.mixed_lists, tf_gc.DiLoCo(4, start_step=1), lists, lists
        ):
            self.assertIsInstance(error, ValueError)
            self.assertIn("each variable must have one optimizer", str(error))

    def test_sparse_gradients_stay_and_doubles_are_summed_in_each_step(self):
        results = shared_cluster(2).run(programs.train_other_types, tf_gc.DiLoCo(3, _AVERAGE))
        for worker, steps in enumerate(results):
            for count, (embedding, double) in enumerate(steps, start=1):
                expected = np.zeros([6, 5])
                expected[:2] = -1.5 if count == 3 else 0
                if count < 3:
                    expected[worker] = -count
                np.testing.assert_allclose(embedding, expected, atol=1e-6)
                np.testing.assert_array_equal(double, np.full(4, -1.5 * count))

    def test_synchronize_has_nothing_to_do_for_doubles(self):
        results = shared_cluster(2).run(programs.synchronize_doubles, tf_gc.DiLoCo(3))
        np.testing.assert_array_equal(one(results), np.full(4, -1.5))

    def test_what_the_program_assigns_between_periods_is_not_taken_for_learnt(self):
        diloco = tf_gc.DiLoCo(2, _AVERAGE)
        values = one(shared_cluster(2).run(programs.assign_between, diloco, 5.0))
        for name, value in values.items():
            gradients = [programs.gradient(name, s, w) for s in (2, 3) for w in range(2)]
            expected = 5.0 - programs.INNER_RATE * sum(gradients) / 2
            np.testing.assert_allclose(value, expected, atol=1e-5, err_msg=name)

    @parameterized.parameters(None, tf_gc.ThreeLC())
    def test_a_bad_copy_of_a_variable_is_left_out_on_all_workers(self, compression):
        diloco = tf_gc.DiLoCo(2, compression=compression)
        results = shared_cluster(3).run(programs.non_finite, diloco, 1)
        one([after for _, (after, _) in results])
        for (before, slots_before), (after, slots_after) in results:
            np.testing.assert_array_equal(after["kernel"], before["kernel"])
            self.assertTrue(np.isfinite(after["second"]).all())
            self.assertFalse(np.array_equal(after["second"], before["second"]))
            for key in slots_before:
                unchanged = np.array_equal(slots_after[key], slots_before[key])
                self.assertEqual(unchanged, key[0] == "kernel", key)

    def test_a_loop_without_outer_steps_is_an_error(self):
        with Cluster(2) as cluster:
            for error in cluster.outcomes(programs.forget_the_outer_step, tf_gc.DiLoCo(3)):
                self.assertIsInstance(error, RuntimeError)
                self.assertIn("strategy.outer_step", str(error))

    def test_an_eager_loop_without_outer_steps_is_warned_of_once(self):
        for warnings in shared_cluster(2).run(
            programs.warnings_of_an_eager_loop_without_outer_steps, tf_gc.DiLoCo(3)
        ):
            [warning] = warnings
            self.assertIn("strategy.outer_step", warning)

    def test_its_methods_need_it(self):
        [errors] = shared_cluster(1).run(programs.methods_without_diloco)
        self.assertLen(errors, 2)
        for error in errors:
            self.assertIn("tf_gc.DiLoCo", error)


_DUE = [False, False, True, False, False, True, False]


class CheckpointTest(parameterized.TestCase):
    @some_of(2, 1)
    def test_a_training_that_was_saved_within_a_period_goes_on_identically(self, fragments):
        diloco = tf_gc.DiLoCo(4, fragments=fragments)
        cluster = shared_cluster(2)
        with tempfile.TemporaryDirectory() as directory:
            whole = cluster.run(programs.train_and_save, diloco, directory, 7, 12)
            restored = cluster.run(programs.restore_and_train, diloco, directory, None, 7, 12)
        np.testing.assert_equal(restored, whole)

    def test_a_period_that_was_restored_can_be_ended(self):
        directory = self.create_tempdir().full_path
        diloco = tf_gc.DiLoCo(4, _AVERAGE)
        saved = shared_cluster(2).run(programs.train_and_save, diloco, directory, 3, 3)
        results = shared_cluster(2).run(programs.restore_and_synchronize, diloco, directory)
        for name in programs.SHAPES:
            expected = np.mean([values[name] for values, _ in saved], axis=0)
            ended = one([values[name] for values in results])
            np.testing.assert_allclose(ended, expected, atol=1e-6)

    def test_a_checkpoint_within_a_period_loses_nothing_that_workers_have_learnt(self):
        diloco = tf_gc.DiLoCo(2, _AVERAGE, _COMPRESS_ALL)
        assert_learnt(self.results_of_a_restored_training(diloco), steps=6)

    def test_a_checkpoint_within_compressed_first_steps_loses_nothing(self):
        diloco = tf_gc.DiLoCo(2, _AVERAGE, start_step=6, start_compression=_COMPRESS_ALL)
        results = self.results_of_a_restored_training(diloco)
        assert_learnt(results, steps=6, slot="residual")

    def test_a_list_that_variables_have_joined_is_restored_within_a_period(self):
        directory = self.create_tempdir().full_path
        diloco = tf_gc.DiLoCo(2, _AVERAGE)
        turns = [(_REST, 4), (_ALL, 3), diloco, (_ALL, 1)]
        results = shared_cluster(2).run(programs.train_in_turns, diloco, turns, directory)
        one([programs.fingerprint(values[-1].values()) for values in results])

    @some_of(
        {"inner_steps": 3, "fragments": 1},
        {"inner_steps": 4, "fragments": 2},
    )
    def test_a_training_with_other_periods_begins_one_after_an_outer_step(self, **others):
        outer = tf_gc.OuterSGD(0.5, 0.8)
        saving = tf_gc.DiLoCo(4, outer)
        restoring = tf_gc.DiLoCo(outer_optimizer=outer, **others)
        directory = self.create_tempdir().full_path
        results = shared_cluster(2).run(
            programs.continue_otherwise, saving, restoring, directory, 8, 8 + others["inner_steps"]
        )
        reference = Reference(saving, 2)
        for step in range(8):
            reference.step(step)
        reference.diloco = tf_gc.DiLoCo(outer_optimizer=outer, start_step=8, **others)
        for step in range(8, 8 + others["inner_steps"]):
            reference.step(step)
            for worker, values in enumerate(results):
                assert_close(values[step - 8], reference.copies[worker])

    @some_of(
        {"restored": {"inner_steps": 4}, "start_step": 5, "saved_after": 9},
        {"restored": {"inner_steps": 3}, "saved_after": 7},
        {"restored": {"inner_steps": 4, "fragments": 2}, "saved_after": 6},
    )
    def test_synchronize_lets_a_training_go_on_with_other_periods(
        self, restored, saved_after, start_step=0
    ):
        outer = tf_gc.OuterSGD(0.5, 0.8)
        saving = tf_gc.DiLoCo(4, outer, start_step=start_step)
        restored = tf_gc.DiLoCo(outer_optimizer=outer, **restored)
        directory = self.create_tempdir().full_path
        steps = saved_after + restored.inner_steps
        results = shared_cluster(2).run(
            programs.continue_otherwise, saving, restored, directory, saved_after, steps, True
        )
        reference = Reference(saving, 2)
        for step in range(saved_after):
            reference.step(step)
        if (saved_after - start_step) % 4:
            for name in programs.SHAPES:
                reference.outer_step(name)
        reference.diloco = dataclasses.replace(restored, start_step=saved_after)
        for step in range(saved_after, steps):
            reference.step(step)
            for worker, values in enumerate(results):
                assert_close(values[step - saved_after], reference.copies[worker])

    @some_of(2, 0)
    def test_synchronize_lets_a_training_go_on_with_first_steps(self, start_step):
        results = shared_cluster(2).run(
            programs.continue_otherwise,
            tf_gc.DiLoCo(4, _AVERAGE, start_step=start_step),
            tf_gc.DiLoCo(4, _AVERAGE, start_step=8),
            self.create_tempdir().full_path,
            4,
            12,
            synchronizes=True,
        )
        for step in [*range(4), 7]:  # from 4 to 8, and the end of the period behind them, if any
            for name in programs.SHAPES:
                one([values[step][name] for values in results])

    def test_residuals_of_gradients_are_no_residuals_of_outer_gradients(self):
        diloco = tf_gc.DiLoCo(2, _AVERAGE, tf_gc.ThreeLC())
        for (before, after), warnings in shared_cluster(2).run(
            programs.start_from_residuals_of_gradients,
            diloco,
            1e-3,
            self.create_tempdir().full_path,
            10,
        ):
            self.assertLess(after, 2 * before)
            self.assertIn("that no variable has taken", "".join(warnings))

    def test_schedules_of_first_steps_go_on_where_the_first_variable_is_not_compressed(self):
        start = dataclasses.replace(_COMPRESS_ALL, default=tf_gc.ThreeLC(start_step=2))
        diloco = tf_gc.DiLoCo(4, start_step=6, start_compression=start)
        directory = self.create_tempdir().full_path
        for sizes in shared_cluster(2).run(programs.restore_before_the_start, diloco, directory, 4):
            goes_on, restored = sizes
            self.assertLess(restored, 2 * goes_on)  # an exact one would send ten times as much

    def results_of_a_restored_training(self, diloco):
        cluster = shared_cluster(2)
        with tempfile.TemporaryDirectory() as directory:
            cluster.run(programs.train_and_save, diloco, directory, 3, 3)
            return cluster.run(programs.restore_and_train, diloco, directory, None, 3, 6)

    @some_of(3, 1)
    def test_another_number_of_workers_goes_on_from_the_common_model(self, workers):
        diloco = tf_gc.DiLoCo(2, compression=tf_gc.ThreeLC())
        cluster = shared_cluster(workers)
        with tempfile.TemporaryDirectory() as directory:
            saved = shared_cluster(2).run(programs.train_and_save, diloco, directory, 4, 4)
            arguments = (programs.restore_and_train, diloco, directory, 0, 4)
            there = [values for values, _ in cluster.run(*arguments, 4)]
            within = [slots for _, slots in cluster.run(*arguments, 5)]
            later = [values for values, _ in cluster.run(*arguments, 6)]
        values, momenta = saved[0]
        np.testing.assert_equal(one(there), values)
        for slots in within:
            for name in programs.SHAPES:
                key = name, "outer_momentum"
                np.testing.assert_array_equal(slots[key], momenta[key])
        self.assertGreater(np.abs(one(later)["kernel"] - values["kernel"]).max(), 0)

    @some_of(3, 1)
    def test_another_number_of_workers_delivers_what_waits_of_outer_gradients(self, workers):
        diloco = tf_gc.DiLoCo(2, _AVERAGE, _COMPRESS_ALL)
        with tempfile.TemporaryDirectory() as directory:
            saved = shared_cluster(2).run(programs.train_and_save, diloco, directory, 4, 4)
            restored = shared_cluster(workers).run(
                programs.restore_and_train, diloco, directory, 0, 4, 6
            )
        before = one([values for values, _ in saved])
        for name, after in one([values for values, _ in restored]).items():
            key = name, "outer_gradient_residual"
            waited, waits = (
                np.mean([slots[key] for _, slots in results], axis=0)
                for results in (saved, restored)
            )
            self.assertGreater(np.abs(waited).max(), 0)
            gradients = [programs.gradient(name, s, w) for s in (4, 5) for w in range(workers)]
            learnt = programs.INNER_RATE * sum(gradients) / workers
            np.testing.assert_allclose(
                before[name] - after, learnt + waited - waits, atol=1e-5, err_msg=name
            )

    @some_of(
        ({"start_step": 4, "start_compression": _COMPRESS_ALL}, 2, "residual", programs.INNER_RATE),
        ({"start_step": 4, "start_compression": _COMPRESS_ALL}, 6, "residual", 0.0),
    )
    def test_one_worker_gets_what_waited_of_gradients_in_first_steps_alone(
        self, arguments, saved_after, slot, rate
    ):
        diloco = tf_gc.DiLoCo(2, _AVERAGE, **arguments)
        steps = [saved_after, saved_after + 1]
        with tempfile.TemporaryDirectory() as directory:
            saved = shared_cluster(2).run(
                programs.train_and_save, diloco, directory, saved_after, saved_after
            )
            [(values, _)] = shared_cluster(1).run(
                programs.restore_and_train, diloco, directory, 0, saved_after, saved_after + 2
            )
        for name, value in values.items():
            gradients = sum(programs.gradient(name, step, 0) for step in steps)
            waited = sum(slots[name, slot] for _, slots in saved)
            self.assertGreater(np.abs(waited).max(), 0)
            expected = saved[0][0][name] - programs.INNER_RATE * gradients - rate * waited
            np.testing.assert_allclose(value, expected, atol=1e-5, err_msg=name)


@functools.cache
def _fit(legacy_keras, compression=None):
    """What two periods of `fit` end with."""
    cluster = shared_cluster(2, **(_LEGACY_KERAS if legacy_keras else {}))
    return cluster.run(programs.fit, tf_gc.DiLoCo(4, compression=compression), 8)


class KerasTest(parameterized.TestCase):
    """`fit` with DiLoCo, by Keras 3 and tf_keras."""

    @some_of(
        (False, tf_gc.ThreeLC()), (True, None), (False, None), (True, tf_gc.ThreeLC()), count=2
    )
    def test_fit_ends_with_one_model_where_the_period_divides_the_steps(
        self, legacy_keras, compression
    ):
        results = _fit(legacy_keras, compression)
        one([weights for _, weights, _ in results])
        for loss, _, traffic in results:
            self.assertLess(loss[-1], loss[0])
            self.assertEqual(traffic["steps"], 4)

    def test_tf_keras_gives_the_same_weights_as_keras_3(self):
        # tf_keras decays weights after gradients are reduced, Keras 3 before.
        new, legacy = (one([w for _, w, _ in _fit(legacy_keras)]) for legacy_keras in (False, True))
        self.assertEqual(legacy, new)

    @some_of(
        (True, tf_gc.ThreeLC()),
        (False, tf_gc.EFSignSGD()),
        (True, tf_gc.EFSignSGD()),
        (False, tf_gc.ThreeLC()),
        (True, None),
        (False, None),
    )
    def test_first_steps_are_those_of_a_strategy_without_diloco(self, legacy_keras, compressor):
        """Second moments, clipping, and what compressors choose for the optimizer, too."""
        cluster = shared_cluster(2, **(_LEGACY_KERAS if legacy_keras else {}))
        diloco = tf_gc.DiLoCo(4, start_step=16, start_compression=compressor)
        local, common = (
            cluster.run(programs.fit, compression, 8, "Adam", clipvalue=0.01)
            for compression in (diloco, compressor or tf_gc.Policy())
        )
        one([weights for _, weights, _ in [*local, *common]])
        for (_, _, sent), (_, _, expected) in zip(local, common, strict=True):
            self.assertEqual(sent["bytes_sent"], expected["bytes_sent"])

    @parameterized.named_parameters(
        ("legacy_adam", True, {"name": "Adam", "legacy": True}, 1),
        ("centered", False, {"name": "RMSprop", "centered": True}, 1),
        ("unknown", False, {"name": "Adamax"}, 1),
        ("adam", False, {"name": "Adam"}, 0),
        ("eager_adam", False, {"name": "Adam", "eager": True}, 0),
        ("sgd", False, {"name": "SGD"}, 0),
    )
    def test_squares_of_compressed_first_steps_are_warned_of(self, legacy_keras, arguments, count):
        cluster = shared_cluster(2, **(_LEGACY_KERAS if legacy_keras else {}))
        diloco = tf_gc.DiLoCo(2, start_step=2, start_compression=tf_gc.ThreeLC())
        for warnings in cluster.run(programs.warnings_of_squares, diloco, **arguments):
            self.assertLen(warnings, count)
        # Without such steps each worker squares its own gradients.
        for warnings in cluster.run(programs.warnings_of_squares, tf_gc.DiLoCo(2), **arguments):
            self.assertEmpty(warnings)

    @some_of(False, True)
    def test_fit_goes_on_from_compressed_first_steps(self, legacy_keras):
        cluster = shared_cluster(2, **(_LEGACY_KERAS if legacy_keras else {}))
        diloco = tf_gc.DiLoCo(4, start_step=8, start_compression=tf_gc.ThreeLC())
        results = cluster.run(programs.fit, diloco, 8, "Adam")
        one([weights for _, weights, _ in results])
        for loss, _, traffic in results:
            self.assertLess(loss[-1], loss[0])
            self.assertEqual(traffic["steps"], 10)  # 8, and 2 outer ones

    def test_periods_begin_where_the_first_variable_gets_no_gradient(self):
        diloco = tf_gc.DiLoCo(4, start_step=2)
        for steps in shared_cluster(2).run(programs.fit_with_an_unused_variable, diloco, 6):
            self.assertEqual(steps, 3)  # 2, and an outer one

    def test_synchronize_takes_variables_without_gradients_which_keras_leaves_out(self):
        for legacy_keras in ({}, _LEGACY_KERAS):
            for steps in shared_cluster(2, **legacy_keras).run(
                programs.fit_with_an_unused_variable, tf_gc.DiLoCo(4), 6, True, True
            ):
                self.assertEqual(steps, 2)

    def test_sparse_gradients_of_first_steps_are_summed_exactly_unless_rows_are_compressed(self):
        for compression in (
            dataclasses.replace(_COMPRESS_ALL, default=tf_gc.TopK(0.1)),
            tf_gc.Policy(embeddings=tf_gc.EmbeddingRows(8)),
        ):
            diloco = tf_gc.DiLoCo(1, _AVERAGE, start_step=3, start_compression=compression)
            results = shared_cluster(2).run(programs.train_other_types, diloco, 3)
            for count, (embedding, double) in enumerate(one(results), start=1):
                expected = np.zeros([6, 5])
                expected[:2] = -0.5 * count
                np.testing.assert_allclose(embedding, expected, atol=1e-6)
                np.testing.assert_array_equal(double, np.full(4, -1.5 * count))

    @some_of(False, True)
    def test_synchronize_makes_one_model_of_a_period_that_fit_has_cut_off(self, legacy_keras):
        cluster = shared_cluster(2, **(_LEGACY_KERAS if legacy_keras else {}))
        results = cluster.run(programs.fit, tf_gc.DiLoCo(5), 8, synchronize=True)
        self.assertNotEqual(*[before for _, (before, _), _ in results])
        one([after for _, (_, after), _ in results])

    @some_of((False, 4), (True, 6), (False, 6), (True, 4), count=2)
    def test_outer_steps_keep_constraints(self, legacy_keras, batches):
        cluster = shared_cluster(2, **(_LEGACY_KERAS if legacy_keras else {}))
        for least in cluster.run(programs.fit_with_a_constraint, tf_gc.DiLoCo(4), batches):
            self.assertGreaterEqual(min(least), 0)

    @some_of(False, True)
    def test_what_a_constraint_undoes_is_not_learnt(self, legacy_keras):
        cluster = shared_cluster(1, **(_LEGACY_KERAS if legacy_keras else {}))
        [momentum] = cluster.run(programs.outer_momentum_of_a_constraint, tf_gc.DiLoCo(2), 0.1, 8)
        self.assertEqual(momentum, 0)

    @parameterized.parameters(
        ("Ftrl", {}),
        ("Ftrl", _LEGACY_KERAS),
        ("Ftrl", _LEGACY_KERAS, True),
        ("ScheduleFreeAdamW", {}),
    )
    def test_an_optimizer_that_would_undo_outer_steps_is_refused(
        self, name, environment, legacy=False
    ):
        if name not in dir(keras.optimizers):
            self.skipTest(f"this Keras has no {name}")
        for error in shared_cluster(2, **environment).outcomes(
            programs.warnings_of_squares, tf_gc.DiLoCo(2), name, legacy
        ):
            self.assertIsInstance(error, ValueError)
            self.assertIn(name, str(error))

    @some_of(False, True)
    def test_a_frozen_layer_stays_where_it_is(self, legacy_keras):
        cluster = shared_cluster(2, **(_LEGACY_KERAS if legacy_keras else {}))
        diloco = tf_gc.DiLoCo(2, compression=_COMPRESS_ALL, start_step=2)
        # Once Adam's moments are each worker's own, first steps would be others on each.
        weights = one(cluster.run(programs.freeze_between_fits, diloco, "Adam", 4))
        (both, _), (frozen, alone), (unfrozen, _) = weights
        np.testing.assert_equal(frozen, both)
        self.assertNotEqual(*map(programs.fingerprint, (alone, weights[0][1])))
        self.assertNotEqual(*map(programs.fingerprint, (unfrozen, frozen)))

    def test_an_eager_step_that_loss_scaling_leaves_out_is_not_warned_of(self):
        cluster = shared_cluster(2, **_LEGACY_KERAS)
        for warnings in cluster.run(programs.warnings_of_an_eager_step_left_out, tf_gc.DiLoCo(3)):
            self.assertEmpty(warnings)

    @some_of(False, True)
    def test_a_model_without_trainable_variables_is_fitted(self, legacy_keras):
        cluster = shared_cluster(2, **(_LEGACY_KERAS if legacy_keras else {}))
        self.assertEqual(cluster.run(programs.fit_frozen, tf_gc.DiLoCo(2)), [1, 1])

    @parameterized.named_parameters(
        ("steps_per_execution", {"steps_per_execution": 4}, 4),
        ("gradient_accumulation", {"gradient_accumulation_steps": 2}, 2),
        ("run_eagerly", {"eager": True}, 4),
        ("clipping", {"optimizer": "SGD", "momentum": 0.9, "clipnorm": 1.0}, 4),
    )
    def test_keras_feature(self, arguments, outer_steps):
        results = shared_cluster(2).run(programs.fit, tf_gc.DiLoCo(4), 8, **arguments)
        one([weights for _, weights, _ in results])
        for loss, _, traffic in results:
            self.assertLess(loss[-1], loss[0])
            self.assertEqual(traffic["steps"], outer_steps)

    @some_of(False, True)
    def test_keras_moving_averages_which_would_be_of_copies_are_refused(self, legacy_keras):
        cluster = shared_cluster(2, **(_LEGACY_KERAS if legacy_keras else {}))
        for error in cluster.outcomes(programs.fit, tf_gc.DiLoCo(4), 8, use_ema=True):
            self.assertIsInstance(error, ValueError)
            self.assertIn("use_ema", str(error))

    @some_of(False, True)
    def test_an_overflow_on_one_worker_skips_the_step_on_all(self, legacy_keras):
        """Twelve steps, one or more of which are left out: all workers meet in outer steps."""
        cluster = shared_cluster(2, **(_LEGACY_KERAS if legacy_keras else {}))
        results = cluster.run(strategy_programs.fit_with_an_overflow, tf_gc.DiLoCo(1), 1)
        result = one(results)
        self.assertTrue(result["finite"])
        self.assertBetween(result["compressed_steps"], 1, 11)


class ArgumentsTest(parameterized.TestCase):
    def test_keras_refuses_gradients_of_unknown_variables(self):
        for error in shared_cluster(2).outcomes(programs.apply_without_variables):
            self.assertIn("optimizer must already be built", str(error))

    @parameterized.parameters(
        ({"inner_steps": 0}, "inner_steps"),
        ({"inner_steps": 2.5}, "inner_steps"),
        ({"inner_steps": 4, "fragments": 5}, "fragments"),
        ({"start_step": -1}, "start_step"),
        ({"outer_optimizer": "sgd"}, "outer_optimizer"),
        ({"compression": "ThreeLC"}, "compression"),
        ({"start_step": 3, "start_compression": "ThreeLC"}, "start_compression"),
        ({"start_compression": tf_gc.ThreeLC()}, "start_step"),
        ({"compression": "auto"}, "compression"),
        ({"compression": tf_gc.Policy(rules={"a": tf_gc.Auto()})}, "compression"),
        ({"start_step": 3, "start_compression": tf_gc.Auto()}, "start_compression"),
        ({"compression": tf_gc.EmbeddingRows(8)}, "compression"),
        ({"compression": tf_gc.Policy(tf_gc.ThreeLC(), sparse_as_dense=True)}, "compression"),
    )
    def test_a_bad_argument_is_refused_by_name(self, arguments, name):
        with self.assertRaisesRegex(ValueError, name):
            tf_gc.DiLoCo(**arguments)

    @parameterized.parameters(("learning_rate", 0.0), ("momentum", 1.0), ("momentum", -0.1))
    def test_a_bad_argument_of_the_outer_optimizer_is_refused_by_name(self, name, value):
        with self.assertRaisesRegex(ValueError, name):
            tf_gc.OuterSGD(**{name: value})

    def test_parameter_servers_say_what_to_use_instead(self):
        diloco = tf_gc.DiLoCo(compression=tf_gc.ThreeLC(1.75))
        with self.assertRaisesRegex(ValueError, r"MultiWorkerMirroredStrategy.*ThreeLC\(.*1.75"):
            tf_gc.ParameterServerStrategy(None, compression=diloco)


if __name__ == "__main__":
    absltest.main()
