"""The exchange ops between real processes."""

import exchange_programs as programs
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from tests.clusters import kill_in_a_step, shared_cluster
from tf_gc.testing.cluster import Cluster

_WORKERS = 3
_HEADER = 32
_HEAD = 64


def message_bytes(payload):
    """What a message with so many bytes of payload takes."""
    return max(_HEAD, _HEADER + payload)


class ThreeLcInUnitsTest(parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_every_shard_of_a_matrix_is_sent_in_one_magnitude_of_its_units(self, eager):
        rows, columns = [1.0, 1e-3, 100.0, 0.5, 1.0], list(np.linspace(0.1, 10, 48))
        results = shared_cluster(_WORKERS).run(
            programs.three_lc_in_units, rows, columns, eager=eager
        )
        total, _ = results[0]
        for reduced, _ in results:
            np.testing.assert_array_equal(reduced[0], total[0])
            np.testing.assert_array_equal(reduced[1], total[1])
        for i in range(2):
            given = sum(
                programs.gradients_in_units(rows, columns, worker)[i].astype(np.float64)
                for worker in range(_WORKERS)
            )
            kept = sum(residuals[i].astype(np.float64) for _, residuals in results)
            np.testing.assert_allclose(total[i] + kept, given, rtol=1e-5, atol=1e-6)
        in_units = np.abs(total[0]) / np.outer(rows, columns)
        self.assertTrue(np.all(np.any(in_units > 0, axis=1)), "no row is left out")
        magnitudes = in_units[in_units > 0].round(4)
        self.assertBetween(len(np.unique(magnitudes)), 1, _WORKERS)

    @parameterized.product(first=[None, 1e25, float("inf"), float("nan")], eager=[False, True])
    def test_the_same_is_sent_where_the_gradients_are_known_to_be_finite(self, first, eager):
        rows, columns = [1.0, 1e-3, 100.0, 0.5, 1.0], list(np.linspace(0.1, 10, 1000))
        unknown, known = (
            shared_cluster(_WORKERS).run(
                programs.three_lc_in_units,
                rows,
                columns,
                eager=eager,
                scale="unit",
                known=known,
                first=first,
            )
            for known in (False, True)
        )
        is_finite = first is None or np.isfinite(first)
        for one, other in zip(unknown, known, strict=True):
            self.assertEqual(np.all(np.isfinite(one[0][0])), is_finite)
            for i in range(2):
                np.testing.assert_array_equal(one[0][i], other[0][i])
                np.testing.assert_array_equal(one[1][i], other[1][i])

    def test_the_gradients_memory_becomes_the_residuals_and_that_becomes_the_sums(self):
        # The C library asks the kernel anew for each tensor of 48 MiB.
        for fresh in shared_cluster(_WORKERS).run(programs.fresh_tensors, 12 << 20):
            self.assertBetween(fresh, 1.9, 2.5)

    @parameterized.parameters(0.0, float("inf"), float("nan"))
    def test_a_unit_that_is_none_is_refused(self, unit):
        columns = list(np.linspace(0.1, 10, 48))
        with Cluster(1) as cluster:  # no later op of the group works
            [error] = cluster.outcomes(
                programs.three_lc_in_units, [1.0, unit, 1.0, 1.0, 1.0], columns, eager=True
            )
        self.assertIsInstance(error, tf.errors.InvalidArgumentError)
        self.assertIn("units[0] must be finite and above 0", error.message)


class ExchangeSumTest(parameterized.TestCase):
    @parameterized.product(
        topology=[("sharded", 1), ("ring", 1), ("tree", 1), ("torus", 1), ("torus", 3)],
        eager=[False, True],
    )
    def test_every_topology_gives_all_workers_the_sum(self, topology, eager):
        for size in (0, 1, 1001):
            expected = sum(programs.vector(size, worker) for worker in range(_WORKERS))
            for total, _ in shared_cluster(_WORKERS).run(
                programs.exchange_sum, size, *topology, eager=eager
            ):
                np.testing.assert_array_equal(total, expected)

    @parameterized.parameters("float16", "bfloat16")
    def test_short_floats_come_back_as_they_went(self, dtype):
        expected = sum(programs.vector(300, worker) for worker in range(_WORKERS))
        for total, _ in shared_cluster(_WORKERS).run(programs.exchange_sum, 300, "tree", 1, dtype):
            self.assertEqual(total.dtype, tf.as_dtype(dtype).as_numpy_dtype)
            np.testing.assert_array_equal(total.astype(np.float32), expected)

    @parameterized.parameters(
        ("torus", 2, "rows must divide the number of workers, 3, got 2"),
        ("ring", 3, "rows must be 1 for the topology ring, got 3"),
        ("star", 1, "topology"),
    )
    def test_a_topology_that_is_none_is_refused_and_does_no_harm(self, topology, rows, message):
        for error in shared_cluster(_WORKERS).outcomes(
            programs.exchange_sum, 10, topology, rows, eager=True
        ):
            self.assertIsInstance(error, tf.errors.InvalidArgumentError)
            self.assertIn(message, error.message)
        shared_cluster(_WORKERS).run(programs.exchange_sum, 10, "ring", 1)

    def test_a_torus_of_two_rows_gives_the_sum(self):
        expected = sum(programs.vector(5000, worker) for worker in range(4))
        for total, _ in shared_cluster(4).run(programs.exchange_sum, 5000, "torus", 2):
            np.testing.assert_array_equal(total, expected)

    def test_a_large_vector_gives_the_sum(self):
        size = 3_000_001  # of several pieces
        expected = sum(programs.vector(size, worker) for worker in range(_WORKERS))
        for total, _ in shared_cluster(_WORKERS).run(programs.exchange_sum, size, "ring", 1):
            np.testing.assert_array_equal(total, expected)

    @parameterized.parameters(("sharded", 1), ("ring", 1))
    def test_traffic_is_counted_up_and_down(self, topology, rows):
        size = 48 * _WORKERS  # shards of 48 values, in messages of one head each
        for _, traffic in shared_cluster(_WORKERS).run(programs.exchange_sum, size, topology, rows):
            self.assertGreaterEqual(traffic.pop("microseconds_waited"), 0)
            self.assertDictEqual(
                traffic,
                {
                    "steps": 0,
                    "exchanges": 1,
                    "bytes_sent": 2 * (_WORKERS - 1) * message_bytes(48 * 4),
                    "bytes_received": 2 * (_WORKERS - 1) * message_bytes(48 * 4),
                    "result_bytes_sent": (_WORKERS - 1) * message_bytes(48 * 4),
                    "values_sent": [0, 0],
                    "payload_bytes_sent": [0, 0],
                    "shared_bytes_sent": 2 * (_WORKERS - 1) * 48 * 4,
                },
            )

    def test_it_works_in_a_loop_in_a_function(self):
        values = [programs.vector(100, worker) for worker in range(_WORKERS)]
        for _ in range(3):
            total = sum(values)
            values = [total / 4 + np.float32(worker) for worker in range(_WORKERS)]
        for total, traffic in shared_cluster(_WORKERS).run(programs.sum_in_a_loop, 100, 3):
            np.testing.assert_array_equal(total, sum(values))
            self.assertEqual(traffic["exchanges"], 4)

    def test_buckets_do_not_wait_for_each_other(self):
        for totals in shared_cluster(_WORKERS).run(programs.two_buckets_at_once, 1000):
            for i, total in enumerate(totals):
                expected = sum(programs.vector(1000, w + 10 * i) for w in range(_WORKERS))
                np.testing.assert_array_equal(total, expected)


class CarriedTest(parameterized.TestCase):
    """Few values that travel in the messages of a vector."""

    @parameterized.parameters(
        ("exchange_sum", {"topology": "sharded"}, 3),
        ("exchange_sum", {"topology": "ring"}, 3),
        ("exchange_sum", {"topology": "tree"}, 3),
        ("exchange_sum", {"topology": "torus", "rows": 2}, 4),
        ("exchange_sign_merge", {"topology": "ring"}, 3),
        ("exchange_sign_merge", {"topology": "torus", "rows": 2}, 4),
        ("exchange_sign_majority", {}, 3),
        ("exchange_cascading_sign", {}, 3),
        ("exchange_sign_merge", {}, 1),
        ("exchange_sum", {"topology": "tree", "dtype": "bfloat16"}, 3),
        ("exchange_sum", {"topology": "sharded", "dtype": "float16"}, 3),
    )
    def test_their_sums_arrive_and_the_result_stays(self, op, attributes, workers):
        # A vector of one value has but one shard.
        for sizes in ((5000, 7), (1, 300), (300, 1), (5000, 0), (0, 5)):
            self._assert_arrive(op, *sizes, workers, eager=sizes[0] == 300, **attributes)

    def test_their_sums_arrive_with_a_vector_of_several_pieces(self):
        self._assert_arrive("exchange_sum", 3_000_001, 7, _WORKERS, topology="ring")

    def _assert_arrive(self, op, size, carried_size, workers, **arguments):
        expected = sum(programs.vector(carried_size, w + 10) for w in range(workers))
        results = shared_cluster(workers).run(programs.carried, op, size, carried_size, **arguments)
        for alone, _, together, _, sums in results:
            np.testing.assert_array_equal(together, alone)
            np.testing.assert_array_equal(sums, expected)
        added = sum(together - alone for _, alone, _, together, _ in results)
        self.assertEqual(added, 2 * (workers - 1) * 4 * carried_size)


class ExchangeBytesTest(parameterized.TestCase):
    """exchange_all_gather and exchange_broadcast."""

    @parameterized.product(
        sizes=[(0, 0, 0), (5, 0, 1000), (32, 33, 31), (9 << 20, 1, 5 << 20)],
        eager=[False, True],
    )
    def test_all_workers_gather_the_bytes_of_all(self, sizes, eager):
        expected = np.concatenate([programs.data(size, w) for w, size in enumerate(sizes)])
        results = shared_cluster(_WORKERS).run(programs.all_gather, sizes, eager)
        for worker, (gathered, gathered_sizes, traffic) in enumerate(results):
            np.testing.assert_array_equal(gathered, expected)
            self.assertEqual(gathered_sizes, list(sizes))
            self.assertEqual(traffic["bytes_sent"], 2 * message_bytes(sizes[worker]))
            self.assertEqual(traffic["shared_bytes_sent"], 2 * sizes[worker])
            self.assertEqual(traffic["result_bytes_sent"], 0)

    @parameterized.product(
        sizes=[(0, 5, 1000), (9 << 20, 33, 1)], root=[0, 1, 2], eager=[False, True]
    )
    def test_all_workers_receive_the_bytes_of_the_root(self, sizes, root, eager):
        expected = programs.data(sizes[root], root)
        results = shared_cluster(_WORKERS).run(programs.broadcast, sizes, root, eager)
        for received, _ in results:
            np.testing.assert_array_equal(received, expected)
        sent = [traffic["bytes_sent"] for _, traffic in results]
        results_sent = [traffic["result_bytes_sent"] for _, traffic in results]
        self.assertEqual(sum(results_sent), (_WORKERS - 1) * message_bytes(sizes[root]))
        # All others send one empty message.
        empty = [(worker != root) * message_bytes(0) for worker in range(_WORKERS)]
        self.assertEqual(sent, [sum(both) for both in zip(results_sent, empty, strict=True)])

    def test_they_work_under_a_condition(self):
        gathered = np.concatenate([programs.data(100, worker) for worker in range(_WORKERS)])
        for results in shared_cluster(_WORKERS).run(
            programs.under_a_condition, 100, [True, False, True]
        ):
            np.testing.assert_array_equal(results[0], gathered)
            np.testing.assert_array_equal(results[1], programs.data(100, 1))
            np.testing.assert_array_equal(results[2], gathered)

    @parameterized.parameters(range(_WORKERS))
    def test_the_root_may_be_known_at_run_time_only(self, root):
        numbers = [1.5 if worker == root else -1.0 for worker in range(_WORKERS)]
        for received in shared_cluster(_WORKERS).run(programs.largest_broadcasts, numbers, 300):
            np.testing.assert_array_equal(received, programs.data(300, root))


class OneWorkerTest(parameterized.TestCase):
    def test_exchanges_with_nobody_give_what_went_in_and_send_nothing(self):
        [(total, sum_traffic)] = shared_cluster(1).run(programs.exchange_sum, 100, "torus", 1)
        [(gathered, sizes, gather_traffic)] = shared_cluster(1).run(programs.all_gather, [70])
        [(received, broadcast_traffic)] = shared_cluster(1).run(programs.broadcast, [70], 0)
        np.testing.assert_array_equal(total, programs.vector(100, 0))
        np.testing.assert_array_equal(gathered, programs.data(70, 0))
        np.testing.assert_array_equal(received, programs.data(70, 0))
        self.assertEqual(sizes, [70])
        for traffic in (sum_traffic, gather_traffic, broadcast_traffic):
            self.assertEqual(traffic["bytes_sent"], 0)


class FailureTest(parameterized.TestCase):
    """Each on a cluster of its own, as a failed collective runtime stays failed."""

    @parameterized.parameters(
        ("exchange_sum", {"values": [[1.0]]}, "values must be a vector"),
        ("exchange_broadcast", {"data": np.zeros([3], np.uint8), "root": 2}, "root must be"),
        ("exchange_broadcast", {"data": np.zeros([3], np.uint8), "root": [0]}, "root must be"),
        ("exchange_all_gather", {"data": np.zeros([], np.uint8)}, "data must be a vector"),
        ("exchange_all_gather", {"data": np.zeros([3], np.uint8), "max_bytes": 2**32}, "max_bytes"),
        (
            "exchange_broadcast",
            {"data": np.zeros([3], np.uint8), "root": 0, "max_bytes": 2**32},
            "max_bytes",
        ),
    )
    def test_a_bad_argument_is_refused_by_name(self, op, arguments, message):
        with Cluster(2) as cluster:
            for error in cluster.outcomes(programs.bad_exchange, op, **arguments):
                self.assertIsInstance(error, tf.errors.InvalidArgumentError)
                self.assertRegex(error.message, message)

    def test_workers_that_exchange_different_things_get_an_error_that_says_so(self):
        with Cluster(2) as cluster:
            errors = cluster.outcomes(programs.different_exchanges)
        for error in errors:
            self.assertIsInstance(error, tf.errors.OpError)
            self.assertIn("codec", error.message)

    def test_messages_that_memory_does_not_suffice_for_are_resource_exhausted(self):
        with Cluster(2) as cluster:
            errors = cluster.outcomes(programs.gather_more_than_memory_holds)
        self.assertIsInstance(errors[0], tf.errors.ResourceExhaustedError)
        for error in errors:
            self.assertIn("no memory", error.message)

    def test_a_worker_that_does_not_come_is_deadline_exceeded(self):
        with Cluster(3) as cluster:
            errors = cluster.outcomes(programs.one_never_comes, 2, 5.0)
        self.assertIsInstance(errors[0], tf.errors.DeadlineExceededError)
        self.assertIn("task:2", errors[0].message)
        self.assertIsNone(errors[2])

    @parameterized.parameters(0, 1)
    def test_the_death_of_a_worker_is_unavailable_on_all_others(self, victim):
        with Cluster(_WORKERS) as cluster:
            cluster.run(programs.exchange_sum, 10, "ring", 1)
            errors = kill_in_a_step(cluster, victim, programs.exchange_for_ever)
        self.assertEqual(errors, ["UnavailableError"] * (_WORKERS - 1))


if __name__ == "__main__":
    absltest.main()
