"""What tests of faults of workers and networks have in common."""

import pathlib
import tempfile

import reliability_programs as programs
from absl import logging
from absl.testing import parameterized

from tests.waiting import wait_until

# Of exchanges that are to end in vain; less than the 10 s after which TensorFlow misses heartbeats.
TIMEOUT_SECONDS = 5
# More than any limit of these tests, on a busy machine; docs/reliability.md says what is usual.
LONG_SECONDS = 60.0


class FaultTest(parameterized.TestCase):
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
            self.assertLess(end - begin, LONG_SECONDS)
        return [(name, message) for name, message, _ in outcomes]

    def check_timeout(self, error, other):
        name, message = error
        self.assertEqual(name, "DeadlineExceededError")
        expected = f"after {TIMEOUT_SECONDS} s without progress: .*task:{other}.*timeout_seconds"
        self.assertRegex(message, expected)
