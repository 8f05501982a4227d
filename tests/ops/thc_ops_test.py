"""tf_gc.ops: THC's quantiser, eagerly and in a tf.function."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from tests import testing
from tests.ops.op_testing import MODES, OpTestCase, run_on_threads, traced
from tf_gc import ops

_TABLES = {
    2: np.array([0, 2, 5, 7], np.int32),
    3: np.array([0, 2, 5, 7, 11, 13, 17, 30], np.int32),
    4: np.arange(16, dtype=np.int32),
    5: np.arange(0, 64, 2, dtype=np.int32),
    8: np.arange(256, dtype=np.int32),
}
_SIGNS, _ROUNDING = [3, 4], [5, 6]


def _blocks(values):
    """A slow reference of thc_blocks."""
    size = next(
        size
        for size in (1 << k for k in range(16, 5, -1))
        if size == 64 or -len(values) % size <= len(values) / 128
    )
    return np.pad(values, (0, -len(values) % size)).reshape(-1, size)


def _limits(blocks):
    limits = (1.9 / np.sqrt(blocks.shape[1]) * np.linalg.norm(blocks, axis=1)).astype(np.float32)
    limits[1::3] = 0
    return limits


def _decoded(rotated, size):
    return tf.reshape(ops.inverse_randomized_hadamard(rotated, _SIGNS), [-1])[:size]


class ThcTest(OpTestCase):
    @parameterized.parameters(0, 1, 63, 64, 65, 127, 1000, 8190, 8192, 65535, 70_000, 200_000)
    def test_blocks_are_rows_padded_with_zeros(self, size):
        values = testing.gaussian(size)
        expected = _blocks(values)
        np.testing.assert_array_equal(ops.thc_blocks(values), expected)
        shape = traced(ops.thc_blocks, tf.TensorSpec([size], tf.float32)).shape
        self.assertEqual(shape, expected.shape)

    @parameterized.product(bits=sorted(_TABLES), size=[1, 300, 4096, 8190, 70_000])
    def test_quantizes_as_the_ops_that_it_is_made_of(self, bits, size):
        blocks = _blocks(testing.gaussian(size))
        limits, table = _limits(blocks), _TABLES[bits]
        rotated = ops.randomized_hadamard(blocks, _SIGNS)
        levels = tf.constant(2 * table / table[-1] - 1, tf.float32)
        indices = ops.stochastic_quantize(
            tf.math.divide_no_nan(rotated, limits[:, np.newaxis]), levels, _ROUNDING
        )
        rounded = limits[:, np.newaxis] * tf.gather(levels, tf.cast(indices, tf.int32))

        def quantize():
            packed = ops.thc_quantize(blocks, limits, table, bits, _SIGNS, _ROUNDING)
            return packed, ops.thc_decode(packed, limits, table, bits, _SIGNS, size)

        for mode, compile_function in MODES:
            with self.subTest(mode=mode):
                packed, own = compile_function(quantize)()
                np.testing.assert_array_equal(packed, ops.pack_bits(indices, bits))
                np.testing.assert_array_equal(own, _decoded(rounded, size))

    @parameterized.product(lane=["uint8", "uint16"], size=[1, 300, 4096, 8190, 70_000])
    def test_decodes_sums_as_the_ops_that_it_is_made_of(self, lane, size):
        blocks = _blocks(testing.gaussian(size))
        limits = _limits(blocks)
        sums = np.random.RandomState(size).randint(0, 3 * 30 + 1, blocks.shape).astype(lane)
        rotated = limits[:, np.newaxis] * (tf.cast(sums, tf.float32) * (2 / 30) - 3)
        decoded = ops.thc_decode_sums(sums.reshape(-1), limits, 30, 3, _SIGNS, size)
        np.testing.assert_array_equal(decoded, _decoded(rotated, size))

    @parameterized.parameters(sorted(_TABLES))
    def test_the_nearest_level_is_taken(self, bits):
        blocks = _blocks(testing.gaussian(300))
        limits, table = _limits(blocks), _TABLES[bits]
        rotated = tf.math.divide_no_nan(
            ops.randomized_hadamard(blocks, _SIGNS), limits[:, np.newaxis]
        )
        levels = 2 * table / table[-1] - 1
        distances = np.abs(rotated.numpy()[..., np.newaxis] - levels)
        packed = ops.thc_quantize(blocks, limits, table, bits, _SIGNS, 0, nearest=True)
        expected = ops.pack_bits(distances.argmin(-1).astype(np.uint8), bits)
        np.testing.assert_array_equal(packed, expected)

    def test_the_mean_of_many_roundings_is_the_value(self):
        values = testing.gaussian(100)
        blocks = ops.thc_blocks(values)
        limits = tf.norm(blocks, axis=1) / 8 * 5  # nothing is cut off
        draws = 2000
        mean = np.mean(
            [
                ops.thc_decode(
                    ops.thc_quantize(blocks, limits, _TABLES[4], 4, _SIGNS, [draw, 0]),
                    limits,
                    _TABLES[4],
                    4,
                    _SIGNS,
                    100,
                )
                for draw in range(draws)
            ],
            axis=0,
        )
        # A value's deviation is at most half the distance of two levels.
        deviation = np.max(limits) / 15 / draws**0.5
        np.testing.assert_allclose(mean, values, atol=6 * deviation)

    def test_any_number_of_threads_gives_the_same_bits(self):
        blocks = _blocks(testing.gaussian(70_000))
        limits = _limits(blocks)

        def both(blocks, limits):
            packed = ops.thc_quantize(blocks, limits, _TABLES[3], 3, _SIGNS, _ROUNDING)
            return packed, ops.thc_decode(packed, limits, _TABLES[3], 3, _SIGNS, 70_000)

        alone = run_on_threads(1, both, blocks, limits)
        for several, one in zip(run_on_threads(4, both, blocks, limits), alone, strict=True):
            np.testing.assert_array_equal(several, one)

    def test_bad_arguments_are_refused_by_name(self):
        blocks, limits, table = np.zeros([2, 64], np.float32), np.ones(2, np.float32), _TABLES[2]
        packed = np.zeros(32, np.uint8)

        def quantize(blocks=blocks, limits=limits, table=table, bits=2):
            return ops.thc_quantize(blocks, limits, table, bits, 0, 0)

        def decode(packed=packed, limits=limits, size=100):
            return ops.thc_decode(packed, limits, table, 2, 0, size)

        def decode_sums(sums, limits=limits, size=100):
            return ops.thc_decode_sums(sums, limits, 7, 2, 0, size)

        self.assert_invalid("values must be a vector", ops.thc_blocks, blocks)
        for shape in [64], [2, 32], [2, 96], [2, 1 << 17]:
            self.assert_invalid("blocks must be a matrix", quantize, np.zeros(shape, np.float32))
        self.assert_invalid("limits must be one for each of 2", quantize, blocks, limits[:1])
        self.assert_invalid("bits must be", quantize, blocks, limits, table, 6)
        for wrong in [0, 2, 2, 7], [1, 2, 5, 7], [0, 5, 2, 7]:
            self.assert_invalid("table must ascend from 0", quantize, blocks, limits, wrong)
        self.assert_invalid("table must hold", quantize, blocks, limits, [0, 1, 2, 1 << 16])
        self.assert_data_loss("packed must have 32 bytes", decode, packed[1:])
        self.assert_invalid("limits must be one for each of 2", decode, packed, limits[1:])
        negative = np.float32([0, -1])
        for call, data in (quantize, blocks), (decode, packed):
            self.assert_invalid("limits must not be negative, got -1 at 1", call, data, negative)
        for size in (2**63 - 1, 2**63 - (1 << 16)):
            self.assert_invalid("size must be at most", decode, packed, limits, size)
        self.assert_invalid("size must not be negative", decode, packed, limits, -1)
        sums = np.zeros(128, np.uint8)
        self.assert_invalid("sums must be 128 for 100 values", decode_sums, sums[1:])
        self.assert_invalid("limits must be one for each of 2", decode_sums, sums, limits[1:])

    def test_shapes_that_are_known_are_inferred(self):
        def sizes(blocks, limits):
            packed = ops.thc_quantize(blocks, limits, _TABLES[2], 2, 0, 0)
            return packed, ops.thc_decode(packed, limits, _TABLES[2], 2, 0, 100)

        packed, values = traced(
            sizes, tf.TensorSpec([2, 64], tf.float32), tf.TensorSpec([2], tf.float32)
        )
        self.assertEqual(packed.shape, [32])
        self.assertEqual(values.shape, [100])
        packed, _ = traced(
            sizes, tf.TensorSpec([None, 64], tf.float32), tf.TensorSpec([None], tf.float32)
        )
        self.assertEqual(packed.shape.as_list(), [None])


if __name__ == "__main__":
    absltest.main()
