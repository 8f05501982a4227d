"""What is measured of real links: ops, probes and the program."""

import json
import os
import pathlib
import re
import subprocess
import sys

import link_probe_programs as programs
import numpy as np
import tensorflow as tf
from absl import logging
from absl.testing import absltest, parameterized

import tf_gc
from tests.clusters import one, shared_cluster
from tf_gc.network_namespaces import why_unavailable
from tf_gc.testing.cluster import Cluster

_WORKERS = 3
_HEADER = 32
_HEAD = 64
_PACKAGE_ROOT = pathlib.Path(tf_gc.__file__).resolve().parents[1]

_needs_namespaces = absltest.skipIf(
    why_unavailable(), f"no network namespaces here: {why_unavailable()}"
)


def _config(type_):
    cluster = {"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}
    return json.dumps({"cluster": cluster, "task": {"type": type_, "index": 0}})


class NetworkSamplesTest(parameterized.TestCase):
    def test_bytes_after_the_heads_are_counted_once(self):
        sizes = [0, _HEAD - _HEADER, _HEAD, 1000, 9 << 20]
        expected = sum(max(0, _HEADER + size - _HEAD) for size in sizes)
        for samples, again in shared_cluster(_WORKERS).run(programs.gather, sizes):
            self.assertEqual(samples.dtype, np.float64)
            size, seconds, transfers = samples.T
            self.assertEqual(size.sum(), (_WORKERS - 1) * expected)
            self.assertEqual(transfers.sum(), (_WORKERS - 1) * (1 + 1 + 3))
            self.assertTrue(np.all(seconds > 0))
            self.assertEqual(again.shape, (0, 3))

    def test_a_function_takes_them_each_time_that_it_runs(self):
        for _, after, shape in shared_cluster(_WORKERS).run(programs.samples_in_a_function):
            self.assertEqual(after[:, 0].sum(), (_WORKERS - 1) * (1000 + _HEADER - _HEAD))
            self.assertEqual(shape.as_list(), [None, 3])

    def test_links_are_measured_in_steps_that_are_told_to(self):
        # Step 0 measures, and so keeps no sizes, without which step 1 begins with heads, too.
        for measured in shared_cluster(_WORKERS).run(programs.measured_steps, 9, 1000):
            self.assertEqual(measured, [0, 1, 4, 8])


class ExchangeProbeTest(parameterized.TestCase):
    @parameterized.parameters(2, 3, 4)
    def test_each_hears_of_each_whatever_they_send(self, workers):
        sizes = [[1000 * (sender + to) for to in range(workers)] for sender in range(workers)]
        outcomes = shared_cluster(workers).run(programs.exchange_probe, sizes)
        for rank, (seconds, bytes_sent) in enumerate(outcomes):
            self.assertEqual([s > 0 for s in seconds], [to != rank for to in range(workers)])
            payload = sum(_HEADER + sizes[rank][to] for to in range(workers) if to != rank)
            self.assertEqual(bytes_sent, payload + 2 * _HEAD * (workers - 1))

    @parameterized.parameters(
        ([0, -1], {}, "sizes must be 0 ... 2147483647 (max_bytes), got -1"),
        ([0, 11], {"max_bytes": 10}, "sizes must be 0 ... 10 (max_bytes), got 11"),
        ([0, 0, 0], {}, "sizes must have one number for each of the 2 workers, got 3"),
    )
    def test_wrong_sizes_are_refused(self, sizes, arguments, message):
        with Cluster(2) as cluster:  # no later op of the group works
            [error, _] = cluster.outcomes(programs.exchange_probe, [sizes, [0, 0]], **arguments)
        self.assertIsInstance(error, tf.errors.InvalidArgumentError)
        self.assertIn(message, error.message)


@_needs_namespaces
class RateTest(parameterized.TestCase):
    """Links of known rates."""

    @parameterized.parameters(("10mbit", 1e7), ("100mbit", 1e8))
    def test_probes_find_the_rate(self, bandwidth, rate):
        with Cluster(_WORKERS, bandwidth=bandwidth) as cluster:
            outcomes = cluster.run(programs.estimate)
            links = one(cluster.run(programs.links))
        for network, seconds in outcomes:
            logging.info("%s in %.2f s", network, seconds)
            # All send to all in short bursts, which TCP does not share out evenly.
            self.assertBetween(network.bandwidth / rate, 0.3, 1.25)
            self.assertBetween(network.latency, 0, 0.05)
        for sender, row in enumerate(links):
            for receiver, link in enumerate(row):
                logging.info("%d > %d: %s", sender, receiver, link)
                if sender == receiver:
                    self.assertIsNone(link)
                else:
                    self.assertBetween(link.bandwidth / rate, 0.75, 1.25)
                    self.assertBetween(link.latency, 0, 0.05)


class ProgramTest(parameterized.TestCase):
    def run_program(self, command, **environment):
        return subprocess.run(
            [sys.executable, "-m", *command],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(_PACKAGE_ROOT), *filter(None, sys.path)]),
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def test_it_prints_the_matrix_once(self):
        result = self.run_program(["tf_gc.launch", "--workers=3", "probe"])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertLen(re.findall(r"\d+\.\d\d ms", result.stdout), 6)
        self.assertLen(re.findall(r"[\d.]+ [MG]bit/s", result.stdout), 6)
        self.assertEqual({line.split("]")[0] for line in result.stdout.splitlines()}, {"[worker 0"})

    @parameterized.parameters(
        ("", "TF_CONFIG is not set: start it with tf_gc-launch --workers 2 probe"),
        ("{", "TF_CONFIG does not describe a cluster"),
        (_config("ps"), 'task.type is "ps", and links are between workers'),
        (_config("worker"), "links are between two workers or more, and TF_CONFIG has 1"),
    )
    def test_wrong_use_is_named(self, config, message):
        result = self.run_program(["tf_gc.adaptive.probe"], TF_CONFIG=config)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(message, result.stdout + result.stderr)

    def test_an_argument_is_refused(self):
        result = self.run_program(["tf_gc.adaptive.probe", "more"])
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("unexpected argument: more", result.stdout + result.stderr)


if __name__ == "__main__":
    absltest.main()
