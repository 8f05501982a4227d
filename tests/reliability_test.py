"""Faults of workers and of the network between them; docs/reliability.md lists them all."""

import os
import subprocess
import time

import numpy as np
import reliability_programs as programs
import tensorflow as tf
from absl import logging
from absl.testing import absltest

import tf_gc
from tests.cases import some_of
from tests.faults import LONG_SECONDS, TIMEOUT_SECONDS, FaultTest
from tests.waiting import wait_until
from tf_gc.network_namespaces import why_unavailable
from tf_gc.server_watch import SILENCE_SECONDS
from tf_gc.testing.cluster import Cluster

_needs_namespaces = absltest.skipIf(
    why_unavailable(), f"no network namespaces here: {why_unavailable()}"
)


class StoppedWorkerTest(FaultTest):
    """SIGSTOP: the kernel answers for the process, and nobody else does."""

    @some_of(0, 1)
    def test_it_is_noticed_by_tensorflow(self, victim):
        with Cluster(2) as cluster:
            self.begin(cluster)
            begin = time.monotonic()
            cluster.stop(victim)
            [(name, _)] = self.errors(cluster, [1 - victim], begin)
        self.assertIn(name, ("UnavailableError", "DeadlineExceededError"))

    @some_of(1, 0)
    def test_it_is_noticed_after_the_timeout_and_named(self, victim):
        with Cluster(2) as cluster:
            self.begin(cluster, timeout_seconds=TIMEOUT_SECONDS)
            begin = time.monotonic()
            cluster.stop(victim)
            [error] = self.errors(cluster, [1 - victim], begin)
        self.check_timeout(error, victim)


@_needs_namespaces
class NetworkTest(FaultTest):
    """Links that drop everything, or are slow."""

    @some_of(TIMEOUT_SECONDS, None)
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
        self.assertBetween(end - begin, SILENCE_SECONDS, SILENCE_SECONDS + LONG_SECONDS)

    def test_a_large_message_on_a_slow_link_is_no_silence(self):
        # 2 MiB take 17 seconds, and TensorFlow's heartbeats wait behind them.
        with Cluster(2, bandwidth="1mbit") as cluster:
            seconds = cluster.run(programs.make_variable, 724, timeout_seconds=60)
        self.assertGreater(max(seconds), 10)  # TensorFlow's limit


class DiskTest(FaultTest):
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


class KillTest(FaultTest):
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
