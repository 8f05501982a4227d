"""What waits for somebody who does not come, says so, and does not wait for ever.

Most of the time of these tests is spent waiting, so that others may run beside them.
"""

import pathlib
import time

import reliability_programs as programs
import tensorflow as tf
from absl import logging
from absl.testing import absltest, parameterized

from tests import server_clusters
from tests.cases import some_of
from tests.faults import LONG_SECONDS, TIMEOUT_SECONDS, FaultTest
from tests.listening import listening
from tests.waiting import wait_until
from tf_gc.server_watch import SILENCE_SECONDS
from tf_gc.testing.cluster import Cluster


class StepsTest(FaultTest):
    """A worker that takes fewer steps than the others."""

    def test_others_stop_waiting_for_it_after_the_timeout(self):
        with Cluster(2) as cluster:
            cluster.begin(
                programs.reduce_until_an_error,
                str(self.directory),
                timeout_seconds=TIMEOUT_SECONDS,
                last_step=3,
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


class StartTest(FaultTest):
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
            cluster.begin(
                programs.reduce_until_an_error,
                str(self.directory),
                timeout_seconds=TIMEOUT_SECONDS,
            )
            [error] = cluster.end([1])
        logging.info("after %.1f s", time.monotonic() - begin)
        self.assertIsInstance(error, tf.errors.AbortedError)
        # TensorFlow's words, before and after it misses the heartbeats of the one that was killed.
        self.assertRegex(error.message, "It has likely restarted|while it is already in error")


class SilentServerTest(FaultTest):
    """SIGSTOP of a process that a chief, or a worker, of parameter servers waits for."""

    @some_of("join", "read")
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
        self.assertBetween(end - begin, SILENCE_SECONDS, SILENCE_SECONDS + LONG_SECONDS)

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


if __name__ == "__main__":
    absltest.main()
