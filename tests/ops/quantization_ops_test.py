"""tf_gc.ops: the ops of quantisation, eagerly and in a tf.function."""

import hypothesis
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import philox_reference, testing
from tests.ops.op_testing import MODES, OpTestCase, as_bytes, philox_words, traced
from tf_gc import kernels, ops

_BITS = (2, 3, 4, 5, 8)


def _levels(count):
    return np.sort(testing.gaussian(count, count))


def _indices(size, bits):
    return np.random.default_rng(size).integers(0, 2**bits, size).astype(np.uint8)


class StochasticQuantizeTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_by_hand(self, compile_function):
        quantize = compile_function(ops.stochastic_quantize)
        values = tf.constant([-1, 0, 0.5, 4, -2, 5, np.inf, -np.inf, np.nan], tf.float32)
        for seed in range(5):
            indices = quantize(values, tf.constant([-1, 0, 0.5, 4]), tf.constant(seed))
            self.assertEqual(indices.dtype, tf.uint8)
            self.assertEqual(indices.numpy().tolist(), [0, 1, 2, 3, 0, 3, 3, 0, 0])

    @parameterized.parameters(0, 7, -7, 2**31 - 1, 2**40 + 3, -(2**63))
    def test_the_random_bits_are_those_of_tensorflow(self, key):
        for stream in (0, 1, -2, 2**33):
            size = 1003
            words = philox_words((key, stream), -(-size // 8))
            halves = philox_reference.halves(words)[:size]
            r = (halves.astype(np.float32) + 0.5) / 65536
            values = np.random.default_rng(1).random(size, np.float32)
            seed = tf.constant([key, stream], tf.int64)
            indices = ops.stochastic_quantize(values, [0.0, 1.0], seed)
            np.testing.assert_array_equal(indices, values > r)

    def test_seeds_of_both_types_are_sign_extended(self):
        values, levels = np.full(500, 0.5, np.float32), [0.0, 1.0]
        expected = kernels.stochastic_quantize(values, np.array(levels, np.float32), -7)
        for seed in [
            tf.constant(-7),
            tf.constant(-7, tf.int64),
            tf.constant([-7, 0]),
            tf.constant([-7, 0], tf.int64),
        ]:
            np.testing.assert_array_equal(ops.stochastic_quantize(values, levels, seed), expected)

    @parameterized.parameters(2, 4, 7, 16, 32, 100, 256)
    def test_ops_and_numpy_agree(self, count):
        for shape in [(), (0,), (3, 0), (7,), (3, 5, 41), (300007,)]:
            values, levels = testing.gaussian(shape), _levels(count)
            indices = ops.stochastic_quantize(values, levels, [1, 2])
            expected = kernels.stochastic_quantize(values, levels, [1, 2])
            np.testing.assert_array_equal(indices, expected)
            self.assertEqual(indices.shape, shape)

    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_half_precision_is_quantized_as_its_float32(self, dtype):
        values = tf.cast(testing.gaussian((10, 1000)), dtype)
        np.testing.assert_array_equal(
            ops.stochastic_quantize(values, _levels(16), 3),
            ops.stochastic_quantize(tf.cast(values, tf.float32), _levels(16), 3),
        )

    def test_seed_and_levels_may_change_without_a_new_trace(self):
        quantize = tf.function(ops.stochastic_quantize)
        values = tf.constant(testing.gaussian(100))
        for seed in range(3):
            levels = _levels(16) * (seed + 1)
            np.testing.assert_array_equal(
                quantize(values, tf.constant(levels), tf.constant(seed)),
                kernels.stochastic_quantize(values.numpy(), levels, seed),
            )
        self.assertEqual(quantize.experimental_get_tracing_count(), 1)


class PackingTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_by_hand(self, compile_function):
        pack = compile_function(lambda indices: ops.pack_bits(indices, 3))
        unpack = compile_function(lambda packed, size: ops.unpack_bits(packed, 3, size))
        self.assertEqual(pack(as_bytes([5, 1, 6])).numpy().tolist(), [0b10001101, 1])
        for dtype in (tf.int32, tf.int64):
            indices = unpack(as_bytes([0b10001101, 1]), tf.constant(3, dtype))
            self.assertEqual(indices.numpy().tolist(), [5, 1, 6])

    @hypothesis.given(st.sampled_from(_BITS), st.integers(0, 300))
    def test_unpacking_inverts_packing(self, bits, size):
        indices = _indices(size, bits)
        packed = ops.pack_bits(indices, bits)
        np.testing.assert_array_equal(packed, kernels.pack_bits(indices, bits))
        np.testing.assert_array_equal(ops.unpack_bits(packed, bits, size), indices)

    @parameterized.parameters(*_BITS)
    def test_a_million_indices_come_back(self, bits):
        indices = _indices(1000003, bits)
        packed = ops.pack_bits(indices, bits)
        np.testing.assert_array_equal(packed, kernels.pack_bits(indices, bits))
        np.testing.assert_array_equal(ops.unpack_bits(packed, bits, 1000003), indices)


class TableSumTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_by_hand(self, compile_function):
        table_sum = compile_function(lambda *args: ops.table_sum(*args[:2], 2, args[2]))
        packed = ops.pack_bits(as_bytes([0, 1, 2, 3, 3]), 2)
        sums = table_sum(packed, tf.constant([0, 2, 3, 4]), as_bytes([10, 10, 10, 10, 255]))
        self.assertEqual(sums.dtype, tf.uint8)
        self.assertEqual(sums.numpy().tolist(), [10, 12, 13, 14, 3])

    @parameterized.product(bits=_BITS, dtype=[np.uint8, np.uint16])
    def test_ops_and_numpy_agree(self, bits, dtype):
        table = np.random.default_rng(bits).integers(0, np.iinfo(dtype).max, 2**bits, dtype)
        for shape in [(), (0,), (3, 0), (7,), (3, 5, 41), (300007,)]:
            size = int(np.prod(shape))
            accumulator = np.full(shape, 200, dtype)
            packed = kernels.pack_bits(_indices(size, bits), bits)
            sums = ops.table_sum(packed, table.astype(np.int32), bits, accumulator)
            np.testing.assert_array_equal(sums, kernels.table_sum(packed, table, bits, accumulator))
            self.assertEqual(sums.shape, shape)

    def test_tables_may_be_tuples(self):
        sums = ops.table_sum(as_bytes([0b11100100]), (0, 13, 21, 34), 2, as_bytes([0] * 4))
        self.assertEqual(sums.numpy().tolist(), [0, 13, 21, 34])

    def test_an_accumulator_that_is_used_again_is_not_overwritten(self):
        @tf.function
        def steps(packed, start):
            accumulator = start + 1
            first = ops.table_sum(packed, (0, 1, 2, 3), 2, accumulator)
            second = ops.table_sum(packed, (0, 1, 2, 3), 2, accumulator)
            return first, second, accumulator

        first, second, accumulator = steps(as_bytes([0b11100100]), as_bytes([5] * 4))
        self.assertEqual(first.numpy().tolist(), [6, 7, 8, 9])
        self.assertEqual(second.numpy().tolist(), [6, 7, 8, 9])
        self.assertEqual(accumulator.numpy().tolist(), [6] * 4)

    def test_sums_of_workers_give_the_average(self):
        # All of THC between the transforms: quantise, pack, sum, decode.
        table, granularity, workers = (0, 3, 5, 7, 9, 11, 13, 16), 16, 10
        levels = np.float32(2) * np.array(table, np.float32) / granularity - 1
        values = np.clip(testing.gaussian((workers, 1000)), -1, 1)
        sums = tf.zeros([1000], tf.uint8)
        expected = np.zeros(1000)
        for worker in range(workers):
            indices = ops.stochastic_quantize(values[worker], levels, [1, worker])
            expected += levels.astype(float)[indices.numpy()]
            sums = ops.table_sum(ops.pack_bits(indices, 3), table, 3, sums)
        decoded = 2 * sums.numpy().astype(float) / granularity - workers
        np.testing.assert_allclose(decoded, expected, atol=1e-6)


class ThreadsTest(OpTestCase):
    def test_any_number_of_threads_gives_the_same(self):
        size = 300007
        values, levels, indices = testing.gaussian(size), _levels(16), _indices(size, 5)
        packed = kernels.pack_bits(indices, 5)
        zeros = np.zeros(size, np.uint16)

        def results(values, indices, packed, zeros):
            return (
                ops.stochastic_quantize(values, levels, 5),
                ops.pack_bits(indices, 5),
                ops.unpack_bits(packed, 5, size),
                ops.table_sum(packed, np.arange(32), 5, zeros),
            )

        same = self.assert_same_on_any_threads(results, values, indices, packed, zeros)
        np.testing.assert_array_equal(same[0], kernels.stochastic_quantize(values, levels, 5))
        np.testing.assert_array_equal(same[1], packed)
        np.testing.assert_array_equal(same[2], indices)
        np.testing.assert_array_equal(same[3], indices)


class ErrorTest(OpTestCase):
    def test_bad_levels_are_refused(self):
        for message, levels in [
            ("levels must be 2 to 256, got 1", [0.0]),
            ("levels must be 2 to 256, got 257", [0.0] * 257),
            ("levels must be finite and ascending, got 1 at index 2", [0.0, 2.0, 1.0]),
            ("levels .*got nan at index 1", [0.0, np.nan]),
            ("levels .*got inf at index 2", [0.0, 1.0, np.inf]),
            ("levels must be a vector", [[0.0, 1.0]]),
        ]:
            self.assert_invalid(message, ops.stochastic_quantize, tf.zeros([3]), levels, 1)

    def test_bad_seeds_are_refused(self):
        for seed in ([1, 2, 3], [1], [[1, 2]]):
            self.assert_invalid(
                "seed must be a scalar or a vector of two",
                *(ops.stochastic_quantize, tf.zeros([3]), [0.0, 1.0], seed),
            )

    @parameterized.parameters(-1, 0, 1, 6, 7, 9, 2**40 + 4)
    def test_other_bits_are_refused(self, bits):
        message = f"bits must be 2, 3, 4, 5 or 8, got {bits}"
        self.assert_invalid(message, ops.pack_bits, as_bytes([0]), bits)
        self.assert_invalid(message, ops.unpack_bits, as_bytes([0]), bits, 1)
        self.assert_invalid(message, ops.table_sum, as_bytes([0]), [0] * 4, bits, as_bytes([0]))

    def test_the_first_index_that_does_not_fit_is_named(self):
        indices = np.zeros(100000, np.uint8)
        indices[[70000, 99999]] = 255
        indices[50001] = 16
        self.assert_invalid(
            r"indices must be less than 2\^bits = 16, got 16 at index 50001",
            *(ops.pack_bits, indices, 4),
        )
        ops.pack_bits(indices, 8)

    def test_bytes_that_were_not_packed_are_data_loss(self):
        for size, bits, count in [(0, 4, 1), (1, 4, 0), (2, 4, 2), (1, 4, 3), (1, 8, 2**62)]:
            packed = as_bytes([0] * size)
            count = tf.constant(count, tf.int64)
            message = f"packed must have .* values of {bits} bits, got {size}"
            self.assert_data_loss(message, ops.unpack_bits, packed, bits, count)
        self.assert_data_loss(
            "packed must have padding of 0, got the last byte 16",
            *(ops.unpack_bits, as_bytes([0, 16]), 4, 3),
        )
        table = list(range(16))
        self.assert_data_loss(
            "packed .*got 2", ops.table_sum, as_bytes([0, 0]), table, 4, as_bytes([0, 0])
        )
        self.assert_data_loss(
            "packed .*padding", ops.table_sum, as_bytes([16]), table, 4, as_bytes([0])
        )

    def test_a_negative_size_is_refused(self):
        self.assert_invalid("size .*-1", ops.unpack_bits, as_bytes([]), 4, -1)

    def test_bad_tables_are_refused(self):
        packed, sums = as_bytes([0]), as_bytes([0, 0])
        for message, table, accumulator in [
            ("table must be a vector of .* = 16 .*got shape .15", [0] * 15, sums),
            ("table must be a vector", [[0] * 4] * 4, sums),
            ("table .*0 ... 255, got 256 at index 3", list(range(253, 269)), sums),
            ("table .*got -1 at index 0", list(range(-1, 15)), sums),
            (
                "table .*0 ... 65535, got 65536 at index 15",
                list(range(65521, 65537)),
                tf.cast(sums, tf.uint16),
            ),
        ]:
            with self.subTest(message=message):
                self.assert_invalid(message, ops.table_sum, packed, table, 4, accumulator)

    def test_ranks_other_than_the_documented_are_refused(self):
        matrix = tf.zeros([1, 1], tf.uint8)
        self.assert_invalid("packed must be a vector", ops.unpack_bits, matrix, 4, 2)
        self.assert_invalid("size must be a scalar", ops.unpack_bits, as_bytes([0]), 4, [2])
        self.assert_invalid(
            "packed must be a vector", ops.table_sum, matrix, [0] * 16, 4, as_bytes([0, 0])
        )

    def test_wrong_types_are_refused(self):
        wrong = tf.constant([0], tf.int32)
        self.assert_refused(
            [
                (ops.stochastic_quantize, (wrong, [0.0, 1.0], 1)),
                (ops.stochastic_quantize, (tf.zeros([1]), wrong, 1)),
                (ops.stochastic_quantize, (tf.zeros([1]), [0.0, 1.0], 1.5)),
                (ops.pack_bits, (wrong, 4)),
                (ops.unpack_bits, (wrong, 4, 2)),
                (ops.table_sum, (wrong, [0] * 16, 4, as_bytes([0, 0]))),
                (ops.table_sum, (as_bytes([0]), [0] * 16, 4, tf.constant([0, 0]))),
                (ops.table_sum, (as_bytes([0]), [0.5] * 16, 4, as_bytes([0, 0]))),
            ]
        )

    def test_there_is_no_gradient(self):
        self.assert_no_gradient(
            lambda x: ops.stochastic_quantize(x, _levels(16), 1), testing.gaussian(10)
        )


class ShapeTest(OpTestCase):
    def test_known_shapes_give_known_shapes(self):
        values = tf.TensorSpec([3, 4], tf.float32)
        indices = traced(lambda x: ops.stochastic_quantize(x, [0.0, 1.0], 1), values)
        self.assertEqual(indices.shape, [3, 4])
        bits_of = {2: 3, 3: 5, 4: 6, 5: 8, 8: 12}
        for bits, size in bits_of.items():
            packed = traced(
                lambda x, bits=bits: ops.pack_bits(x, bits), tf.TensorSpec([3, 4], tf.uint8)
            )
            self.assertEqual(packed.shape, [size])
        unknown = tf.TensorSpec(None, tf.uint8)
        self.assertEqual(traced(lambda x: ops.unpack_bits(x, 4, 7), unknown).shape, [7])
        sums = traced(
            lambda packed, sums: ops.table_sum(packed, [0] * 16, 4, sums),
            *(unknown, tf.TensorSpec([3, 4], tf.uint16)),
        )
        self.assertEqual(sums.shape, [3, 4])
        self.assertEqual(sums.dtype, tf.uint16)

    def test_unknown_shapes_give_known_ranks(self):
        unknown = tf.TensorSpec(None, tf.uint8)
        self.assertEqual(traced(lambda x: ops.pack_bits(x, 4), unknown).shape.as_list(), [None])
        unpacked = traced(
            lambda x, size: ops.unpack_bits(x, 4, size), unknown, tf.TensorSpec([], tf.int64)
        )
        self.assertEqual(unpacked.shape.as_list(), [None])
        indices = traced(
            ops.stochastic_quantize,
            tf.TensorSpec([None, 4], tf.float32),
            tf.TensorSpec([None], tf.float32),
            tf.TensorSpec(None, tf.int32),
        )
        self.assertEqual(indices.shape.as_list(), [None, 4])

    def test_what_cannot_fit_is_refused_while_tracing(self):
        floats = tf.TensorSpec([3], tf.float32)
        packed = tf.TensorSpec([2], tf.uint8)
        matrix = tf.TensorSpec([2, 2], tf.uint8)
        zeros = tf.zeros([6], tf.uint8)
        self.assert_refused_while_tracing(
            [
                (
                    "levels must be 2 to 256, got 1",
                    lambda x: ops.stochastic_quantize(x, [0.0], 1),
                    floats,
                ),
                (
                    "levels .*got 1 at index 2",
                    lambda x: ops.stochastic_quantize(x, [0.0, 2.0, 1.0], 1),
                    floats,
                ),
                ("rank 1", lambda x: ops.stochastic_quantize(x, [[0.0, 1.0]], 1), floats),
                ("2 but is 3", lambda x: ops.stochastic_quantize(x, [0.0, 1.0], [1] * 3), floats),
                ("bits must .*got 6", lambda x: ops.pack_bits(x, 6), packed),
                ("bits must .*got 6", lambda x: ops.unpack_bits(x, 6, 2), packed),
                ("bits must .*got 6", lambda x: ops.table_sum(x, [0] * 64, 6, zeros), packed),
                ("packed must have 3 bytes", lambda x: ops.unpack_bits(x, 4, 5), packed),
                ("rank 1", lambda x: ops.unpack_bits(x, 4, 8), matrix),
                ("rank 0", lambda x: ops.unpack_bits(x, 4, [4]), packed),
                ("negative|-4", lambda x: ops.unpack_bits(x, 4, -4), packed),
                (
                    "packed must have 3 bytes",
                    lambda x: ops.table_sum(x, [0] * 16, 4, zeros),
                    packed,
                ),
                ("16", lambda x: ops.table_sum(x, [0] * 4, 4, zeros[:4]), packed),
                ("rank 1", lambda x: ops.table_sum(x, [[0] * 4], 2, zeros), packed),
            ]
        )


if __name__ == "__main__":
    absltest.main()
