"""tf_gc.kernels: quantisation of NumPy arrays, on every instruction set."""

import math
import pickle
import statistics

import hypothesis
import ml_dtypes
import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import philox_reference, testing
from tests.kernels.numpy_testing import (
    ANY_FLOATS,
    INSTRUCTION_SETS,
    INT64,
    InstructionSetTestCase,
    as_bytes,
    as_floats,
)
from tf_gc import kernels

_BITS = (2, 3, 4, 5, 8)


# ---- Slow references --------------------------------------------------------


def _random_numbers(seed, size):
    halves = philox_reference.halves(philox_reference.words(seed, -(-size // 8)))[:size]
    return (halves.astype(np.float32) + np.float32(0.5)) / np.float32(65536)


def _stochastic_quantize(values, levels, seed):
    indices = []
    with np.errstate(over="ignore"):
        for value, r in zip(values, _random_numbers(seed, values.size), strict=True):
            v = levels[0] if np.isnan(value) else min(max(value, levels[0]), levels[-1])
            z = max((i for i in range(len(levels) - 1) if levels[i] <= v), default=0)
            up = v - levels[z] > r * (levels[z + 1] - levels[z])
            indices.append(z + int(up))
    return indices


def _pack(indices, bits):
    string = sum(int(index) << bits * i for i, index in enumerate(indices))
    return list(string.to_bytes(-(-len(indices) * bits // 8), "little"))


_LEVEL = st.floats(width=32, allow_nan=False, allow_infinity=False)
_LEVELS = st.lists(_LEVEL, min_size=2, max_size=40).map(lambda levels: as_floats(sorted(levels)))


@st.composite
def _indices(draw):
    bits = draw(st.sampled_from(_BITS))
    return draw(st.lists(st.integers(0, 2**bits - 1), max_size=200)), bits


class StochasticQuantizeTest(InstructionSetTestCase):
    def test_values_on_levels_and_outside_of_them_are_not_drawn(self):
        levels = as_floats([-1, 0, 0.5, 4])
        values = as_floats([-1, 0, 0.5, 4, -2, 5, np.inf, -np.inf, np.nan])
        for seed in range(20):
            indices = kernels.stochastic_quantize(values, levels, seed)
            self.assertEqual(indices.tolist(), [0, 1, 2, 3, 0, 3, 3, 0, 0])

    @hypothesis.given(ANY_FLOATS, _LEVELS, INT64, INT64, INSTRUCTION_SETS)
    def test_indices_agree_with_the_reference(self, values, levels, key, stream, instruction_set):
        kernels.set_instruction_set(instruction_set)
        self.assertEqual(
            kernels.stochastic_quantize(values, levels, [key, stream]).tolist(),
            _stochastic_quantize(values, levels, (key, stream)),
        )

    def test_a_seed_of_one_integer_is_a_key(self):
        values, levels = np.full(500, 0.5, np.float32), as_floats([0, 1])
        expected = kernels.stochastic_quantize(values, levels, 7)
        for seed in [(7, 0), np.int32(7), np.array([7, 0], np.int64)]:
            np.testing.assert_array_equal(
                kernels.stochastic_quantize(values, levels, seed), expected
            )
        for seed in [8, (7, 1), (0, 7), -7]:
            other = kernels.stochastic_quantize(values, levels, seed)
            self.assertFalse(np.array_equal(other, expected))

    def test_instruction_sets_agree_on_large_arrays(self):
        values = testing.gaussian(300007, 1)
        for count in (2, 4, 16, 31, 256):
            levels = np.sort(testing.gaussian(count, count))
            self.assert_instruction_sets_agree(
                lambda levels=levels: [kernels.stochastic_quantize(values, levels, 3)]
            )

    # A grid of values with 1.28 million draws each, on all instruction sets at
    # once, as they agree. Each mean has a z-test; the bias that 16 random bits
    # allow, 2^-17 of a gap, moves z by less than 0.02. The false alarm of any of
    # the 40 tests has a probability below 40 * 2 * (1 - Phi(4.98)) < 3e-5.
    @parameterized.parameters(*range(5))
    def test_levels_are_the_value_on_average(self, key):
        draws = 1_280_000
        levels = as_floats([-2.5, -1.25, -0.3, 0.0, 0.05, 1.0, 2.75, 3.0])
        for stream, value in enumerate([-2.4, -1.9, -0.31, -0.001, 0.04, 0.3, 2.7, 2.875]):
            value = np.float32(value)
            indices = kernels.stochastic_quantize(np.full(draws, value), levels, [key, stream])
            z = np.searchsorted(levels, value, side="right") - 1
            self.assertContainsSubset(np.unique(indices), {z, z + 1})
            low, high = levels[z].astype(float), levels[z + 1].astype(float)
            probability = (float(value) - low) / (high - low)
            deviation = math.sqrt(probability * (1 - probability) / draws)
            mean = levels.astype(float)[indices].mean()
            z_score = (mean - float(value)) / (high - low) / deviation
            self.assertLess(abs(z_score), 5, f"{value}: {mean}")
        self.assertLess(40 * 2 * (1 - statistics.NormalDist().cdf(4.98)), 3e-5)

    def test_neighbours_are_drawn_independently(self):
        # The correlation of n pairs is about normal with variance 1 / n: above
        # 5 / sqrt(n) with probability 6e-7, for each of 16 distances.
        n = 1 << 20
        values = np.full(n, 0.5, np.float32)
        signs = 2.0 * kernels.stochastic_quantize(values, as_floats([0, 1]), 11) - 1
        for distance in range(1, 17):
            correlation = np.mean(signs[distance:] * signs[:-distance])
            self.assertLess(abs(correlation), 5 / math.sqrt(n - distance))

    @parameterized.parameters(np.float16, ml_dtypes.bfloat16)
    def test_half_precision_is_quantized_as_its_float32(self, dtype):
        values = np.random.default_rng(2).standard_normal((10, 100)).astype(dtype)
        levels = np.linspace(-2, 2, 16, dtype=np.float32)
        np.testing.assert_array_equal(
            kernels.stochastic_quantize(values, levels, 1),
            kernels.stochastic_quantize(values.astype(np.float32), levels, 1),
        )

    @parameterized.parameters((), (0,), (3, 0, 2), (3, 5, 7))
    def test_the_shape_stays(self, *shape):
        indices = kernels.stochastic_quantize(np.zeros(shape, np.float32), as_floats([0, 1]), 1)
        self.assertEqual(indices.shape, shape)
        self.assertEqual(indices.dtype, np.uint8)

    def test_bad_arguments_are_refused(self):
        values = np.zeros(3, np.float32)
        for levels, message in [
            ([0.0], r"levels .*2 to 256, got shape \(1,\)"),
            (np.zeros(257), r"levels .*2 to 256, got shape \(257,\)"),
            ([[0.0, 1.0]], r"levels .*got shape \(1, 2\)"),
            ([0.0, 2.0, 1.0], "levels .*ascending, got 1.0 at index 2"),
            ([0.0, np.nan], "levels .*finite .*got nan at index 1"),
            ([-np.inf, 0.0], "levels .*finite .*got -inf at index 0"),
        ]:
            with self.assertRaisesRegex(ValueError, message):
                kernels.stochastic_quantize(values, as_floats(levels), 1)
        with self.assertRaisesRegex(TypeError, "levels .*float32, got float64"):
            kernels.stochastic_quantize(values, np.array([0.0, 1.0]), 1)
        with self.assertRaisesRegex(TypeError, "values .*got float64"):
            kernels.stochastic_quantize(np.zeros(3), as_floats([0, 1]), 1)
        for seed in [1.5, [1, 2, 3], [[1, 2]], "one", 2**64]:
            with self.assertRaisesRegex(ValueError, "seed must"):
                kernels.stochastic_quantize(values, as_floats([0, 1]), seed)

    def test_seeds_of_any_type_of_integer_are_alike(self):
        values, levels = testing.gaussian(50), as_floats([-4, 4])
        expected = kernels.stochastic_quantize(values, levels, [5, 0])
        for seed in (5, np.uint8(5), np.uint32(5), np.array([5, 0], np.uint64), [np.int8(5), 0]):
            np.testing.assert_array_equal(
                kernels.stochastic_quantize(values, levels, seed), expected
            )

    def test_arrays_may_come_from_another_process(self):
        values, levels, accumulator = (
            pickle.loads(pickle.dumps(array))
            for array in (testing.gaussian(6), as_floats([-4, 4]), np.zeros(6, np.uint16))
        )
        indices = pickle.loads(pickle.dumps(kernels.stochastic_quantize(values, levels, 1)))
        packed = pickle.loads(pickle.dumps(kernels.pack_bits(indices, 2)))
        sums = kernels.table_sum(packed, np.arange(4, dtype=np.uint16), 2, accumulator)
        np.testing.assert_array_equal(sums, indices)


class BitPackingTest(InstructionSetTestCase):
    def test_by_hand(self):
        self.assertEqual(kernels.pack_bits(as_bytes([1, 5, 15]), 4).tolist(), [0x51, 0x0F])
        self.assertEqual(kernels.pack_bits(as_bytes([5, 1, 6]), 3).tolist(), [0b10001101, 1])
        self.assertEqual(kernels.unpack_bits(as_bytes([0b10001101, 1]), 3, 3).tolist(), [5, 1, 6])
        self.assertEqual(kernels.pack_bits(as_bytes([]), 2).tolist(), [])

    @hypothesis.given(_indices(), INSTRUCTION_SETS)
    def test_packing_agrees_with_the_reference_and_comes_back(self, indices, instruction_set):
        kernels.set_instruction_set(instruction_set)
        values, bits = indices
        packed = kernels.pack_bits(as_bytes(values), bits)
        self.assertEqual(packed.tolist(), _pack(values, bits))
        self.assertEqual(kernels.unpack_bits(packed, bits, len(values)).tolist(), values)

    def test_a_strided_array_is_read_in_its_own_order(self):
        indices = as_bytes([[1, 2, 3], [4, 5, 6]])
        self.assertEqual(kernels.pack_bits(indices.T, 3).tolist(), _pack([1, 4, 2, 5, 3, 6], 3))

    def test_an_index_that_does_not_fit_is_named(self):
        indices = np.zeros(300, np.uint8)
        indices[207], indices[250] = 16, 255
        with self.assertRaisesRegex(ValueError, "indices .*2\\^bits = 16, got 16 at index 207"):
            kernels.pack_bits(indices, 4)
        kernels.pack_bits(indices, 8)

    def test_bad_arguments_are_refused(self):
        for bits in [-1, 0, 1, 6, 7, 9, 2**40 + 4]:
            for function, args in [
                (kernels.pack_bits, (as_bytes([0]), bits)),
                (kernels.unpack_bits, (as_bytes([0]), bits, 1)),
                (kernels.table_sum, (as_bytes([0]), as_bytes([0] * 4), bits, as_bytes([0]))),
            ]:
                with self.assertRaisesRegex(ValueError, f"bits must .*got {bits}"):
                    function(*args)
        with self.assertRaisesRegex(TypeError, "indices .*uint8, got int32"):
            kernels.pack_bits(np.zeros(3, np.int32), 4)
        with self.assertRaisesRegex(TypeError, "packed .*uint8, got int8"):
            kernels.unpack_bits(np.zeros(3, np.int8), 4, 6)
        with self.assertRaisesRegex(ValueError, "size .*negative, got -1"):
            kernels.unpack_bits(as_bytes([]), 4, -1)

    def test_bytes_that_were_not_packed_are_refused(self):
        for size, bits, count in [(0, 4, 1), (1, 4, 0), (2, 4, 2), (1, 4, 3), (1, 8, 2**62)]:
            with self.assertRaisesRegex(ValueError, f"packed must have .*got {size}"):
                kernels.unpack_bits(np.zeros(size, np.uint8), bits, count)
        with self.assertRaisesRegex(ValueError, "packed .*padding of 0.*got the last byte 16"):
            kernels.unpack_bits(as_bytes([0, 16]), 4, 3)
        with self.assertRaisesRegex(ValueError, "packed .*one dimension"):
            kernels.unpack_bits(as_bytes([[0]]), 4, 2)


class TableSumTest(InstructionSetTestCase):
    def test_by_hand(self):
        packed = kernels.pack_bits(as_bytes([0, 1, 2, 3, 3]), 2)
        sums = kernels.table_sum(packed, np.array([0, 2, 3, 4]), 2, as_bytes([10, 10, 10, 10, 255]))
        self.assertEqual(sums.tolist(), [10, 12, 13, 14, 3])

    @hypothesis.given(
        _indices(),
        st.sampled_from([np.uint8, np.uint16]),
        st.integers(0, 2**32 - 1),
        INSTRUCTION_SETS,
    )
    def test_sums_agree_with_the_reference(self, indices, dtype, seed, instruction_set):
        kernels.set_instruction_set(instruction_set)
        values, bits = indices
        rng = np.random.default_rng(seed)
        largest = np.iinfo(dtype).max
        table = rng.integers(0, largest, 2**bits, endpoint=True)
        accumulator = rng.integers(0, largest, len(values), dtype, endpoint=True)
        sums = kernels.table_sum(as_bytes(_pack(values, bits)), table, bits, accumulator)
        self.assertEqual(sums.dtype, dtype)
        expected = [
            (int(old) + int(table[index])) % (largest + 1)
            for old, index in zip(accumulator, values, strict=True)
        ]
        self.assertEqual(sums.tolist(), expected)

    def test_the_accumulator_keeps_its_values_and_gives_the_shape(self):
        accumulator = np.arange(6, dtype=np.uint16).reshape(2, 3)
        packed = kernels.pack_bits(np.full(6, 15, np.uint8), 4)
        sums = kernels.table_sum(packed, np.arange(16, dtype=np.int32), 4, accumulator)
        self.assertEqual(sums.tolist(), [[15, 16, 17], [18, 19, 20]])
        self.assertEqual(accumulator.ravel().tolist(), list(range(6)))

    def test_bad_arguments_are_refused(self):
        packed, table, sums = as_bytes([0]), np.zeros(16, np.int32), as_bytes([0, 0])
        for message, args in [
            ("packed .*1 bytes .*got 2", (as_bytes([0, 0]), table, 4, sums)),
            ("packed .*padding", (as_bytes([16]), table, 4, as_bytes([0]))),
            (r"table .*16 values, got shape \(15,\)", (packed, table[1:], 4, sums)),
            (r"table .*got shape \(4, 4\)", (packed, table.reshape(4, 4), 4, sums)),
            ("table .*255, got 256 at index 3", (packed, np.arange(253, 269), 4, sums)),
            ("table .*got -1 at index 0", (packed, np.arange(-1, 15), 4, sums)),
            (
                "table .*65535, got 65536 at index 15",
                (packed, np.arange(65521, 65537), 4, sums.astype(np.uint16)),
            ),
        ]:
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message):
                kernels.table_sum(*args)
        with self.assertRaisesRegex(TypeError, "accumulator .*got int32"):
            kernels.table_sum(packed, table, 4, sums.astype(np.int32))
        with self.assertRaisesRegex(TypeError, "table .*integer dtype, got float64"):
            kernels.table_sum(packed, np.zeros(16), 4, sums)


if __name__ == "__main__":
    absltest.main()
