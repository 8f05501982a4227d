"""The parameter-server strategy on real clusters."""

import collections
import contextlib
import itertools
import math
import pathlib
import resource
import tempfile
import unittest

import keras
import numpy as np
import parameter_server_programs as programs
import parameter_server_reference as reference
import psutil
import server_clusters
from absl import logging
from absl.testing import absltest, parameterized
from tf_gc.strategy import message_pieces

import tf_gc
from tests.cases import in_test_long, some_of, some_of_named, some_of_product
from tests.listening import listening
from tests.waiting import wait_until
from tf_gc.testing.cluster import WorkerError

_SHAPE = (48, 64)
_VALUES = 48 * 64
_KEPT_CLUSTERS = 3  # idle ones take memory alone
_clusters = {}


def shared_cluster(workers, ps=1, worker_program=server_clusters.serve):
    """A cluster that the tests of this module share; those that were used last are kept."""
    if not _clusters:
        unittest.addModuleCleanup(_close)
    key = (workers, ps, worker_program)
    cluster = _clusters.pop(key, None)
    if cluster and cluster.broken:
        cluster.close()
        cluster = None
    if not cluster:
        _close(_KEPT_CLUSTERS - 1)
        cluster = server_clusters.ServerCluster(workers, ps, worker_program=worker_program)
    _clusters[key] = cluster
    return cluster


def _close(kept=0):
    """Closes all but the clusters that were used last."""
    while len(_clusters) > kept:
        _clusters.pop(next(iter(_clusters))).close()


def total(gradients):
    return np.sum(gradients, axis=0)


def _bits_of_values(traffic):
    """Returns the bits a value of pushes without second moments."""
    return traffic["bits_per_value_pushed"] - traffic["second_moment_bits_per_value_pushed"]


class PushAndPullTest(parameterized.TestCase):
    """One worker, so that every push sees the one before."""

    def test_uncompressed_pushes_are_applied_exactly(self):
        read, (value,), (residual,), traffic = shared_cluster(1).run(
            programs.push_in_turn, 5, compression=tf_gc.Policy()
        )
        expected = np.zeros(_SHAPE, np.float32)
        for step in range(5):
            np.testing.assert_array_equal(read[step][0], expected)
            expected = expected - programs.gaussian([step, 0])
        np.testing.assert_array_equal(value, expected)
        np.testing.assert_array_equal(residual, 0)
        self.assertEqual(traffic["updates"], 5)

    @parameterized.parameters(
        tf_gc.ThreeLC(),
        tf_gc.ThreeLC(1.75),
        tf_gc.ThreeLC(0.5),
        tf_gc.ThreeLC(units="gradient"),
        tf_gc.THC(bits=4),
        tf_gc.UniformTHC(bits=4),
        "auto",
    )
    def test_nothing_is_lost(self, compressor):
        _, (value,), (residual,), _ = shared_cluster(1).run(
            programs.push_in_turn, 20, compression=compressor
        )
        pushed = total([programs.gaussian([step, 0]) for step in range(20)])
        np.testing.assert_allclose(residual - value, pushed, rtol=0, atol=2e-4)

    def test_the_seed_decides_what_is_random(self):
        program = programs.push_in_turn_as_a_first_strategy
        first, again, other = (
            shared_cluster(1).run(program, 5, compression=tf_gc.THC(seed=seed))[1][0]
            for seed in (5, 5, 6)
        )
        np.testing.assert_array_equal(first, again)
        self.assertTrue(np.any(first != other))

    @parameterized.parameters(
        (tf_gc.ThreeLC(1.0), 1 / 2),
        (tf_gc.Int8(), 1 / 254),
        (tf_gc.Float16(), 2.0**-11),
        (tf_gc.BFloat16(), 2.0**-8),
    )
    def test_a_pull_brings_a_copy_within_half_a_level_of_the_variable(self, compressor, half):
        """Levels are fractions of the greatest change, what earlier pulls have left included."""
        updates_per_version = 3  # the change of one would be a multiple of the level
        read, values = shared_cluster(1).run(
            programs.copies_in_turn,
            30,
            compression=compressor,
            updates_per_version=updates_per_version,
        )
        for step in range(1, 30):
            if step % updates_per_version:
                np.testing.assert_array_equal(read[step], read[step - 1])
                continue
            change = np.abs(values[step] - read[step - 1]).max()
            left = np.abs(values[step] - read[step]).max()
            self.assertBetween(left / (half * change), 0.25, 1.001, f"step {step}")

    def test_uncompressed_loops_train_as_in_tensorflow(self):
        value = shared_cluster(1).run(programs.uncompressed_loop, 3)
        pushed = total([programs.gaussian(step) for step in range(3)])
        np.testing.assert_allclose(value, -pushed, rtol=1e-6, atol=1e-6)

    @parameterized.parameters(None, tf_gc.Policy())
    def test_autograph_converts_what_a_program_has_defined_alone(self, compression):
        value, modules = shared_cluster(1).run(
            programs.push_with_a_converted_update, compression=compression
        )
        np.testing.assert_array_equal(value, -3)
        self.assertEqual(modules, {programs.__name__})

    @parameterized.parameters(None, tf_gc.Policy())
    def test_a_push_outside_of_a_step_is_refused(self, compression):
        error = shared_cluster(1).outcome(programs.push_outside_of_a_step, compression)
        self.assertRegex(str(error), r"must be called inside this strategy's run\(\)")

    @parameterized.parameters(0.2, None)
    def test_a_second_run_in_a_function_sees_the_first(self, delay):
        read, traffic = shared_cluster(1).run(
            programs.push_in_two_runs, 3, delay, compression=tf_gc.Policy(), synchronous=True
        )
        expected = np.zeros(_SHAPE, np.float32)
        for step, (first, second) in enumerate(read):
            np.testing.assert_array_equal(first, expected)
            expected = expected - programs.gaussian(step)
            np.testing.assert_array_equal(second, expected)
            expected = expected - programs.gaussian(step)
        self.assertEqual((traffic["dropped_pushes"], traffic["pushes"]), (0, 6))

    @some_of(tf_gc.ThreeLC(), tf_gc.ThreeLC(unit_multiplier=tf_gc.schedules.Linear(2.0, 3.0, 4)))
    def test_steps_of_two_traces_may_call_one_function(self, compression):
        read, [values] = shared_cluster(1).run(
            programs.push_in_an_inner_function, 4, True, compression=compression
        )
        np.testing.assert_allclose(read, [0, -1, -2, -3], atol=0.05)
        np.testing.assert_allclose(values, -4, rtol=0.01)
        read, [values] = shared_cluster(2).run(
            programs.push_in_an_inner_function, 20, False, compression=compression
        )
        np.testing.assert_allclose(values, -20, rtol=0.01)

    def test_a_step_may_call_a_function_in_conditions(self):
        read, [values] = shared_cluster(1).run(
            *(programs.push_in_an_inner_function, 4, True),
            loop=programs.InnerFunctionInConditionsLoop,
            compression=tf_gc.Policy(),
        )
        self.assertEqual(read, [0, -1, -2, -3])
        np.testing.assert_array_equal(values, -4)

    @some_of({"updates_per_version": 100}, {"synchronous": True})
    def test_a_function_that_has_read_the_copy_reads_what_was_written_since(self, **kwargs):
        for step, (before, after, by_chief, on_worker) in enumerate(
            shared_cluster(1).run(
                programs.reads_of_a_function, 3, compression=tf_gc.Policy(), **kwargs
            )
        ):
            pushed, written = step + 1, 2 * (step + 1)
            self.assertEqual(before[1:], [2 * step] * 2)
            self.assertEqual(after[1:], [written] * 2)
            self.assertEqual(by_chief, [-pushed, written, written])
            self.assertEqual(on_worker, by_chief)

    def test_outside_of_a_step_each_process_has_a_copy_of_its_own(self):
        devices = shared_cluster(2).run(programs.devices_of_own_copies, 2)
        self.assertEqual(devices, [("chief", 0), ("worker", 0), ("worker", 1)])

    @parameterized.parameters({}, {"synchronous": True})
    def test_a_run_after_a_loop_of_runs_sees_them(self, **kwargs):
        read = shared_cluster(1).run(
            programs.push_in_a_loop_and_a_run, 3, compression=tf_gc.Policy(), **kwargs
        )
        before = np.zeros(_SHAPE, np.float32)
        for step, (last_of_loop, after_loop) in enumerate(read):
            gradient = programs.gaussian(step)
            np.testing.assert_allclose(last_of_loop, before - gradient, atol=1e-5)
            np.testing.assert_allclose(after_loop, before - 2 * gradient, atol=1e-5)
            before = before - 3 * gradient

    @parameterized.parameters({}, {"synchronous": True})
    def test_a_step_reads_what_it_has_pushed_outside_of_a_tape(self, **kwargs):
        value = shared_cluster(1).run(
            programs.clip_after_pushes, 3, compression=tf_gc.Policy(), **kwargs
        )
        pushed = total([programs.gaussian(step) for step in range(3)])
        np.testing.assert_allclose(value, -pushed, rtol=1e-6, atol=1e-6)

    @parameterized.parameters({}, {"synchronous": True})
    def test_a_step_reads_what_an_inner_function_has_pushed_or_written(self, **kwargs):
        pushed, written = shared_cluster(1).run(
            programs.clip_after_an_inner_function, 4, compression=tf_gc.Policy(), **kwargs
        )
        np.testing.assert_array_equal(pushed, -4)
        np.testing.assert_array_equal(written, 4)

    @some_of({}, {"synchronous": True})
    def test_an_update_may_write_to_a_server_without_gradients(self, **kwargs):
        servers, read = shared_cluster(1, 2).run(
            programs.updates_of_another_server, 3, compression=tf_gc.Policy(), **kwargs
        )
        self.assertEqual(servers, 2)
        self.assertEqual(read, [0, 1, 2])

    @parameterized.parameters({}, {"synchronous": True})
    def test_what_a_tape_has_watched_can_be_pushed_and_written(self, **kwargs):
        for step, read in enumerate(
            shared_cluster(1).run(programs.push_watched_variables, 3, **kwargs)
        ):
            for i, value in enumerate(read):
                pushed = sum(programs.gaussian([before, i]) for before in range(step))
                np.testing.assert_allclose(value, step - pushed, atol=1e-5)

    def test_gather_nd_reads_the_copy_too(self):
        read, _ = shared_cluster(1).run(programs.gather_rows, 3, compression=tf_gc.ThreeLC(1.75))
        self.assertGreater(np.abs(read[-1][0]).max(), 0)
        for rows, same in read:
            np.testing.assert_array_equal(rows, same)
        _, value = shared_cluster(1).run(programs.gather_rows, 3, compression=tf_gc.Policy())
        pushed = total([programs.gaussian(step) for step in range(3)])
        np.testing.assert_allclose(value, -pushed, rtol=1e-5, atol=1e-6)

    def test_a_function_that_was_traced_before_pushes(self):
        traffic = shared_cluster(1).run(programs.run_what_was_called_before)
        self.assertEqual((traffic["pushes"], traffic["updates"]), (3, 3))

    @parameterized.parameters(False, True)
    def test_a_vectorized_map_may_read(self, reads_before):
        gradient, vectors = shared_cluster(1).run(
            programs.gradients_in_a_vectorized_map, reads_before
        )
        expected = np.repeat(3 * vectors.sum(axis=0)[:, np.newaxis], gradient.shape[1], axis=1)
        np.add.at(expected, [1, 2, 1], 1)
        np.testing.assert_allclose(gradient, expected + reads_before, rtol=1e-5, atol=1e-5)

    @parameterized.parameters((100.0, 1.0), (-100.0, 0.0))
    def test_rows_may_be_read_in_a_branch(self, most, times):
        value = shared_cluster(1).run(programs.gather_rows_in_a_branch, 3, most)
        pushed = total([programs.gaussian(step) for step in range(3)])
        np.testing.assert_allclose(value, -times * pushed, rtol=1e-5, atol=1e-6)

    def test_thc_leaves_alone_what_is_not_pulled(self):
        """It has its scale with pulls."""
        compressor = shared_cluster(1).run(programs.compressor_of_a_half_variable, tf_gc.THC())
        self.assertEqual(compressor, "Uncompressed()")

    @some_of(tf_gc.ThreeLC(), tf_gc.Policy())
    def test_messages_in_pieces_hold_the_same(self, compression):
        cluster = shared_cluster(1)
        whole = cluster.run(programs.push_in_turn, 3, compression=compression)
        cut = cluster.run(programs.push_in_pieces, 1000, 3, compression=compression)
        for expected, values in zip(whole[:3], cut[:3], strict=True):
            np.testing.assert_array_equal(values, expected)
        self.assertEqual(cut[3], whole[3])

    def test_rows_travel_with_their_indices(self):
        values = 1 << 28  # of four bytes
        self.assertEqual(message_pieces.count([(values,)]), 1)
        self.assertEqual(message_pieces.count([], [(values, 1)]), 3)

    def test_one_pull_and_one_push_whatever_the_number_of_variables(self):
        _, _, _, traffic = shared_cluster(1).run(
            programs.push_in_turn, 6, shapes=((32, 32),) * 50, compression=tf_gc.ThreeLC()
        )
        self.assertEqual(traffic["pulls"], 6)
        self.assertEqual(traffic["pushes"], 6)
        self.assertLess(_bits_of_values(traffic), 1.8)

    def test_small_variables_travel_exactly(self):
        read, _values, _, traffic = shared_cluster(1).run(
            programs.push_in_turn, 4, shapes=(_SHAPE, (30,)), compression=tf_gc.ThreeLC()
        )
        expected = -total([programs.gaussian([step, 1], (30,)) for step in range(3)])
        np.testing.assert_allclose(read[3][1], expected, rtol=1e-6, atol=1e-6)
        compressors = {v["name"]: v["compressor"] for v in traffic["variables"]}
        self.assertEqual(compressors["variable_1"], "Uncompressed()")

    def test_bits_a_value(self):
        _, _, _, traffic = shared_cluster(1).run(
            programs.push_in_turn, 10, shapes=((256, 256),), compression=tf_gc.ThreeLC()
        )
        self.assertLess(_bits_of_values(traffic), 1.6)
        # The first pull is the whole model.
        self.assertLess(traffic["bytes_pulled"], 4 * 256 * 256 + 9 * 1.61 / 8 * 256 * 256)

    @parameterized.parameters("assign", "function", "scatter", "scatter_nd_max", "restore")
    def test_a_write_from_outside_reaches_the_workers(self, write):
        _, written, after, _ = shared_cluster(1).run(programs.write_from_outside, write)
        np.testing.assert_array_equal(after[0], written)

    def test_a_write_to_what_is_not_pulled_publishes_nothing(self):
        assigned, restored, published = shared_cluster(1).run(
            programs.write_what_is_not_pulled, self.create_tempdir().full_path
        )
        self.assertEqual(assigned, [1.0] * 3)
        self.assertEqual(restored, [0.0] * 3)
        self.assertEqual(published, [True] * 2)

    @parameterized.parameters(
        {},
        {"max_staleness": 0},
        {"synchronous": True, "replicas_to_aggregate": 1},
        {"synchronous": True},
    )
    def test_a_step_sees_what_it_writes_and_its_push_counts(self, **kwargs):
        seen, values, dropped, updates = shared_cluster(1).run(programs.write_in_steps, 3, **kwargs)
        self.assertEqual([tuple(map(float, pair)) for pair in seen], [(0, 1), (-1, 2), (-2, 3)])
        self.assertEqual(values, [-3, 3])
        self.assertEqual((dropped, updates), (0, 3))

    def test_what_a_step_pulls_is_of_one_version(self):
        first, *later = shared_cluster(1).run(programs.make_a_variable_within_a_step)
        self.assertLen(first, 1)
        self.assertNotEmpty(later)
        for ids in later:
            self.assertLen(ids, 2)

    def test_no_gradient_at_all_is_refused_by_name(self):
        error = shared_cluster(1).outcome(programs.push_no_gradient)
        self.assertIn("no variable has a gradient: unused", str(error))

    def test_a_second_gradient_of_a_variable_is_refused_by_name(self):
        error = shared_cluster(1).outcome(programs.push_two_gradients_of_a_variable)
        self.assertIsInstance(error, ValueError)
        self.assertIn("shared has more than one gradient: add them up", str(error))

    @some_of(
        {"wrong": (1,), "rows": False},
        {"wrong": (1,), "rows": False, "synchronous": True},
        {"wrong": (2, 1), "rows": True},
    )
    def test_a_gradient_of_another_shape_is_refused_and_the_next_is_pushed(self, **kwargs):
        errors, value = shared_cluster(1).run(
            programs.push_a_wrong_shape, compression=tf_gc.Policy(), **kwargs
        )
        self.assertLen(errors, 2)
        self.assertIn("gradient of pushed (here) has the shape", errors[0])
        pushed = value[:2] if kwargs["rows"] else value
        np.testing.assert_array_equal(pushed, -3)

    def test_a_checkpoint_holds_residuals(self):
        with tempfile.TemporaryDirectory() as directory:
            saved, between, restored, read = shared_cluster(2).run(
                programs.save_and_restore, directory, 2
            )
            self.assertGreater(np.abs(saved[1]).max(), 0)
            self.assertGreater(np.abs(saved[0] - between[0]).max(), 0)
            np.testing.assert_array_equal(restored[0], saved[0])
            np.testing.assert_allclose(restored[1], saved[1], rtol=1e-6, atol=1e-7)
            np.testing.assert_array_equal(read, saved[0])
            for program in programs.restore_elsewhere, programs.restore_before_variables:
                value, residual = shared_cluster(1).run(program, directory)
                np.testing.assert_array_equal(value, saved[0])
                np.testing.assert_allclose(residual, saved[1], rtol=1e-6, atol=1e-7)

    def test_of_a_variable_that_is_not_compressed_nothing_is_saved(self):
        directory = self.create_tempdir().full_path
        shapes, before, after = shared_cluster(2).run(programs.shapes_of_saved_residuals, directory)
        shapes = {k.split("/")[1]: s for k, s in shapes.items() if k.endswith("/residual")}
        self.assertEqual(shapes, {"variable_0": list(before[0].shape), "variable_1": [0]})
        np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-7)
        self.assertGreater(np.abs(after[0]).max(), 0)
        self.assertFalse(after[1].any())

    def test_of_a_shard_among_others_than_were_saved_nothing_is_restored(self):
        directory = self.create_tempdir().full_path
        shared_cluster(1).run(programs.save_and_restore, directory, 1, compression=tf_gc.ThreeLC())
        restored, later = shared_cluster(1).run(programs.restore_another_shape, directory)
        np.testing.assert_array_equal(restored, 0)
        self.assertTrue(later.any())

    def test_a_variable_made_late_does_not_set_the_steps_back(self):
        directory = self.create_tempdir().full_path
        shared_cluster(1).run(programs.shapes_of_saved_residuals, directory)
        restored, later = shared_cluster(1).run(
            programs.steps_after_a_variable_made_late, directory
        )
        self.assertEqual((restored, later), (2, 502))

    def test_a_variable_may_be_made_in_a_function_after_one_has_gone(self):
        made = shared_cluster(1).run(programs.make_a_variable_in_a_function_after_one_has_gone)
        np.testing.assert_array_equal(made, 1)

    def test_restoring_calls_each_process_once(self):
        calls, saved, restored = shared_cluster(2).run(
            programs.calls_of_restore, self.create_tempdir().full_path
        )
        # TensorFlow also has it say what it would save, which is read of all.
        read = {"function": 3, "TfGc>ServerStatistics": 1}
        written = {"function": 2, "TfGc>SetServerStep": 1}
        self.assertEqual(calls, collections.Counter(read) + collections.Counter(written))
        np.testing.assert_allclose(restored, saved, rtol=1e-6, atol=1e-7)

    @parameterized.named_parameters(
        ("all", 2, True, 2, tf_gc.ThreeLC(), None),
        ("none", 2, False, 2, tf_gc.ThreeLC(), "no residuals for any variable, which begin at 0$"),
        ("some", 1, True, 2, tf_gc.ThreeLC(), "no residuals for variable_1, which begin at 0$"),
        ("more", 2, True, 1, tf_gc.ThreeLC(), "no variable has taken so far: variable_1$"),
        ("left_out", 2, True, 2, None, "this program, which compresses nothing, leaves them out$"),
    )
    def test_one_line_says_what_residuals_are_missing_or_left_out(
        self, saved, has_residuals, variables, compression, message
    ):
        directory = self.create_tempdir().full_path
        cluster = shared_cluster(1)
        cluster.run(programs.save_of_some, directory, saved, tf_gc.ThreeLC(), has_residuals)
        warnings = cluster.run(programs.warnings_after_restoring, directory, variables, compression)
        self.assertLen(warnings, int(message is not None))
        if message:
            self.assertRegex(warnings[0], message)


def _rounds(pushes):
    """Arguments of the strategy for rounds of so many pushes; of one, asynchronous updates."""
    return {"synchronous": True, "replicas_to_aggregate": pushes} if pushes > 1 else {}


class ArgumentsTest(parameterized.TestCase):
    @parameterized.parameters(
        ({"synchronous": "False"}, "synchronous must be True or False"),
        ({"synchronous": True, "max_staleness": 0}, "max_staleness .* synchronous=False"),
        ({"synchronous": True, "updates_per_version": 2}, "updates_per_version .* synchronous=Fal"),
        ({"replicas_to_aggregate": 2}, "replicas_to_aggregate .* synchronous=True"),
        ({"aggregation_fraction": 0.5}, "aggregation_fraction .* synchronous=True"),
        ({"max_staleness": 0}, "max_staleness .*Policy"),
        ({"updates_per_version": 2}, "updates_per_version .*Policy"),
        ({"variable_partitioner": tf_gc.ThreeLC()}, "give .* as compression="),
    )
    def test_a_bad_argument_is_refused_by_name(self, arguments, message):
        with self.assertRaisesRegex(ValueError, message):
            tf_gc.ParameterServerStrategy(None, **arguments)


class MistakeTest(parameterized.TestCase):
    def test_an_update_that_a_step_makes_by_itself_is_refused(self):
        error = shared_cluster(1).outcome(programs.update_in_a_step, compression=tf_gc.Policy())
        self.assertRegex(str(error), r"variable_0.*Call strategy.push_gradients\(")

    def test_a_push_of_an_unknown_shape_says_so(self):
        program = programs.push_of_an_unknown_shape
        error = shared_cluster(1).outcome(program, compression=tf_gc.Policy())
        self.assertIn("it is float32 of shape (None, 3)", str(error))

    def test_a_push_of_a_model_from_outside_says_so(self):
        error = shared_cluster(1).outcome(programs.push_of_a_model_from_outside)
        self.assertIn("in this strategy's scope(); it is float32", str(error))

    def test_keras_refuses_gradients_of_unknown_variables(self):
        program = programs.apply_without_variables
        error = shared_cluster(1).outcome(program, compression=tf_gc.Policy())
        self.assertIn("optimizer must already be built", str(error))


# Whether pushes go into rounds, whether those that fail have arrived, and the number of pushes.
_STEPS_THAT_FAIL = tuple(itertools.product((False, True), (False, True), (3, 5)))


class SynchronousTest(parameterized.TestCase):
    def test_an_update_is_the_mean_of_a_round(self):
        _, (value,), (residual,), traffic = shared_cluster(1).run(
            programs.push_in_turn,
            7,
            compression=tf_gc.Policy(),
            synchronous=True,
            replicas_to_aggregate=3,
        )
        gradients = [programs.gaussian([step, 0]) for step in range(7)]
        expected = -(np.mean(gradients[:3], axis=0) + np.mean(gradients[3:6], axis=0))
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(residual, gradients[6], rtol=1e-6, atol=1e-6)  # waits
        self.assertEqual(traffic["updates"], 2)

    @parameterized.parameters(
        None,
        tf_gc.ThreeLC(),
        tf_gc.ThreeLC(units="gradient"),
        tf_gc.THC(),
        tf_gc.Int8(),
    )
    def test_nothing_is_lost_when_pushes_come_too_late(self, compressor):
        count = 60
        value, residual, traffic = shared_cluster(3).run(
            programs.push_at_once, count, late_every=20, compression=compressor, synchronous=True
        )
        pushes = [programs.gaussian([step, 0]) for step in range(count)]
        lost = residual - 3 * value - total(pushes)
        if isinstance(compressor, tf_gc.Int8):
            # Without feedback each value of a push is off by up to half of a level, M / 254, and
            # equally likely by any part of it.
            variance = sum((np.abs(p).max() / 254) ** 2 / 3 for p in pushes)
            self.assertLess(np.mean(np.square(lost)), 2 * variance)
            self.assertLess(abs(np.mean(lost)), 5 * np.sqrt(variance / lost.size))
        else:
            np.testing.assert_allclose(lost, 0, atol=1e-3)
        self.assertGreater(traffic["dropped_pushes"], 0)
        self.assertEqual(traffic["updates"], traffic["pushes"] // 3)
        self.assertEqual(traffic["pushes"] + traffic["dropped_pushes"], count)

    def test_an_update_that_outlasts_its_lease_is_made_once(self):
        made, counted, leases, value = shared_cluster(3).run(
            programs.update_that_outlasts_its_lease
        )
        self.assertGreater(leases, 0)
        self.assertEqual(made, counted)
        # No update was one of nothing.
        np.testing.assert_array_equal(value, np.full(_SHAPE, -made, np.float32))

    @some_of(
        # Of three pushes the last one fails, of five it is answered.
        *((tf_gc.ThreeLC(), *others) for others in _STEPS_THAT_FAIL),
        *(
            (other, *others)
            for other in (tf_gc.Policy(), tf_gc.THC())
            for others in _STEPS_THAT_FAIL
        ),
        count=len(_STEPS_THAT_FAIL),
    )
    def test_nothing_is_lost_with_steps_that_fail(
        self, compression, synchronous, has_arrived, pushes
    ):
        value, residual, failed = shared_cluster(1).run(
            programs.pushes_that_get_no_answer,
            pushes,
            has_arrived,
            compression=compression,
            synchronous=synchronous,
        )
        self.assertEqual(failed, 2)
        pushed = total([programs.gaussian(step) for step in range(pushes)])
        np.testing.assert_allclose(residual - value, pushed, rtol=0, atol=1e-4)

    def test_a_strategy_that_is_gone_leaves_nothing_on_its_servers(self):
        self.assertFalse(shared_cluster(1).run(programs.strategies_in_turn))

    @some_of(tf_gc.ThreeLC(), tf_gc.THC())
    def test_models_that_are_gone_leave_nothing_behind(self, compressor):
        shape, count, warm_up = (1024, 1024), 14, 5
        directory = pathlib.Path(self.create_tempdir().full_path)
        with server_clusters.ServerCluster(2) as cluster:
            cluster.begin(programs.models_in_turn, count, shape, str(directory), compressor)
            used = []
            for model in range(count):
                wait_until((directory / str(model)).exists, f"model {model} has trained")
                used.append(
                    [
                        psutil.Process(pid).memory_info().rss
                        for process, pid in cluster.pids.items()
                        if process[0] != "chief"
                    ]
                )
                (directory / str(model)).unlink()
            counted, known, saved = cluster.result()
        grown = np.subtract(used[-1], used[warm_up - 1])
        logging.info("bytes that each process has grown by: %s", grown)
        # Of a model a server has twice its size, and so has a worker.
        self.assertLess(grown.max(), (count - warm_up) * 4 * math.prod(shape))
        pushes = 2 * count + count - 1
        exact = ("variable_0", "Uncompressed()", 30)
        self.assertCountEqual(
            counted, [("variable_0", str(compressor), pushes * math.prod(shape)), exact]
        )
        self.assertEqual((known, saved), (1, ["variable_0"]))

    @parameterized.parameters("add_variable", "forget_variables")
    def test_another_thread_may_read_the_traffic_while_variables_come_and_go(self, op):
        [names] = shared_cluster(1).run(programs.traffic_while, op)
        self.assertIn("gone", names)

    def test_the_traffic_may_be_read_while_a_server_gets_its_first_variable(self):
        variables = shared_cluster(1, 2).run(
            programs.traffic_while_a_server_gets_its_first_variable
        )
        self.assertEqual(variables, 1)

    @parameterized.parameters(0, 1)
    def test_a_model_that_is_made_anew_has_the_names_of_the_one_that_is_gone(self, kept):
        names = shared_cluster(1).run(programs.names_of_models_in_turn, 3, kept)
        others = ["variable_0"][:kept]
        mine = [f"variable_0_{kept}" if kept else "variable_0"]
        self.assertEqual(names, [others + mine] * 3 + [others])

    def test_a_round_of_two_variables_outlasts_one_of_them(self):
        names, waiting = shared_cluster(1).run(programs.forget_one_of_two_in_a_round)
        self.assertEqual(names, ["variable_0", "third"])
        np.testing.assert_array_equal(waiting, programs.gaussian(0))

    @parameterized.parameters(0, 1)
    def test_a_write_ends_the_open_round_on_all_servers(self, which):
        values = shared_cluster(1, 2).run(programs.write_in_a_round, which)
        for i, value in enumerate(values):
            mean = (programs.gaussian([1, i]) + programs.gaussian([2, i])) / 2
            np.testing.assert_allclose(value, (i == which) - mean, rtol=1e-6, atol=1e-6)

    def test_what_is_not_pulled_is_read_in_the_version_that_is(self):
        read = shared_cluster(2).run(
            programs.updates_that_steps_read,
            [1.0, 1.5, 0.0, 0.0],
            compression=tf_gc.Policy(rules={"variable_1": None}),
            synchronous=True,
        )
        for pulled, not_pulled in read:
            self.assertEqual(pulled, not_pulled, read)

    def test_a_fraction_closes_a_round(self):
        _, _, traffic = shared_cluster(3).run(
            programs.push_at_once,
            40,
            compression=tf_gc.ThreeLC(),
            synchronous=True,
            replicas_to_aggregate=10,
            aggregation_fraction=0.75,
        )
        self.assertEqual(traffic["updates"], traffic["pushes"] // 8)

    def test_a_fraction_of_a_round_is_no_push_too_many(self):
        _, _, traffic = shared_cluster(1).run(
            programs.push_at_once,
            7,
            compression=tf_gc.Policy(),
            synchronous=True,
            replicas_to_aggregate=25,
            aggregation_fraction=0.28,  # 7 pushes, but 0.28 * 25 is above 7
        )
        self.assertEqual(traffic["updates"], 1)

    def test_two_optimizers_have_rounds_of_their_own(self):
        order = (0, 1, 0, 0, 1, 1, 0, 1)
        values = shared_cluster(1).run(
            programs.push_of_two_optimizers,
            order,
            compression=tf_gc.Policy(),
            synchronous=True,
            replicas_to_aggregate=2,
        )
        for which in range(2):
            mine = [programs.gaussian([i, which]) for i, o in enumerate(order) if o == which]
            np.testing.assert_allclose(-2 * values[which], total(mine), rtol=1e-5, atol=1e-5)

    @parameterized.parameters("keras", "tf_keras")
    def test_two_optimizers_of_one_variable_have_rounds_of_their_own(self, package):
        value = shared_cluster(1).run(
            programs.push_of_optimizers_of_one_variable,
            package,
            (0, 1, 0, 1),
            compression=tf_gc.Policy(),
            synchronous=True,
            replicas_to_aggregate=2,
        )
        first, second, third, fourth = (programs.gaussian(step) for step in range(4))
        expected = -(first + third) / 2 - 10 * (second + fourth) / 2
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)

    @some_of("keras", "tf_keras")
    def test_the_open_round_of_an_optimizer_that_is_gone_is_dropped(self, package):
        waiting, open_pushes, value = shared_cluster(1).run(
            programs.replace_an_optimizer_in_a_round, package
        )
        first, second, third = (programs.gaussian(step) for step in range(3))
        self.assertEqual(open_pushes, [1, 1, 0])
        np.testing.assert_array_equal(waiting, [first, second, np.zeros(_SHAPE)])
        np.testing.assert_allclose(value, -(second + third) / 2, rtol=1e-6, atol=1e-6)

    def test_rows_and_whole_gradients_of_one_variable_have_rounds_of_their_own(self):
        value = shared_cluster(1).run(
            programs.push_of_two_forms,
            (0, 1, 0, 1),
            compression=tf_gc.Policy(),
            synchronous=True,
            replicas_to_aggregate=2,
        )
        np.testing.assert_array_equal(value[0], -2)
        np.testing.assert_array_equal(value[1:], -1)


class AsynchronousTest(parameterized.TestCase):
    def test_every_push_is_an_update(self):
        value, residual, traffic = shared_cluster(3).run(
            programs.push_at_once, 60, compression=tf_gc.ThreeLC()
        )
        pushed = total([programs.gaussian([step, 0]) for step in range(60)])
        np.testing.assert_allclose(residual - value, pushed, rtol=0, atol=1e-3)
        self.assertEqual(traffic["updates"], 60)
        self.assertEqual(traffic["dropped_pushes"], 0)

    def test_updates_of_what_is_not_pulled_come_one_after_the_other(self):
        value = shared_cluster(3).run(
            programs.slow_writes_at_once, 6, compression=tf_gc.Policy(rules={"variable_0": None})
        )
        pushed = total([programs.gaussian(step) for step in range(6)])
        np.testing.assert_allclose(value, -pushed, rtol=1e-5, atol=1e-5)

    @some_of({}, {"synchronous": True, "replicas_to_aggregate": 1})
    def test_updates_of_other_variables_come_one_after_the_other(self, **kwargs):
        value = shared_cluster(2, 2).run(
            programs.slow_writes_of_two_and_of_one, 2, compression=tf_gc.Policy(), **kwargs
        )
        self.assertEqual(value, -4)

    def test_changes_are_encoded_once_for_all_workers(self):
        _, _, traffic = shared_cluster(3).run(
            programs.push_at_once, 60, compression=tf_gc.ThreeLC(), updates_per_version=3
        )
        self.assertLessEqual(traffic["encodings"], 20)
        self.assertEqual(traffic["pulls"], 60)

    @parameterized.parameters("gradient", "second_moment")
    def test_pushes_that_are_too_old_are_kept_by_the_worker(self, units):
        value, residual, traffic = shared_cluster(3).run(
            programs.push_at_once,
            60,
            late_every=20,
            compression=tf_gc.ThreeLC(units=units),
            max_staleness=0,
        )
        pushed = total([programs.gaussian([step, 0]) for step in range(60)])
        np.testing.assert_allclose(residual - value, pushed, rtol=0, atol=1e-3)
        self.assertGreater(traffic["dropped_pushes"], 0)
        self.assertEqual(traffic["updates"] + traffic["dropped_pushes"], 60)


class SecondMomentTest(parameterized.TestCase):
    """3LC in units of the second moment, and optimizers that get it."""

    @some_of_product(
        package=("keras", "tf_keras"), pushes_in_update=(1, 2), multiplier=(1.0, None), count=4
    )
    def test_five_updates_of_adam_are_those_of_a_reference(
        self, package, pushes_in_update, multiplier
    ):
        # Rows of very different sizes, which shrink.
        sizes = np.geomspace(1, 1e-3, _SHAPE[0], dtype=np.float32)[:, np.newaxis]
        gradients = [
            programs.gaussian(step) * sizes / (1 + step) for step in range(5 * pushes_in_update)
        ]
        seen = shared_cluster(1).run(
            programs.adam_in_turn,
            package,
            gradients,
            learning_rate=0.01,
            compression=tf_gc.ThreeLC(multiplier, units="second_moment"),
            **_rounds(pushes_in_update),
        )
        worker = reference.Worker(_SHAPE, multiplier)
        adam = reference.Adam(_SHAPE, 0.01, workers=pushes_in_update)
        for update in range(5):
            first = update * pushes_in_update
            pushes = [worker.push(g) for g in gradients[first : first + pushes_in_update]]
            adam.update(*reference.mean(pushes, rows=_SHAPE[0]))
            value, velocity = seen[first + pushes_in_update - 1]
            np.testing.assert_allclose(velocity, adam.velocity, rtol=1e-5)
            np.testing.assert_allclose(value, adam.value, rtol=1e-4, atol=1e-7)

    @some_of(
        (1, {}, 1.0),
        (1, {"loss_scale_factor": 4.0}, 1.0),
        (1, {"clipnorm": 0.5}, None),
        (2, {"gradient_accumulation_steps": 2}, None),
    )
    def test_what_keras_3_makes_of_gradients_has_second_moments(self, pushes, options, ratio):
        gradients = [programs.gaussian(step) for step in range(pushes)]
        _, velocity = shared_cluster(1).run(
            *(programs.adam_in_turn, "keras", gradients, 0.01),
            options=options,
            compression=tf_gc.ThreeLC(),
        )[-1]
        worker = reference.Worker(_SHAPE)
        delivered, moments = zip(
            *(reference.mean([worker.push(g)], rows=_SHAPE[0]) for g in gradients), strict=True
        )
        # Of the squared length of what is applied to that of what was delivered last.
        last = np.sum(np.square(delivered[-1]))
        if "clipnorm" in options:
            ratio = 0.5**2 / last
        elif ratio is None:
            ratio = np.sum(np.square(sum(delivered) / pushes)) / last
        np.testing.assert_allclose(velocity, (1 - 0.999) * ratio * moments[-1], rtol=1e-4)

    @some_of_product(
        package=("keras", "tf_keras"),
        clipping=({"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.01}),
        count=3,
    )
    def test_clipped_gradients_have_what_workers_agree_in(self, package, clipping):
        gradients = [programs.gaussian(step) + 1 for step in range(6)]
        seen = shared_cluster(1).run(
            *(programs.adam_in_turn, package, gradients, 0.01),
            options=clipping,
            compression=tf_gc.ThreeLC(),
            **_rounds(2),
        )
        worker, adam = reference.Worker(_SHAPE), reference.Adam(_SHAPE, 0.01, workers=2)
        for update in range(3):
            pushes = [worker.push(g) for g in gradients[2 * update : 2 * update + 2]]
            gradient, moment = reference.mean(pushes, rows=_SHAPE[0])
            if "clipvalue" in clipping:
                clipped = np.clip(gradient, -0.01, 0.01)
            else:
                clipped = gradient * 0.5 / np.linalg.norm(gradient)
            ratio = np.sum(np.square(clipped)) / np.sum(np.square(gradient))
            adam.update(clipped, ratio * moment)
            value, velocity = seen[2 * update + 1]
            np.testing.assert_allclose(velocity, adam.velocity, rtol=1e-4)
            np.testing.assert_allclose(value, adam.value, rtol=1e-4, atol=1e-7)

    def test_where_nothing_was_delivered_last_it_is_the_square(self):
        gradients = [programs.gaussian(0), np.zeros(_SHAPE, np.float32)]
        _, velocity = shared_cluster(1).run(
            *(programs.adam_in_turn, "keras", gradients, 0.01),
            options={"gradient_accumulation_steps": 2},
            compression=tf_gc.ThreeLC(start_step=2),  # with nothing in residuals
        )[-1]
        np.testing.assert_allclose(velocity, 0.001 * np.square(gradients[0] / 2), rtol=1e-4)

    @some_of(
        ("keras", "Adamax", r"^Adamax may square .*keras.optimizers.Adam"),
        ("tf_keras", "Adagrad", "^Adagrad may square "),
        ("keras", "SGD", None),
        ("tf_keras", "Adam", None),
        count=3,
    )
    def test_an_optimizer_that_may_square_is_warned_of(self, package, name, text):
        warnings = shared_cluster(1).run(
            programs.warnings_of_an_optimizer, package, name, compression=tf_gc.ThreeLC()
        )
        self.assertLen(warnings, int(text is not None))
        if text:
            self.assertRegex(warnings[0], text)

    def test_what_is_not_finite_is_seen_and_forgotten(self):
        gradients = [programs.gaussian(step) for step in range(3)]
        gradients[1][5, 7] = np.inf
        seen, residual, _ = shared_cluster(1).run(
            programs.second_moments_in_turn,
            gradients,
            compression=tf_gc.ThreeLC(),
        )
        worker = reference.Worker(_SHAPE)
        for step, (_, second_moment) in enumerate(seen):
            expected = reference.mean([worker.push(gradients[step])], rows=_SHAPE[0])[1]
            self.assertEqual(np.isnan(expected).all(), step == 1)
            np.testing.assert_allclose(second_moment, expected, rtol=1e-6)
        np.testing.assert_allclose(residual, worker.residual, rtol=0, atol=1e-6)

    def test_updates_before_the_start_step_have_a_second_moment(self):
        gradients = [programs.gaussian(step) for step in range(4)]
        seen, residual, _ = shared_cluster(1).run(
            programs.second_moments_in_turn,
            gradients,
            compression=tf_gc.ThreeLC(start_step=4),
        )
        worker = reference.Worker(_SHAPE)
        for gradient, (_, second_moment) in zip(gradients, seen, strict=True):
            statistics, _ = worker.push(gradient)
            expected = reference.mean([(statistics, gradient)], rows=_SHAPE[0])[1]
            np.testing.assert_allclose(second_moment, expected, rtol=1e-6)
        np.testing.assert_allclose(seen[-1][0], -total(gradients), rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(residual, 0)

    def test_statistics_are_counted(self):
        _, _, traffic = shared_cluster(1).run(
            programs.second_moments_in_turn,
            [programs.gaussian(step) for step in range(6)],
            compression=tf_gc.ThreeLC(),
        )
        self.assertEqual(traffic["second_moment_bytes_pushed"], 6 * 2 * sum(_SHAPE))
        self.assertEqual(traffic["values_pushed"], 6 * _VALUES)
        bits = traffic["second_moment_bits_per_value_pushed"]
        self.assertAlmostEqual(bits, 16 * sum(_SHAPE) / _VALUES)
        self.assertBetween(traffic["bits_per_value_pushed"] - bits, 0.5, 1.75)

    def test_a_checkpoint_has_the_workers_mean_for_any_number_of_workers(self):
        directory = self.create_tempdir().full_path
        saved = shared_cluster(2).run(
            programs.push_and_save_second_moments, directory, pushes=8, workers=2
        )
        pushed = [statistics for statistics in saved if statistics.any()]
        self.assertNotEmpty(pushed)
        weights = [statistics[-1] for statistics in pushed]
        expected = np.average(pushed, axis=0, weights=weights)
        expected[-1] = max(weights)
        restored = shared_cluster(3).run(programs.restore_second_moments, directory, workers=3)
        for statistics in restored:
            np.testing.assert_allclose(statistics, expected, rtol=1e-6)

    def test_a_checkpoint_without_statistics_is_restored(self):
        directory = self.create_tempdir().full_path
        shared_cluster(1).run(programs.save_and_restore, directory, 1, compression=tf_gc.Int8())
        (statistics,) = shared_cluster(1).run(programs.restore_second_moments, directory, workers=1)
        np.testing.assert_array_equal(statistics, 0)

    @some_of_named(
        ("two_servers", {"shards": 2}),
        ("mixed_precision", {"dtype_policy": "mixed_bfloat16"}),
        ("xla", {"optimizer": programs.adamw}),
    )
    def test_tf_keras_fit(self, kwargs):
        servers = kwargs.get("shards", 1)
        result = shared_cluster(2, servers).run(programs.fit, compression=tf_gc.ThreeLC(), **kwargs)
        self.assertGreater(result["accuracy"][-1], 0.75)


class ScheduleTest(parameterized.TestCase):
    """Compressors whose hyper-parameters change, on pushes and pulls alike."""

    def _assert_fewer_bytes_from(self, step, counts):
        """Checks what steps have pushed; they pull what was published in the step before."""
        pushed, pulled = np.transpose(counts)
        self.assertGreater(min(pushed[:step]), 2 * max(pushed[step:]))
        # The first pull is the whole model.
        self.assertGreater(min(pulled[1 : step + 1]), 1.5 * max(pulled[step + 1 :]))

    def test_a_schedule_changes_pushes_and_pulls(self):
        schedule = keras.optimizers.schedules.PiecewiseConstantDecay([3], [1.0, 1.99])
        counts = shared_cluster(1).run(
            programs.bytes_of_steps, 8, compression=tf_gc.ThreeLC(schedule)
        )
        self._assert_fewer_bytes_from(4, counts)

    def test_a_value_that_the_program_assigns(self):
        multiplier = tf_gc.schedules.Adjustable(1.0)
        counts = shared_cluster(1).run(
            programs.bytes_of_steps, 8, change=(4, 1.99), compression=tf_gc.ThreeLC(multiplier)
        )
        self._assert_fewer_bytes_from(4, counts)

    @parameterized.parameters(tf_gc.ThreeLC, tf_gc.THC, tf_gc.Int8)
    def test_the_first_steps_are_exact(self, compressor):
        read, _, _, _ = shared_cluster(1).run(
            programs.push_in_turn, 8, compression=compressor(start_step=4)
        )
        expected = np.zeros(_SHAPE, np.float32)
        differs = []
        for step in range(8):
            differs.append(not np.array_equal(read[step][0], expected))
            expected = expected - programs.gaussian([step, 0])
        self.assertEqual(differs, [False] * 5 + [True] * 3)

    def test_steps_are_updates_and_go_on_after_a_restore(self):
        kwargs = {"compression": tf_gc.ThreeLC(start_step=4)}
        directory = self.create_tempdir().full_path
        for servers, expected in (1, [False] * 3), (2, [False, True, True]):
            cluster = shared_cluster(1, servers)
            compressed = cluster.run(programs.compressed_steps, directory, 3, **kwargs)
            self.assertEqual(compressed, expected)


class KerasTest(parameterized.TestCase):
    @some_of(
        {"compression": tf_gc.ThreeLC(units="gradient")},
        {"compression": tf_gc.THC(), "synchronous": True},
        {"compression": tf_gc.ThreeLC(), "synchronous": True},
        {"compression": None},
        {"compression": None, "synchronous": True},
        {"compression": tf_gc.ThreeLC()},
        {"compression": tf_gc.ThreeLC(units="gradient"), "synchronous": True},
        {"compression": tf_gc.Int8()},
        count=2,
    )
    def test_a_keras_3_model_learns_in_a_loop(self, **kwargs):
        result = shared_cluster(2).run(programs.keras3_loop, 200, **kwargs)
        self.assertGreater(result["accuracy"], 0.85)
        if kwargs["compression"] or kwargs.get("synchronous"):
            self.assertEqual(result["iterations"], result["traffic"]["updates"])

    @parameterized.parameters(
        {"package": "keras"},
        {"package": "keras", "in_run": False},
        {"package": "keras", "synchronous": True},
        {"package": "tf_keras"},
    )
    def test_a_metric_has_what_workers_add_at_the_same_time(self, **kwargs):
        total_and_count = shared_cluster(3).run(
            programs.metric_of_steps_at_once, steps=6, compression=tf_gc.Policy(), **kwargs
        )
        self.assertEqual(total_and_count, [24, 24])

    def test_a_layer_of_keras_3_adds_in_its_own_type_and_without_state_to_nothing(self):
        calls, without_state = shared_cluster(1).run(
            programs.counts_of_a_layer, 3, compression=tf_gc.Policy()
        )
        self.assertEqual(calls, [3, 3])
        self.assertEqual(without_state, [[8, 8]] * 3)

    @some_of("keras", "tf_keras")
    def test_a_saved_model_has_no_trace_of_compression(self, package):
        directory = self.create_tempdir().full_path
        saved, (own, *loaded) = shared_cluster(2).run(programs.saved_model, package, directory)
        for predicted in loaded:
            np.testing.assert_allclose(predicted, own, rtol=1e-5, atol=1e-6)
        for trace in (b"tf_gc", b"TfGc", b"residual", b"ThreeLC", b"second_moment"):
            self.assertNotIn(trace, saved)

    def test_mixed_precision_in_keras_3(self):
        result = shared_cluster(2).run(
            programs.keras3_loop, 200, dtype_policy="mixed_bfloat16", compression=tf_gc.ThreeLC()
        )
        self.assertGreater(result["accuracy"], 0.85)

    def test_a_loss_scale_that_all_workers_would_change_is_refused(self):
        outcome = shared_cluster(2).outcome(
            programs.keras3_loop, 1, dtype_policy="mixed_float16", compression=tf_gc.ThreeLC()
        )
        self.assertIsInstance(outcome, NotImplementedError)
        self.assertRegex(str(outcome), "LossScaleOptimizer.*mixed_bfloat16")

    def test_keras_3_variables_have_their_paths(self):
        policy = tf_gc.Policy(
            tf_gc.ThreeLC(), rules={"head/": None, "^sequential/dense/kernel$": None}
        )
        paths, names, compressed = shared_cluster(1).run(
            programs.compressed_variables_of_keras_3, policy
        )
        self.assertEqual(paths, ["net/body/kernel", "net/head/kernel", "sequential/dense/kernel"])
        self.assertEqual(names, paths)
        self.assertEqual(compressed, paths[:1])

    def test_a_compiled_step_is_refused_in_words_that_help(self):
        error = shared_cluster(1).outcome(
            programs.fit, compression=tf_gc.ThreeLC(), jit_compile=True
        )
        self.assertIn("use model.compile(jit_compile=False)", str(error))

    def test_keras_3_fit_says_what_to_use(self):
        error = shared_cluster(1).outcome(programs.keras3_fit)
        self.assertIn("ClusterCoordinator, or tf_keras", str(error))

    @some_of_named(
        ("lazy", {"layers": programs.lazy_layers}),
        ("mixed_precision", {"dtype_policy": "mixed_bfloat16"}),
        ("synchronous_steps", {"synchronous": True, "steps_per_execution": 10}),
        ("dense", {"layers": programs.dense_layers}),
        ("convolution", {"layers": programs.convolution_layers, "epochs": 6}),
        ("adamw", {"optimizer": programs.adamw}),
        ("legacy", {"optimizer": programs.legacy_sgd}),
        ("steps_per_execution", {"steps_per_execution": 10}),
        ("synchronous", {"synchronous": True}),
        count=3,
    )
    def test_tf_keras_fit(self, kwargs):
        result = shared_cluster(2).run(programs.fit, compression=tf_gc.ThreeLC(), **kwargs)
        self.assertGreater(result["accuracy"][-1], 0.75)
        self.assertLess(result["loss"][-1], result["loss"][0])
        if not kwargs.get("synchronous"):
            self.assertEqual(result["iterations"], result["traffic"]["updates"])

    def test_tf_keras_fit_without_trainable_variables(self):
        result = shared_cluster(1).run(
            programs.fit, compression=tf_gc.ThreeLC(), layers=programs.frozen_layers
        )
        self.assertEqual(result["traffic"]["pushes"], 0)
        self.assertGreater(result["loss"][-1], 0)

    @some_of(True, False)
    def test_two_servers(self, synchronous):
        result = shared_cluster(2, 2).run(
            programs.fit, compression=tf_gc.ThreeLC(), synchronous=synchronous
        )
        self.assertGreater(result["accuracy"][-1], 0.75)

    @in_test_long
    def test_sharded_variables(self):
        result = shared_cluster(2, 2).run(programs.fit, compression=tf_gc.ThreeLC(), shards=2)
        self.assertGreater(result["accuracy"][-1], 0.75)

    @some_of((False, False), (True, True), (False, True), (True, False), count=2)
    def test_embeddings(self, synchronous, sparse_as_dense):
        result = shared_cluster(2).run(
            programs.fit_embedding, synchronous=synchronous, sparse_as_dense=sparse_as_dense
        )
        self.assertGreater(result["accuracy"][-1], 0.8)

    @some_of((True, 4), (False, 8))
    def test_rows_of_embeddings_in_few_bits(self, synchronous, bits):
        result = shared_cluster(2, 2).run(
            programs.fit_embedding,
            embeddings=tf_gc.EmbeddingRows(bits),
            shards=2,  # tables on several servers
            synchronous=synchronous,
        )
        self.assertGreater(result["accuracy"][-1], 0.8)
        tables = [v for v in result["traffic"]["variables"] if "embedding" in v["name"]]
        self.assertLen(tables, 2)
        for table in tables:
            bits_pushed = 8 * table["bytes_pushed"] / table["values_pushed"]
            # A row has 16 values, a scale, and less than a byte of an index.
            self.assertBetween(bits_pushed, bits + 1, bits + 2.5)
            self.assertEqual(table["bytes_pulled"], 0)


class ReplicasTest(parameterized.TestCase):
    """Two replicas in each worker, as with two GPUs."""

    @parameterized.parameters(False, True)
    def test_a_push_has_the_sum_of_the_replicas(self, synchronous):
        value, momentum = _run_on_replicas(
            *(1, programs.push_of_replicas),
            compression=tf_gc.Int8() if not synchronous else None,
            synchronous=synchronous,
        )
        np.testing.assert_allclose(value, -3 * np.ones_like(value), rtol=0.01)
        np.testing.assert_array_equal(momentum, -value)

    @parameterized.parameters("assign", "scatter", "restore")
    def test_a_write_from_outside_reaches_the_workers(self, write):
        _, written, after, _ = _run_on_replicas(1, programs.write_from_outside, write)
        np.testing.assert_array_equal(after[0], written)

    def test_a_metric_has_the_sum_of_the_replicas(self):
        total_and_count = _run_on_replicas(
            *(1, programs.metric_of_steps_at_once, "keras"), steps=2, compression=tf_gc.Policy()
        )
        self.assertEqual(total_and_count, [16, 16])

    def test_a_step_may_write(self):
        self.assertEqual(_run_on_replicas(1, programs.write_on_replicas, 3), 6)

    @some_of(
        (programs.keras3_loop, {"compression": tf_gc.ThreeLC(), "steps": 200}),
        (programs.fit, {"compression": tf_gc.ThreeLC()}),
        (programs.fit_embedding, {"synchronous": True}),
    )
    def test_a_model_learns(self, program, kwargs):
        result = _run_on_replicas(2, program, **kwargs)
        self.assertGreater(np.ravel(result["accuracy"])[-1], 0.75)
        if "iterations" in result:
            self.assertEqual(result["iterations"], result["traffic"]["updates"])


def _run_on_replicas(workers, *args, **kwargs):
    cluster = shared_cluster(workers, worker_program=programs.serve_with_two_devices)
    return cluster.run(programs.with_two_replicas, *args, **kwargs)


@contextlib.contextmanager
def _without_memory(pid):
    """Leaves a process little more address space than it has, in a context."""
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    limit = psutil.Process(pid).memory_info().vms + (1 << 25)
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_AS, before)


class FailureTest(parameterized.TestCase):
    """Processes that die or stop while others train."""

    def setUp(self):
        super().setUp()
        self._directory = pathlib.Path(self.create_tempdir().full_path)

    def _wait_for_start(self):
        wait_until((self._directory / "started").exists, "training has begun")

    def _wait_for_epochs(self, count):
        """Waits for epochs all of whose steps are still to come."""
        last = len(list(self._directory.glob("epoch*"))) + count
        wait_until((self._directory / f"epoch{last}").exists, f"epoch {last} has ended")

    def test_training_goes_on_without_a_killed_worker_and_with_it_again(self):
        with server_clusters.ServerCluster(2) as cluster:
            cluster.begin(programs.fit_until, str(self._directory), compression=tf_gc.ThreeLC())
            self._wait_for_epochs(0)
            cluster.kill("worker", 1)
            self._wait_for_epochs(2)
            cluster.start("worker", 1)
            # TensorFlow needs another worker to take one back.
            wait_until(lambda: cluster.processor_seconds("worker", 1) > 1, "it works again")
            cluster.kill("worker", 0)
            self._wait_for_epochs(2)
            (self._directory / "stop").touch()
            epochs, _ = cluster.result()
        self.assertGreater(epochs[-1]["accuracy"], 0.9)

    def test_a_checkpoint_is_written_though_a_worker_was_restarted_meanwhile(self):
        with server_clusters.ServerCluster(2) as cluster:
            cluster.begin(programs.save_after_a_restart, str(self._directory), tf_gc.ThreeLC())
            self._wait_for_start()
            cluster.kill("worker", 1)
            cluster.start("worker", 1)
            pid = cluster.pids["worker", 1]
            wait_until(lambda: listening(pid), "the worker listens again")
            (self._directory / "restarted").touch()
            self.assertEqual(cluster.result(), 8)

    def test_a_killed_server_is_a_clear_error(self):
        with server_clusters.ServerCluster(1) as cluster:
            cluster.begin(programs.fit_until, str(self._directory), compression=tf_gc.ThreeLC())
            self._wait_for_epochs(0)
            cluster.kill("ps", 0)
            with self.assertRaisesRegex(WorkerError, "Unavailable"):
                cluster.result()

    def test_a_chief_that_was_killed_trains_again_on_the_same_servers(self):
        with server_clusters.ServerCluster(2) as cluster:
            cluster.begin(programs.fit_until, str(self._directory), compression=tf_gc.ThreeLC())
            self._wait_for_epochs(1)
            cluster.restart_chief()
            (self._directory / "stop").touch()
            [epoch], traffic = cluster.run(
                programs.fit_until, str(self._directory), compression=tf_gc.ThreeLC()
            )
        self.assertGreater(epoch["accuracy"], 0.25)  # of the first 30 updates; 0.1 is chance
        # Counters of the servers began anew.
        self.assertEqual(traffic["updates"], 30)

    def _save_until_a_server_is_killed(self, function, *args, **kwargs):
        with server_clusters.ServerCluster(2, 2) as cluster:
            cluster.begin(function, str(self._directory), *args, **kwargs)
            self._wait_for_start()
            cluster.kill("ps", 1)
            with self.assertRaisesRegex(WorkerError, "Unavailable"):
                cluster.result()

    @some_of(True, False)
    def test_nothing_is_lost_when_a_new_cluster_restores_a_checkpoint(self, synchronous):
        kwargs = {
            "compression": tf_gc.ThreeLC(1.75),
            **_rounds(1 + synchronous),
        }
        self._save_until_a_server_is_killed(programs.push_and_save, 5, **kwargs)
        with server_clusters.ServerCluster(3, 2) as cluster:
            restored, read, after = cluster.run(
                programs.restore_and_push, str(self._directory), 7, **kwargs
            )
        self.assertGreaterEqual(restored[0], 10)
        self.assertEqual(after[0], restored[0] + 7)
        np.testing.assert_array_equal(read[0], restored[1])
        pushes_in_update = 1 + synchronous
        for count, values, residuals in (restored, after):
            for i in range(2):
                pushed = total([programs.gaussian([n, i]) for n in range(count)])
                delivered = -pushes_in_update * values[i]
                np.testing.assert_allclose(delivered + residuals[i], pushed, rtol=0, atol=1e-3)

    def test_without_a_worker_the_others_get_what_is_restored(self):
        with server_clusters.ServerCluster(3) as cluster:
            cluster.begin(programs.save_and_restore_without_a_worker, str(self._directory))
            self._wait_for_start()
            cluster.kill("worker", 1)
            (self._directory / "killed").touch()
            before, after = cluster.result()
        self.assertGreater(np.abs(before).max(), 0)
        np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-7)

    @in_test_long
    def test_what_is_saved_without_any_worker_has_no_second_moment(self):
        with server_clusters.ServerCluster(1) as cluster:
            cluster.begin(programs.save_without_any_worker, str(self._directory))
            self._wait_for_start()
            cluster.kill("worker", 0)
            (self._directory / "killed").touch()
            [second_moment] = cluster.result()
        np.testing.assert_array_equal(second_moment, np.zeros(48 + 64 + 1))

    def test_fit_goes_on_from_a_checkpoint_after_a_server_was_killed(self):
        kwargs = {"compression": tf_gc.ThreeLC()}
        self._save_until_a_server_is_killed(programs.fit_and_save, **kwargs)
        (self._directory / "stop").touch()
        with server_clusters.ServerCluster(2, 2) as cluster:
            epochs, begun = cluster.run(programs.fit_and_save, str(self._directory), **kwargs)
        self.assertGreaterEqual(begun, 40)
        self.assertLen(epochs, 1)
        self.assertGreater(epochs[0]["accuracy"], 0.75)

    @some_of({}, {"synchronous": True})
    def test_a_server_without_memory_for_a_push_says_so_and_nothing_is_lost(self, **kwargs):
        with server_clusters.ServerCluster(1) as cluster:
            cluster.begin(
                programs.push_to_a_server_without_memory,
                str(self._directory),
                compression=tf_gc.ThreeLC(),
                **kwargs,
            )
            self._wait_for_start()
            with _without_memory(cluster.pids["ps", 0]):
                (self._directory / "limited").touch()
                wait_until((self._directory / "refused").exists, "the push has ended")
            (self._directory / "unlimited").touch()
            error, lost = cluster.result()
        self.assertIn("use more servers, or machines with more memory", error)
        self.assertLess(lost, 1e-3)

    def test_a_server_without_tf_gc_is_named(self):
        with (
            server_clusters.ServerCluster(1, ps_program=programs.serve_without_tf_gc) as cluster,
            self.assertRaisesRegex(WorkerError, "ps 0 has not loaded tf_gc"),
        ):
            cluster.run(programs.make_strategy, compression=tf_gc.ThreeLC())

    def test_a_stopped_worker_does_not_hold_up_the_others(self):
        with server_clusters.ServerCluster(3) as cluster:
            cluster.begin(
                programs.updates_beside_a_stopped_worker,
                str(self._directory),
                intervals=20,
                compression=tf_gc.ThreeLC(),
                synchronous=True,
            )
            self._wait_for_start()
            cluster.stop("worker", 2)
            (self._directory / "stopped").touch()
            updates = cluster.result()
        # The machine may be busy.
        self.assertGreater(np.mean(np.greater(updates[2:], 0)), 0.8, updates)


if __name__ == "__main__":
    absltest.main()
