"""What measures links: ops, probes and the program."""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
from unittest import mock

import link_probe_programs as programs
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from tf_gc.strategy import link_probe

import tf_gc
from tests.cases import some_of
from tests.clusters import shared_cluster
from tf_gc import launch
from tf_gc.adaptive import LinkEstimator
from tf_gc.testing.cluster import Cluster

_WORKERS = 3
_HEADER = 32
_HEAD = 64
_RATE = 1e7  # of links that only exist as numbers, in bits per second
_PACKAGE_ROOT = pathlib.Path(tf_gc.__file__).resolve().parents[1]


_ALONE = {"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}


def _config(type_, cluster=_ALONE):
    return json.dumps({"cluster": cluster, "task": {"type": type_, "index": 0}})


class NetworkSamplesTest(parameterized.TestCase):
    def test_bytes_after_the_heads_are_counted_once(self):
        sizes = [0, _HEAD - _HEADER, _HEAD, 1000, 9 << 20]
        expected = sum(max(0, _HEADER + size - _HEAD) for size in sizes)
        for samples, again in shared_cluster(_WORKERS).run(programs.gather, sizes):
            self.assertEqual(samples.dtype, np.float64)
            size, seconds, transfers, is_asked_for = samples.T
            self.assertEqual(size.sum(), (_WORKERS - 1) * expected)
            self.assertEqual(transfers.sum(), (_WORKERS - 1) * (1 + 1 + 3))
            self.assertTrue(np.all(seconds > 0))
            self.assertTrue(np.all(is_asked_for == 1))
            self.assertEqual(again.shape, (0, 4))

    def test_a_function_takes_them_each_time_that_it_runs(self):
        for _, after, shape in shared_cluster(_WORKERS).run(programs.samples_in_a_function):
            self.assertEqual(after[:, 0].sum(), (_WORKERS - 1) * (1000 + _HEADER - _HEAD))
            self.assertEqual(shape.as_list(), [None, 4])

    def test_links_are_measured_in_steps_that_are_told_to(self):
        rest = _HEADER + 1000 - _HEAD  # of the first step, of which there is no history
        for measured in shared_cluster(_WORKERS).run(programs.measured_steps, 9, 1000, "latency"):
            self.assertEqual(list(measured), [0, 4, 8])
            for step, samples in measured.items():
                expected = _HEADER + (rest if step == 0 else 0)
                self.assertEqual(samples[:, 0].sum(), (_WORKERS - 1) * expected)
                self.assertEqual({*samples[:, 3]}, {1})

    def test_bandwidth_is_measured_without_a_request(self):
        size = 1 << 20
        for measured in shared_cluster(_WORKERS).run(
            programs.measured_steps, 41, size, "bandwidth"
        ):
            del measured[0]  # in which what follows the heads is asked for
            self.assertNotEmpty(measured)
            self.assertContainsSubset(measured, range(4, 41, 4))
            for samples in measured.values():
                self.assertEqual({*samples[:, 3]}, {0})
                self.assertEqual({*samples[:, 0] % (_HEADER + size)}, {0})


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


class FarLinksTest(parameterized.TestCase):
    """Links of 10 Mbit/s, on which a round trip takes longer than many bytes do."""

    @parameterized.parameters(1e-3, 0.06, 0.3)
    def test_a_probe_of_all_goes_on_until_bytes_tell_the_bandwidth(self, round_trip):
        def gather(exchange, data):
            exchange.samples.append(np.array([[data.size, round_trip + _transfer(data.size), 1]]))
            return np.tile(data, 2)

        estimator = LinkEstimator()
        with mock.patch.object(link_probe._AllGather, "__call__", gather):
            estimator.add(link_probe.probe(2, 60.0))
        self.assertAlmostEqual(estimator.network.bandwidth / _RATE, 1, places=3)
        self.assertAlmostEqual(estimator.network.latency, round_trip / 2, places=4)

    @parameterized.parameters(1e-3, 0.06, 0.3)
    def test_a_probe_of_pairs_goes_on_until_bytes_take_longer_than_round_trips(self, round_trip):
        sizes = []

        def send(to_all, *_, **__):
            sizes.append(to_all[1])
            return tf.constant([0, _seconds(to_all, round_trip)[1]], tf.float64)

        def gather(own, *_, **__):
            of_other = np.roll(own, own.size // 2)
            return mock.Mock(gathered=tf.concat([own, of_other], 0))

        with mock.patch.multiple(link_probe.ops, exchange_probe=send, exchange_all_gather=gather):
            [[_, link], _] = link_probe.probe_links(2, 60.0)
        self.assertAlmostEqual(link.bandwidth / _RATE, 1, places=3)
        self.assertAlmostEqual(link.latency, round_trip / 2, places=4)
        self.assertGreater(_transfer(max(sizes)), 2 * round_trip)

    def test_short_messages_have_an_estimate_too(self):
        """As where a pause kept them from growing."""
        sizes = np.array([0] * 4 + [1 << 10, 1 << 12, 1 << 14] + [1 << 16] * 6)
        latency, bandwidth = link_probe._estimate(sizes, _seconds(sizes, 0.06))
        self.assertAlmostEqual(bandwidth / _RATE, 1, places=3)
        self.assertAlmostEqual(latency, 0.03, places=4)


def _transfer(size):
    return 8 * size / _RATE


def _seconds(sizes, round_trip):
    """Returns what messages and their empty answers take: a long one is asked for once more."""
    return np.where(sizes == 0, round_trip, 2 * round_trip + _transfer(sizes))


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

    def test_a_chief_has_its_own_name(self):
        jobs = ("chief", "worker")
        addresses = [[f"127.0.0.1:{port}"] for port in launch.free_ports(2)]
        cluster = dict(zip(jobs, addresses, strict=True))

        def run(job):
            return self.run_program(["tf_gc.adaptive.probe"], TF_CONFIG=_config(job, cluster))

        with concurrent.futures.ThreadPoolExecutor() as pool:
            of_chief, of_worker = pool.map(run, jobs)
        self.assertEqual(of_chief.returncode, 0, of_chief.stderr)
        names = re.findall(r"^│ (\w+ \d) ", of_chief.stdout, re.MULTILINE)
        self.assertEqual(names, ["chief 0", "worker 0"])
        self.assertEqual(of_worker.stdout, "")

    @some_of(
        ("", "TF_CONFIG is not set: start it with tf_gc-launch --workers 2 probe"),
        (_config("worker"), "links are between two workers or more, and TF_CONFIG has 1"),
        ("{", "TF_CONFIG does not describe a cluster"),
        (_config("ps"), 'task.type is "ps", and links are between workers'),
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
