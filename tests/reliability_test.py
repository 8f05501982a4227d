"""Faults of workers and of the network between them; docs/reliability.md lists them all."""

import os
import pathlib
import subprocess
import tempfile
import time

import numpy as np
import reliability_programs as programs
import tensorflow as tf
from absl import logging
from absl.testing import absltest, parameterized

import tf_gc
from tests import server_clusters
from tests.listening import listening
from tests.waiting import wait_until
from tf_gc.network_namespaces import why_unavailable
from tf_gc.server_watch import SILENCE_SECONDS
from tf_gc.testing.cluster import Cluster

# More than any limit of these tests, on a busy machine; docs/reliability.md says what is usual.
_LONG_SECONDS = 60.0

_needs_namespaces = absltest.skipIf(
    why_unavailable(), f"no network namespaces here: {why_unavailable()}"
)


class _ReliabilityTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))

    def begin(self, cluster, **kwargs):
        """Workers reduce; returns when both have done so."""
        cluster.begin(programs.reduce_until_an_error, str(self.directory), **kwargs)
        for worker in range(2):
            wait_until((self.directory / str(worker)).exists, f"worker {worker} takes steps")

    def errors(self, cluster, workers, begin):
        """The names and messages of workers' errors, none of which comes too late."""
        outcomes = cluster.results(workers)
        for worker, (name, _, end) in zip(workers, outcomes, strict=True):
            logging.info("worker %d: %s after %.1f s", worker, name, end - begin)
            self.assertLess(end - begin, _LONG_SECONDS)
        return [(name, message) for name, message, _ in outcomes]

    def check_timeout(self, error, other):
        name, message = error
        self.assertEqual(name, "DeadlineExceededError")
        self.assertRegex(message, f"after 5 s without progress: .*task:{other}.*timeout_seconds")


class StoppedWorkerTest(_ReliabilityTest):
    """SIGSTOP: the kernel answers for the process, and nobody else does."""

    @parameterized.parameters(0, 1)
    def test_it_is_noticed_by_tensorflow(self, victim):
        with Cluster(2) as cluster:
            self.begin(cluster)
            begin = time.monotonic()
            cluster.stop(victim)
            [(name, _)] = self.errors(cluster, [1 - victim], begin)
        self.assertIn(name, ("UnavailableError", "DeadlineExceededError"))

    @parameterized.parameters(0, 1)
    def test_it_is_noticed_after_the_timeout_and_named(self, victim):
        with Cluster(2) as cluster:
            self.begin(cluster, timeout_seconds=5)
            begin = time.monotonic()
            cluster.stop(victim)
            [error] = self.errors(cluster, [1 - victim], begin)
        self.check_timeout(error, victim)


@_needs_namespaces
class NetworkTest(_ReliabilityTest):
    """Links that drop everything, or are slow."""

    @parameterized.parameters(None, 5)
    def test_a_worker_that_is_cut_off_is_noticed_on_both_sides(self, timeout_seconds):
        with Cluster(2, bandwidth="100mbit") as cluster:
            self.begin(cluster, timeout_seconds=timeout_seconds)
            begin = time.monotonic()
            cluster.network.cut(1)
            errors = self.errors(cluster, [0, 1], begin)
        for worker, (name, message) in enumerate(errors):
            if timeout_seconds:
                self.check_timeout((name, message), 1 - worker)
            else:
                self.assertIn(name, ("UnavailableError", "DeadlineExceededError"))

    def test_an_exchange_that_takes_longer_than_the_timeout_goes_on_while_it_moves(self):
        timeout_seconds = 8
        # Half of 1 MiB travels up, then half of it down: 4.2 seconds each on this link.
        with Cluster(2, bandwidth="1mbit") as cluster:
            results = cluster.run(
                programs.reduce_once, str(self.directory), tf_gc.Policy(), 512, timeout_seconds
            )
        for seconds, is_right in results:
            self.assertGreater(seconds, timeout_seconds)
            self.assertTrue(is_right)

    def test_a_connection_of_which_packets_are_dropped_is_closed(self):
        with Cluster(2, bandwidth="100mbit") as cluster:
            cluster.begin(programs.wait_for_an_answer, str(self.directory))
            for worker in range(2):
                wait_until((self.directory / str(worker)).exists, f"worker {worker} is there")
            begin = time.monotonic()
            cluster.network.cut(1)
            [end] = cluster.results([0])
            (self.directory / "end").touch()
        self.assertBetween(end - begin, SILENCE_SECONDS, SILENCE_SECONDS + _LONG_SECONDS)

    def test_a_large_message_on_a_slow_link_is_no_silence(self):
        # 2 MiB take 17 seconds, and TensorFlow's heartbeats wait behind them.
        with Cluster(2, bandwidth="1mbit") as cluster:
            seconds = cluster.run(programs.make_variable, 724, timeout_seconds=60)
        self.assertGreater(max(seconds), 10)  # TensorFlow's limit


class StepsTest(_ReliabilityTest):
    """A worker that takes fewer steps than the others."""

    def test_others_stop_waiting_for_it_after_the_timeout(self):
        with Cluster(2) as cluster:
            cluster.begin(
                programs.reduce_until_an_error, str(self.directory), timeout_seconds=5, last_step=3
            )
            [error] = self.errors(cluster, [0], self._end())
        self.check_timeout(error, 1)

    def test_others_say_what_they_wait_for(self):
        with Cluster(2, {"TF_CPP_MIN_LOG_LEVEL": "1"}) as cluster:
            cluster.begin(programs.reduce_until_an_error, str(self.directory), last_step=3)
            self._end()
            log = pathlib.Path(cluster.log(0))
            wait_until(
                lambda: (
                    "waits for 30 s: nothing comes from /job:worker/replica:0/task:1"
                    in log.read_text(encoding="utf-8")
                ),
                "a warning names the worker",
            )
            self.assertIn("the exchange of matrix", log.read_text(encoding="utf-8"))

    def test_others_notice_that_its_program_has_ended(self):
        with Cluster(2) as cluster:
            cluster.begin(
                programs.reduce_until_an_error, str(self.directory), last_step=3, leaves=True
            )
            begin = self._end()
            [(name, _)] = self.errors(cluster, [0], begin)
        self.assertEqual(name, "UnavailableError")

    def _end(self):
        """When worker 1 has taken its last step."""
        end = self.directory / "end"
        return float(wait_until(lambda: end.exists() and end.read_text(), "worker 1 has ended"))


class StartTest(_ReliabilityTest):
    """Workers that do not start together."""

    @parameterized.parameters(None, 100)
    def test_the_first_waits_for_a_late_one(self, timeout_seconds):
        with Cluster(2) as cluster:
            cluster.begin(programs.start_late, str(self.directory), timeout_seconds)
            wait_until(lambda: listening(cluster.pids[0]), "worker 0 waits")
            late = time.monotonic()
            (self.directory / "go").touch()
            for end in cluster.results():
                self.assertGreater(end, late)

    def test_one_that_is_started_again_alone_is_told_so(self):
        with Cluster(2) as cluster:
            self.begin(cluster)
            cluster.kill(1)
            cluster.results([0])  # its runtime has failed, and its process lives
            cluster.start(1)
            begin = time.monotonic()
            cluster.begin(programs.reduce_until_an_error, str(self.directory), timeout_seconds=5)
            [error] = cluster.end([1])
        logging.info("after %.1f s", time.monotonic() - begin)
        self.assertIsInstance(error, tf.errors.AbortedError)
        self.assertIn("It has likely restarted", error.message)


class SilentServerTest(_ReliabilityTest):
    """SIGSTOP of a process that a chief, or a worker, of parameter servers waits for."""

    @parameterized.parameters("join", "read")
    def test_what_waits_for_a_stopped_server_ends(self, way):
        with server_clusters.ServerCluster(2, 2) as cluster:
            cluster.begin(programs.push_until_an_error, str(self.directory), way)
            wait_until((self.directory / "started").exists, "training has begun")
            begin = time.monotonic()
            cluster.stop("ps", 1)
            (self.directory / "stopped").touch()
            name, message, end = cluster.result()
        logging.info("%s after %.1f s: %s", name, end - begin, message)
        self.assertEqual(name, "UnavailableError")
        self.assertBetween(end - begin, SILENCE_SECONDS, SILENCE_SECONDS + _LONG_SECONDS)

    def test_the_step_of_a_stopped_worker_is_taken_by_another(self):
        with server_clusters.ServerCluster(2) as cluster:
            cluster.begin(programs.push_until_an_error, str(self.directory), "join")
            wait_until((self.directory / "started").exists, "training has begun")
            cluster.stop("worker", 1)
            (self.directory / "stopped").touch()
            joins = self.directory / "joins"
            wait_until(joins.exists, "a join that began after that has ended")
            used = cluster.processor_seconds("worker", 1)
            cluster.resume("worker", 1)
            wait_until(
                lambda: cluster.processor_seconds("worker", 1) > used + 1, "it takes steps again"
            )
            (self.directory / "end").touch()
            self.assertIsNone(cluster.result())


class DiskTest(_ReliabilityTest):
    @absltest.skipIf(os.geteuid() != 0, "mounting a small disk needs root")
    def test_a_full_disk_leaves_the_checkpoint_before(self):
        disk = self.directory / "1"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "disk", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        with Cluster(2) as cluster:
            other, (name, message, saved, found) = cluster.run(
                programs.save_until_an_error, str(self.directory), 5
            )
        logging.info("%s: %s, and on the other worker %s", name, message, other)
        self.assertEqual(name, "ResourceExhaustedError")
        self.assertIn("No space left on device", message)
        self.assertGreater(saved, 0)
        self.assertEqual(found, saved)
        self.assertEqual(other[0], "DeadlineExceededError")


class KillTest(_ReliabilityTest):
    def test_a_kill_while_it_is_written_leaves_the_checkpoint_before(self):
        with Cluster(2) as cluster:
            _, died = cluster.outcomes(programs.die_while_saving, str(self.directory))
        self.assertIn("the process died", str(died))
        folder = self.directory / "1"
        self.assertNotEmpty(list(folder.glob("ckpt-2*")))  # what it was writing
        latest = tf.train.latest_checkpoint(str(folder))
        self.assertEndsWith(latest, "ckpt-1")
        found = tf.train.load_checkpoint(latest)
        expected = tf.train.load_checkpoint(str(self.directory / "0" / "ckpt-1"))
        names = set(found.get_variable_to_shape_map()) - {"_CHECKPOINTABLE_OBJECT_GRAPH"}
        self.assertContainsSubset(
            [f"{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in ("steps", "residuals/matrix")], names
        )
        for name in names:
            np.testing.assert_array_equal(found.get_tensor(name), expected.get_tensor(name))


if __name__ == "__main__":
    absltest.main()
