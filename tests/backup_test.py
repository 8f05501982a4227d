"""tf_gc.keras.BackupAndRestore, and TensorFlow's checkpoints, on clusters of real processes."""

import contextlib
import http.server
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
from unittest import mock

import backup_programs as programs
import keras
import numpy as np
import server_clusters
import tensorflow as tf
from absl.testing import absltest, parameterized

import tf_gc
from tests.cases import in_test_long, some_of, some_of_named
from tests.clusters import shared_cluster
from tf_gc.testing.cluster import Cluster, WorkerError

_LEGACY_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
_STEPS = [(e, b) for e in range(programs.EPOCHS) for b in range(programs.BATCHES)]

_one_keras = some_of({}, _LEGACY_KERAS)  # or both

_uninterrupted = {}


def uninterrupted(environment, compression, workers=2, **kwargs):
    """What a training without backups ends with."""
    key = (workers, str(compression), *environment, *kwargs.items())
    if key not in _uninterrupted:
        cluster = shared_cluster(workers, **environment)
        _uninterrupted[key] = cluster.run(programs.fit, None, compression, **kwargs)
    return _uninterrupted[key]


def interrupted(environment, function, *args, workers=2, **kwargs):
    """Runs a function, which some worker does not survive, on a cluster of its own."""
    with Cluster(workers, environment) as cluster:
        outcomes = cluster.outcomes(function, *args, **kwargs)
    for outcome in outcomes:
        if not isinstance(outcome, (WorkerError, OSError, tf.errors.OpError)):
            raise AssertionError(f"a worker was not interrupted: {outcome}")
    return outcomes


class _BackupTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.create_tempdir().full_path

    def check_same_end(self, actual, expected, first_step):
        """Checks that a training went on at a step, and ended as another one did."""
        for ours, theirs in zip(actual, expected, strict=True):
            self.assertEqual(ours["steps"], _STEPS[_STEPS.index(first_step) :])
            epochs = range(first_step[0], programs.EPOCHS)
            self.assertEqual(ours["logs"], [(epoch, True) for epoch in epochs])
            for name in ("variables", "residuals", "slots"):
                np.testing.assert_equal(ours[name], theirs[name])
            self.assertNotEmpty(ours["residuals"])


class RestartTest(_BackupTest):
    """A training that was killed ends as one that was not."""

    # Keras 3 with folders of their own, or tf_keras.
    @some_of(({}, True), (_LEGACY_KERAS, False))
    def test_it_goes_on_within_an_epoch(self, environment, own_directories):
        arguments = {"save_freq": 3, "own_directories": own_directories}
        interrupted(
            environment, programs.fit, self.directory, tf_gc.ThreeLC(), (1, 1, 2), **arguments
        )
        cluster = shared_cluster(2, **environment)
        results = cluster.run(programs.fit, self.directory, tf_gc.ThreeLC(), seed=1, **arguments)
        self.check_same_end(results, uninterrupted(environment, tf_gc.ThreeLC()), (1, 1))

    @some_of_named(
        ("at_an_epoch_keras_3", {}, 2, {}),
        ("behind_its_last_batch_tf_keras", _LEGACY_KERAS, 1, {"save_freq": programs.BATCHES}),
        ("behind_its_last_batch_keras_3", {}, 1, {"save_freq": programs.BATCHES}),
        count=2,
    )
    def test_it_goes_on(self, environment, workers, arguments):
        fit = programs.fit, self.directory, tf_gc.ThreeLC()
        interrupted(environment, *fit, (0, 1, 2), workers=workers, **arguments)
        results = shared_cluster(workers, **environment).run(*fit, seed=1, **arguments)
        expected = uninterrupted(environment, tf_gc.ThreeLC(), workers)
        self.check_same_end(results, expected, (1, 0))

    @in_test_long
    def test_it_goes_on_within_an_epoch_where_a_callback_evaluates_before(self):
        fit = programs.fit, self.directory, tf_gc.ThreeLC()
        arguments = {"save_freq": 3, "evaluates": True}
        interrupted({}, *fit, (0, 1, 2), workers=1, **arguments)
        results = shared_cluster(1).run(*fit, seed=1, **arguments)
        self.check_same_end(results, uninterrupted({}, tf_gc.ThreeLC(), workers=1), (1, 1))

    @in_test_long
    def test_it_goes_on_where_the_program_restores_a_checkpoint_before(self):
        restored = self.create_tempdir().full_path
        arguments = {"save_freq": 3, "restored": restored}
        shared_cluster(2).run(programs.checkpoint_of_fit, restored, tf_gc.ThreeLC(), True)
        expected = shared_cluster(2).run(programs.fit, None, tf_gc.ThreeLC(), restored=restored)
        interrupted({}, programs.fit, self.directory, tf_gc.ThreeLC(), (1, 1, 2), **arguments)
        results = shared_cluster(2).run(
            programs.fit, self.directory, tf_gc.ThreeLC(), seed=1, **arguments
        )
        self.check_same_end(results, expected, (1, 1))

    @in_test_long
    def test_it_goes_on_where_parameters_have_optimizers_of_their_own(self):
        if not hasattr(keras.optimizers, "MultiOptimizer"):
            self.skipTest("this version of Keras has no MultiOptimizer")
        arguments = {"save_freq": 3, "several_optimizers": True}
        interrupted(
            {}, programs.fit, self.directory, tf_gc.ThreeLC(), (0, 1, 2), workers=1, **arguments
        )
        results = shared_cluster(1).run(
            programs.fit, self.directory, tf_gc.ThreeLC(), seed=1, **arguments
        )
        expected = uninterrupted({}, tf_gc.ThreeLC(), workers=1, several_optimizers=True)
        self.check_same_end(results, expected, (1, 1))

    @_one_keras
    def test_it_goes_on_behind_the_last_batch_of_a_dataset_of_unknown_size(self, **environment):
        fit = programs.fit, self.directory, tf_gc.ThreeLC()
        kwargs = {"save_freq": programs.BATCHES, "is_size_known": False}
        interrupted(environment, *fit, (0, 1, 2), workers=1, **kwargs)
        [result] = shared_cluster(1, **environment).run(*fit, seed=1, **kwargs)
        self.assertEqual(result["steps"], _STEPS[programs.BATCHES :])
        self.assertEqual(result["logs"], [(1, True), (2, True)])

    @in_test_long
    def test_it_goes_on_behind_a_last_execution_that_goes_beyond_the_epoch(self):
        fit = programs.fit, self.directory, tf_gc.ThreeLC()
        kwargs = {"save_freq": programs.BATCHES + 1, "steps_per_execution": 3}
        interrupted({}, *fit, (0, 1, 2), workers=1, **kwargs)
        [result] = shared_cluster(1).run(*fit, seed=1, **kwargs)
        self.assertEqual(result["logs"], [(1, True), (2, True)])

    @some_of(
        (tf_gc.DiLoCo(inner_steps=4, compression=tf_gc.ThreeLC()),),
        (tf_gc.PowerSGD(rank=2),),
        (None,),
    )
    def test_whatever_compresses(self, compression):
        arguments = {"save_freq": 3}
        interrupted({}, programs.fit, self.directory, compression, (1, 1, 2), **arguments)
        results = shared_cluster(2).run(
            programs.fit, self.directory, compression, seed=1, **arguments
        )
        self.check_same_end(results, uninterrupted({}, compression), (1, 1))

    @in_test_long
    def test_one_worker_goes_on_too(self):
        arguments = {"save_freq": 3, "workers": 1}
        interrupted({}, programs.fit, self.directory, tf_gc.ThreeLC(), (0, 1, 2), **arguments)
        results = shared_cluster(1).run(
            programs.fit, self.directory, tf_gc.ThreeLC(), seed=1, save_freq=3
        )
        self.check_same_end(results, uninterrupted({}, tf_gc.ThreeLC(), workers=1), (1, 1))


class FitTest(_BackupTest):
    @_one_keras
    def test_a_second_fit_begins_at_its_begin(self, **environment):
        [steps] = shared_cluster(1, **environment).run(programs.fit_again, self.directory)
        first = [(0, batch) for batch in range(programs.BATCHES)]
        self.assertEqual(steps, [(1, batch) for _, batch in first] + first)

    @parameterized.parameters(
        programs.fit_with_tf_keras_imported, programs.fit_with_an_optimizer_of_its_own
    )
    def test_it_takes_any_model(self, program):
        [files] = shared_cluster(1).run(program, self.directory)
        self.assertEqual(files, ["worker-0"])

    @parameterized.parameters(
        ({"backup_dir": ""}, "backup_dir must be a folder"),
        ({"backup_dir": "gs://bucket/backups"}, "backup_dir must be a folder"),
        ({"save_freq": "batch"}, "save_freq must be"),
        ({"save_freq": -1}, "save_freq must be"),
        ({"save_freq": True}, "save_freq must be"),
        ({"save_freq": False}, "save_before_preemption must be True"),
    )
    def test_a_wrong_argument_is_named(self, arguments, message):
        with self.assertRaisesRegex(ValueError, message):
            tf_gc.keras.BackupAndRestore(**{"backup_dir": "backups", **arguments})

    @in_test_long
    @_one_keras
    def test_a_saved_model_has_no_trace_of_compression(self, **environment):
        cluster = shared_cluster(2, **environment)
        for saved, (loaded, own) in cluster.run(
            programs.saved_bytes, self.directory, tf_gc.ThreeLC()
        ):
            np.testing.assert_allclose(loaded, own, rtol=1e-5)
            self.assertGreater(len(saved), 1000)
            for trace in (b"tf_gc", b"TfGc", b"residual", b"ThreeLC", b"second_moment"):
                self.assertNotIn(trace, saved)


class WritingTest(_BackupTest):
    """What happens while a backup is written."""

    @some_of(3, 2, 1)
    def test_a_kill_while_it_is_written_leaves_the_one_before(self, call):
        # Of each backup there are two calls: before it has its name, and after.
        victim = call % 2
        interrupted(
            {}, programs.fit_and_die_while_writing, self.directory, tf_gc.ThreeLC(), victim, call
        )
        mine, others = (
            [part for part in programs.found(self.directory) if part.startswith(f"worker-{w}/")]
            for w in (victim, 1 - victim)
        )
        self.assertLen(mine, call // 2)
        whole = min(len(mine), len(others))
        results = shared_cluster(2).run(
            programs.fit, self.directory, tf_gc.ThreeLC(), seed=int(whole > 0), save_freq=2
        )
        self.check_same_end(results, uninterrupted({}, tf_gc.ThreeLC()), _STEPS[2 * whole])

    @in_test_long
    @absltest.skipIf(os.geteuid() != 0, "mounting a small disk needs root")
    def test_a_full_disk_leaves_the_one_before(self):
        disk = pathlib.Path(self.directory, "worker-1")
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "backups", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        with Cluster(2) as cluster:
            cluster.begin(programs.fit, self.directory, tf_gc.ThreeLC(), save_freq=2)
            [error] = cluster.end([1])
            cluster.kill(1)  # which the other one waits for
            cluster.end([0])
        self.assertIn("No space left on device", str(error))
        subprocess.run(["mount", "-o", "remount,size=10m", disk], check=True)
        self.assertFalse((disk / "unfinished").exists())
        whole = len([part for part in programs.found(self.directory) if "worker-1/" in part])
        self.assertBetween(whole, 1, 2)
        results = shared_cluster(2).run(
            programs.fit, self.directory, tf_gc.ThreeLC(), seed=1, save_freq=2, delete=False
        )
        self.check_same_end(results, uninterrupted({}, tf_gc.ThreeLC()), _STEPS[2 * whole])

    def test_what_an_earlier_program_has_not_deleted_is_deleted(self):
        left = pathlib.Path(self.directory, "deleted-worker-0")
        left.mkdir()
        (left / "file").touch()
        shared_cluster(2).run(programs.fit, self.directory, tf_gc.ThreeLC(), epochs=1)
        self.assertFalse(os.path.exists(self.directory))

    @some_of(True, False)
    def test_the_last_two_are_kept_and_deleted_at_the_end(self, delete):
        shared_cluster(2).run(
            programs.fit, self.directory, tf_gc.ThreeLC(), save_freq=2, delete=delete
        )
        kept = [f"worker-{w}/backup-{n}-of-2" for w in range(2) for n in (6, 7)]
        self.assertEqual(programs.found(self.directory), [] if delete else kept)
        self.assertEqual(os.path.exists(self.directory), not delete)


class OtherWorkersTest(_BackupTest):
    """Another number of workers than that which wrote the backup."""

    @some_of((2, 3), (2, 1))  # and back
    def test_the_sum_of_the_residuals_stays(self, before, after):
        saved = shared_cluster(before).run(
            programs.fit, self.directory, tf_gc.ThreeLC(), epochs=1, delete=False
        )
        restored = shared_cluster(after).run(
            programs.fit, self.directory, tf_gc.ThreeLC(), epochs=1, delete=False, seed=1
        )
        for name in saved[0]["residuals"]:
            total = sum(result["residuals"][name] for result in saved)
            self.assertGreater(np.abs(total).max(), 0)
            for result in restored:
                self.assertEqual(result["steps"], [])
                np.testing.assert_allclose(result["residuals"][name] * after, total, atol=1e-5)
        trained = shared_cluster(after).run(
            programs.fit, self.directory, tf_gc.ThreeLC(), epochs=2, delete=False, seed=1
        )
        for result in trained:
            self.assertEqual(result["steps"], [(1, b) for b in range(programs.BATCHES)])
        parts = programs.found(self.directory)
        self.assertContainsSubset([f"worker-{w}/backup-2-of-{after}" for w in range(after)], parts)
        # And back again: the newest counts, not that of as many workers.
        back = shared_cluster(before).run(
            programs.fit, self.directory, tf_gc.ThreeLC(), epochs=2, seed=1
        )
        np.testing.assert_equal(back[0]["steps"], [])

    @in_test_long
    def test_the_mean_of_outer_residuals_stays(self):
        diloco = tf_gc.DiLoCo(programs.BATCHES, compression=tf_gc.ThreeLC())
        arguments = programs.fit, self.directory, diloco
        saved, restored = (
            [
                {n: v for n, v in result["slots"].items() if "outer_gradient_residual" in n}
                for result in shared_cluster(workers).run(*arguments, epochs=1, delete=False)
            ]
            for workers in (2, 3)
        )
        for name in saved[0]:
            mean = np.mean([slots[name] for slots in saved], axis=0)
            self.assertGreater(np.abs(mean).max(), 0)
            for slots in restored:
                np.testing.assert_allclose(slots[name], mean, atol=1e-6)

    def test_what_cannot_be_found_is_named(self):
        arguments = {"own_directories": True, "epochs": 1, "delete": False}
        shared_cluster(2).run(programs.fit, self.directory, tf_gc.ThreeLC(), **arguments)
        for error in shared_cluster(3).outcomes(
            programs.fit, self.directory, tf_gc.ThreeLC(), **arguments
        ):
            self.assertIsInstance(error, FileNotFoundError)
            self.assertRegex(str(error), "worker 0 has not got .*/worker-1/backup-1-of-2. Start 2")


class _MetadataServer(http.server.BaseHTTPRequestHandler):
    """What a machine of Google's cloud can ask what it is."""

    def do_GET(self):
        self.server.requests.append(self.path)
        self.send_response(200)
        self.end_headers()


@contextlib.contextmanager
def google_cloud():
    """Yields the environment variables of one of its machines, and what is asked there."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _MetadataServer) as server:
        server.requests = []
        threading.Thread(target=server.serve_forever).start()
        try:
            yield {"GCE_METADATA_IP": f"127.0.0.1:{server.server_port}"}, server.requests
        finally:
            server.shutdown()


class PreemptionTest(_BackupTest):
    """SIGTERM to one worker makes all of them save, and exit."""

    @_one_keras
    def test_fit_goes_on_where_it_was_told_to_end(self, **environment):
        arguments = {"save_before_preemption": True, "save_freq": False}
        with google_cloud() as (variables, requests):
            interrupted(
                {**environment, **variables},
                programs.fit,
                self.directory,
                tf_gc.ThreeLC(),
                (1, 1, 1, signal.SIGTERM),
                **arguments,
            )
        self.assertEqual(requests, [])
        self.assertLen(programs.found(self.directory), 2)
        with Cluster(2, environment) as cluster:
            results = cluster.run(
                programs.fit, self.directory, tf_gc.ThreeLC(), seed=1, **arguments
            )
        first = results[0]["steps"][0]
        self.assertBetween(first, (1, 2), (2, 0))
        self.check_same_end(results, uninterrupted(environment, tf_gc.ThreeLC()), first)

    def test_a_second_fit_of_the_program_is_told_to_end_too(self):
        interrupted({}, programs.fit_twice, self.directory, (1, 0, 1, signal.SIGTERM))
        self.assertLen(programs.found(self.directory), 2)
        for worker in range(2):
            watchers = pathlib.Path(self.directory, f"watchers-{worker}").read_text()
            self.assertEqual(watchers, f"PeerTerminationWatcher-{worker}")


class LaunchTest(_BackupTest):
    def test_a_job_whose_worker_was_killed_ends_as_if_it_had_not_been(self):
        program = self.create_tempfile("train.py", _PROGRAM).full_path
        lines = []
        arguments = [os.path.join(self.directory, "backups"), self.directory]
        with mock.patch.dict(
            os.environ,
            PYTHONPATH=os.pathsep.join(filter(None, sys.path)),
            CUDA_VISIBLE_DEVICES="",
        ):
            code = tf_gc.launch.launch(
                [sys.executable, "-u", program, *arguments],
                workers=2,
                max_restarts=1,
                on_line=lines.append,
            )
        said = [line.text for line in lines if line.process == "tf_gc-launch"]
        self.assertEqual(code, 0, "\n".join(line.text for line in lines))
        self.assertEqual(said[0], "worker 1 failed first: killed by SIGKILL")
        self.assertIn("all workers start again", said)
        results = [
            pickle.loads(pathlib.Path(self.directory, str(worker)).read_bytes())
            for worker in range(2)
        ]
        self.check_same_end(results, uninterrupted({}, tf_gc.ThreeLC()), (1, 1))


_PROGRAM = """
import pathlib
import pickle
import sys

import backup_programs as programs

import tf_gc

backups, results = sys.argv[1:]
is_first = not pathlib.Path(backups).exists()
result = programs.fit(
    backups, tf_gc.ThreeLC(), (1, 1, 2) if is_first else None, seed=int(not is_first), save_freq=3
)
pathlib.Path(results, str(programs.rank())).write_bytes(pickle.dumps(result))
"""


class ServersTest(_BackupTest):
    """Parameter servers."""

    def test_the_program_goes_on_at_an_epoch_with_all_residuals(self):
        with (
            mock.patch.dict(os.environ, _LEGACY_KERAS),
            server_clusters.ServerCluster(2) as cluster,
        ):
            _, saved, _ = cluster.run(programs.fit_on_servers, self.directory, 1, seed=0)
            self.assertGreater(np.abs(saved[-2]).max(), 0)
            restored, _, epochs = cluster.run(programs.fit_on_servers, self.directory, 3, seed=1)
            errors = [
                cluster.outcome(programs.fit_on_servers, self.directory, 3, seed=1, **arguments)
                for arguments in ({"save_freq": 2}, {"save_before_preemption": True})
            ]
        self.assertEqual(epochs, [1, 2])
        for ours, theirs in zip(restored, saved, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
        for error in errors:
            self.assertIn("with parameter servers save_freq must be 'epoch'", str(error))


class TensorFlowTest(_BackupTest):
    """tf.train.Checkpoint, its manager, and PreemptionCheckpointHandler."""

    def check_conserved(self, results, steps):
        totals, residuals = [r[1] for r in results], [r[2] for r in results]
        put_in = sum(programs.gradient(w, s) for w in range(2) for s in range(steps))
        np.testing.assert_array_equal(*totals)
        np.testing.assert_allclose(totals[0] + sum(residuals), put_in, atol=1e-4)
        self.assertGreater(np.abs(totals[0] - put_in).max(), 0.1)

    def test_nothing_is_lost_through_a_checkpoint_manager(self):
        shared_cluster(2).run(programs.sum_gradients, self.directory, 3, False)
        results = shared_cluster(2).run(programs.sum_gradients, self.directory, 6, False)
        self.assertEqual([first for first, _, _ in results], [3, 3])
        self.check_conserved(results, 6)

    def test_nothing_is_lost_through_a_preemption(self):
        interrupted({}, programs.sum_gradients, self.directory, 50, True, terminated=1)
        with Cluster(2) as cluster:
            results = cluster.run(programs.sum_gradients, self.directory, 10, True)
        self.assertEqual(results[0][0], results[1][0])
        self.assertBetween(results[0][0], 3, 5)
        self.check_conserved(results, 10)

    def test_the_first_save_in_the_background_comes_after_the_first_step(self):
        save = programs.save_in_the_background, self.directory
        for sums, saved in shared_cluster(2).run(*save, True):
            np.testing.assert_equal(saved, sums)
        with Cluster(2) as cluster:
            for error in cluster.outcomes(*save, False):
                self.assertIsInstance(error, tf.errors.FailedPreconditionError)
                self.assertIn("asynchronous save must come after the first step", str(error))

    @some_of(3, 2)
    def test_a_checkpoint_has_what_a_backup_had_for_slots_that_no_step_has_made(self, restored_by):
        arguments = programs.residuals_saved_after_fit, self.directory, tf_gc.ThreeLC()
        saved = shared_cluster(2).run(*arguments)[0]
        for again in shared_cluster(restored_by).run(*arguments):
            self.assertCountEqual(again, saved)
            for name, value in saved.items():
                np.testing.assert_allclose(again[name], value, atol=1e-5, err_msg=name)
        slots = {name.rpartition(":")[2].partition("/")[0] for name in saved}
        self.assertContainsSubset({"residuals", "second_moment", "steps"}, slots)

    @some_of(
        (None, False, tf_gc.ThreeLC(), "has no residuals for any variable, which begin at 0"),
        (tf_gc.ThreeLC(), True, None, "has residuals, .* and this program, which compresses noth"),
        (tf_gc.ThreeLC(), True, tf_gc.Policy(tf_gc.ThreeLC(), min_elements=2000), "so far: .*kern"),
        (tf_gc.ThreeLC(), True, tf_gc.ThreeLC(), None),
        (None, True, None, None),
    )
    def test_one_line_says_what_residuals_are_missing_or_left_out(
        self, before, has_residuals, after, message
    ):
        cluster = shared_cluster(2)
        cluster.run(programs.checkpoint_of_fit, self.directory, before, has_residuals)
        backups = os.path.join(self.directory, "backups")
        cluster.run(programs.fit, backups, before, epochs=1, delete=False)
        for warnings in [
            *cluster.run(programs.warnings_after_restoring, self.directory, after),
            *cluster.run(programs.warnings_of_fit, backups, after, delete=False),
        ]:
            self.assertLen(warnings, int(message is not None))
            if message:
                self.assertRegex(warnings[0], message)


if __name__ == "__main__":
    absltest.main()
