"""The exchanges of lanes and of signs between real processes."""

import lane_sign_exchange_programs as programs
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from tests.clusters import shared_cluster
from tf_gc.testing.cluster import Cluster

_TABLE = [0, 1, 2, 4, 6, 8, 10, 13, 17, 20, 22, 24, 26, 28, 29, 30]


def bits(size, worker):
    return programs.values(size, worker) >= 0


def unpack(packed, size):
    """The bits of the values; those of padding must be 0."""
    unpacked = np.unpackbits(packed, bitorder="little")
    assert not unpacked[size:].any()
    return unpacked[:size].astype(bool)


class LaneSumTest(parameterized.TestCase):
    @parameterized.parameters(
        (3, "sharded", 1), (3, "ring", 1), (3, "torus", 3), (4, "torus", 2), (4, "sharded", 1)
    )
    def test_all_workers_get_the_sums_of_table_values(self, workers, topology, rows):
        for size, lanes in ((0, "uint8"), (1003, "uint8"), (1003, "uint16")):
            table = np.array(_TABLE, np.int32) * (1 if lanes == "uint8" else 500)
            expected = sum(table[programs.indices(size, 4, w)] for w in range(workers))
            for sums, _ in shared_cluster(workers).run(
                programs.lane_sum, size, 4, table, lanes, topology, rows
            ):
                self.assertEqual(sums.dtype, lanes)
                np.testing.assert_array_equal(sums, expected)

    def test_a_workers_own_values_travel_as_indices_and_sums_as_lanes(self):
        size = 3 * 160  # shards of 160 values
        for eager in (False, True):
            for _, sent in shared_cluster(3).run(
                programs.lane_sum, size, 4, np.array(_TABLE, np.int32), "uint8", "sharded", 1, eager
            ):
                self.assertEqual(sent, 2 * 80 + 2 * 140)  # no sum takes more than 7 bits

    def test_sums_of_several_pieces(self):
        size = 7_000_003
        table = np.array([0, 1, 2, 3], np.int32)
        expected = sum(table[programs.indices(size, 2, w)] for w in range(3))
        for sums, _ in shared_cluster(3).run(
            programs.lane_sum, size, 2, table, "uint16", "ring", 1
        ):
            np.testing.assert_array_equal(sums, expected)


class SignMergeTest(parameterized.TestCase):
    @parameterized.parameters((3, "ring", 1), (3, "torus", 1), (4, "torus", 2))
    def test_bits_are_the_same_everywhere_and_those_that_all_share_stay(
        self, workers, topology, rows
    ):
        size = 100_003
        ones = sum(bits(size, worker).astype(int) for worker in range(workers))
        results = shared_cluster(workers).run(programs.sign_merge, size, [5, 6], topology, rows)
        again = shared_cluster(workers).run(
            programs.sign_merge, size, [5, 6], topology, rows, eager=True
        )
        for merged, _ in results + again:
            np.testing.assert_array_equal(merged, results[0][0])
        merged = unpack(results[0][0], size)
        for count in range(workers + 1):
            mean = merged[ones == count].mean()
            draws = (ones == count).sum()
            probability = count / workers
            # Five standard deviations.
            bound = 5 * np.sqrt(probability * (1 - probability) / draws)
            self.assertBetween(mean, probability - bound, probability + bound)

    def test_other_seeds_give_other_bits(self):
        first, second, third = (
            shared_cluster(3).run(programs.sign_merge, 1000, seed, "ring")[0][0]
            for seed in ([1, 0], [2, 0], [1, 1])
        )
        self.assertTrue((first != second).any())
        self.assertTrue((first != third).any())

    def test_every_hop_takes_one_bit_per_value(self):
        size = 3 * 1280
        for _, sent in shared_cluster(3).run(programs.sign_merge, size, 0, "ring"):
            self.assertEqual(sent, 4 * 1280 // 8)


class SignMajorityTest(parameterized.TestCase):
    @parameterized.product(workers=[3, 4], size=[0, 1, 5003])
    def test_bit_is_one_where_half_of_the_workers_have_one(self, workers, size):
        expected = 2 * sum(bits(size, worker).astype(int) for worker in range(workers)) >= workers
        for eager in (False, True):
            for majority, _ in shared_cluster(workers).run(programs.sign_majority, size, eager):
                np.testing.assert_array_equal(unpack(majority, size), expected)


class CascadingSignTest(parameterized.TestCase):
    @parameterized.parameters(3, 4)
    def test_all_workers_get_plus_or_minus_one_norm_per_shard(self, workers):
        size = 160 * workers
        results = shared_cluster(workers).run(programs.cascading_sign, size, [1, 2])
        again = shared_cluster(workers).run(programs.cascading_sign, size, [1, 2], eager=True)
        for total, _ in results + again:
            np.testing.assert_array_equal(total, results[0][0])
        for shard in np.split(np.abs(results[0][0]), workers):
            self.assertGreater(shard[0], 0)
            np.testing.assert_array_equal(shard, shard[0])

    def test_the_mean_over_seeds_is_the_sum(self):
        size, draws = 48, 200  # shards of 16 values
        totals = shared_cluster(3).run(programs.cascading_signs, size, range(draws))[0]
        expected = sum(programs.values(size, worker) for worker in range(3))
        # Five standard deviations.
        bound = 5 * totals.std(axis=0) / np.sqrt(draws)
        np.testing.assert_array_less(np.abs(totals.mean(axis=0) - expected), bound)


class OneWorkerTest(absltest.TestCase):
    def test_exchanges_with_nobody_give_what_went_in(self):
        cluster = shared_cluster(1)
        table = np.array(_TABLE, np.int32)
        [(sums, _)] = cluster.run(programs.lane_sum, 101, 4, table, "uint8", "ring")
        np.testing.assert_array_equal(sums, table[programs.indices(101, 4, 0)])
        [(merged, _)] = cluster.run(programs.sign_merge, 101, 0, "torus")
        [(majority, _)] = cluster.run(programs.sign_majority, 101)
        for packed in (merged, majority):
            np.testing.assert_array_equal(unpack(packed, 101), bits(101, 0))


class BadArgumentTest(parameterized.TestCase):
    """Each on a cluster of its own, as a failed collective runtime stays failed."""

    @parameterized.parameters(
        (
            "exchange_lane_sum",
            ([0], [0, 0, 0, -1], 4),
            {"bits": 2, "lanes": "uint8"},
            "table must hold values in 0",
        ),
        ("exchange_lane_sum", ([0], [0, 0], 8), {"bits": 1, "lanes": "uint8"}, "bits must be"),
        ("exchange_sign_merge", ([0], 9, 0), {}, "packed must have 2 bytes"),
        ("exchange_sign_merge", ([0], 8, 0), {"topology": "torus", "rows": 3}, "rows must divide"),
        (
            "exchange_lane_sum",
            ([0], [0, 0, 0, 1], 4),
            {"bits": 2, "lanes": "uint8", "topology": "tree"},
            "the lane exchange does not run on the topology tree, but on sharded, ring, torus",
        ),
        (
            "exchange_sign_merge",
            ([0], 8, 0),
            {"topology": "sharded"},
            "the sign merge exchange does not run on the topology sharded, but on ring, torus",
        ),
        ("exchange_sign_majority", ([0], -1), {}, "size must not be negative"),
        ("exchange_cascading_sign", ([[0.0]], 0), {}, "values must be a vector"),
    )
    def test_it_is_refused_by_name(self, op, inputs, attributes, message):
        with Cluster(1) as cluster:
            [error] = cluster.outcomes(programs.bad_exchange, op, inputs, **attributes)
        self.assertIsInstance(error, tf.errors.InvalidArgumentError)
        self.assertRegex(error.message, message)

    def test_a_table_whose_sums_do_not_fit_is_refused(self):
        with Cluster(2) as cluster:
            for error in cluster.outcomes(
                programs.bad_exchange,
                "exchange_lane_sum",
                ([0], [0, 0, 0, 128], 4),
                bits=2,
                lanes="uint8",
            ):
                self.assertIsInstance(error, tf.errors.InvalidArgumentError)
                self.assertIn("table must hold values of at most 255 / 2", error.message)

    def test_padding_that_is_not_zero_is_data_loss(self):
        with Cluster(1) as cluster:
            [error] = cluster.outcomes(programs.bad_exchange, "exchange_sign_majority", ([16], 4))
        self.assertIsInstance(error, tf.errors.DataLossError)
        self.assertIn("padding bits of 0", error.message)


if __name__ == "__main__":
    absltest.main()
