"""tf_gc.kernels: selection and the packing of indices, on every instruction set."""

import hypothesis
import ml_dtypes
import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import testing
from tests.kernels.numpy_testing import InstructionSetTestCase, as_floats
from tf_gc import kernels

_FLOAT = st.one_of(
    st.floats(width=32), st.integers(-3, 3).map(float), st.sampled_from([0.0, -0.0, 1e-45])
)
_VALUES = st.lists(_FLOAT, max_size=200).map(as_floats)
_SETS = st.integers(0, 400).flatmap(
    lambda size: st.tuples(
        st.sets(st.integers(0, max(size - 1, 0)), max_size=size).map(sorted), st.just(size)
    )
)
# Few indices far apart.
_SPARSE_SETS = st.tuples(
    st.sets(st.integers(0, 2**31 - 2), max_size=60).map(sorted), st.just(2**31 - 1)
)


def _keys(values):
    return np.asarray(values, np.float32).view(np.uint32) & 0x7FFFFFFF


def _top_k(values, k):
    """What top_k_indices does, by sorting."""
    order = np.argsort(-_keys(values).astype(np.int64), kind="stable")
    return np.sort(order[:k])


def _chunk_argmax(values, chunk):
    """What chunk_argmax does, chunk by chunk."""
    keys = _keys(values)
    return [i + int(np.argmax(keys[i : i + chunk])) for i in range(0, len(keys), chunk)]


def _pack(indices, size):
    """What pack_indices does, bit by bit: every form, and the first of the smallest."""
    if not indices:
        return b""

    def to_bytes(ones, bits):
        return sum(1 << int(one) for one in ones).to_bytes((bits + 7) // 8, "little")

    k, n = len(indices), size
    forms = [to_bytes(indices, n)] if n < 10**6 else []
    for low in range(32):
        upper_bits = k + ((n - 1) >> low)
        if upper_bits > 10**6:
            continue
        upper = to_bytes([(i >> low) + j for j, i in enumerate(indices)], upper_bits)
        ones = [low * j + b for j, i in enumerate(indices) for b in range(low) if i >> b & 1]
        forms.append(upper + to_bytes(ones, k * low))
    return min(forms, key=len)


def _indices(values):
    return np.array(values, np.int32)


class TopKTest(InstructionSetTestCase):
    def test_by_hand(self):
        values = np.array([1, -5, 3, 0, -3, 4], np.float32)
        indices = kernels.top_k_indices(values, 3)
        self.assertEqual(indices.dtype, np.int32)
        self.assertEqual(indices.tolist(), [1, 2, 5])
        self.assertEqual(kernels.top_k_indices(values, 0).tolist(), [])
        self.assertEqual(kernels.top_k_indices(values, 6).tolist(), list(range(6)))

    @hypothesis.given(_VALUES, st.data())
    def test_is_what_sorting_gives(self, values, data):
        k = data.draw(st.integers(0, len(values)))
        for instruction_set in kernels.instruction_sets():
            kernels.set_instruction_set(instruction_set)
            np.testing.assert_array_equal(kernels.top_k_indices(values, k), _top_k(values, k))

    @parameterized.product(
        instruction_set=kernels.instruction_sets(), k=[1, 1000, 10000, 40000, 99999]
    )
    def test_many_gaussian_values(self, instruction_set, k):
        kernels.set_instruction_set(instruction_set)
        values = testing.gaussian(10**5)
        np.testing.assert_array_equal(kernels.top_k_indices(values, k), _top_k(values, k))

    @parameterized.parameters(np.float16, ml_dtypes.bfloat16)
    def test_half_precision_has_ties(self, dtype):
        values = np.random.default_rng(0).standard_normal(20000).astype(dtype)
        np.testing.assert_array_equal(
            kernels.top_k_indices(values, 777), _top_k(values.astype(np.float32), 777)
        )

    def test_wrong_arguments_are_named(self):
        values = np.zeros(5, np.float32)
        for message, args in [
            ("k must be in 0 ... 5, got 6", (values, 6)),
            ("k must be in 0 ... 5, got -1", (values, -1)),
            ("values must have one dimension", (np.zeros([2, 2], np.float32), 1)),
        ]:
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message):
                kernels.top_k_indices(*args)
        with self.assertRaisesRegex(TypeError, "values .*float64"):
            kernels.top_k_indices(np.zeros(5), 1)


class ChunkArgmaxTest(InstructionSetTestCase):
    @parameterized.parameters(*kernels.instruction_sets())
    def test_gives_the_golden_indices_and_averages(self, instruction_set):
        kernels.set_instruction_set(instruction_set)
        golden = testing.golden("scale_com_figure_a2")
        gradients = np.array(golden["gradients"], np.float32)
        indices = kernels.chunk_argmax(gradients[golden["leader"]], golden["chunk"])
        self.assertEqual(indices.tolist(), golden["indices"])
        averaged = np.mean(gradients.astype(np.float64)[:, indices], axis=0)
        np.testing.assert_allclose(averaged, golden["averaged"], rtol=1e-6)

    @hypothesis.given(_VALUES, st.integers(1, 250))
    def test_is_what_each_chunk_gives(self, values, chunk):
        for instruction_set in kernels.instruction_sets():
            kernels.set_instruction_set(instruction_set)
            indices = kernels.chunk_argmax(values, chunk)
            self.assertEqual(indices.tolist(), _chunk_argmax(values, chunk))

    def test_wrong_arguments_are_named(self):
        values = np.zeros(5, np.float32)
        for message, args in [
            ("chunk must be in 1 ... .*, got 0", (values, 0)),
            ("values must have one dimension", (np.zeros([2, 2], np.float32), 1)),
        ]:
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message):
                kernels.chunk_argmax(*args)


class MagnitudeHistogramTest(InstructionSetTestCase):
    @hypothesis.given(_VALUES)
    def test_bins_are_ranges_of_magnitudes(self, values):
        counts, squares = kernels.magnitude_histogram(values)
        self.assertEqual((counts.dtype, squares.dtype), (np.int64, np.float64))
        magnitudes = np.abs(values[np.isfinite(values)]).astype(np.float64)
        bins = np.arange(len(counts))
        # The ends of the bins; those below 2^-126 are wider.
        ends = np.ldexp(1 + bins % 32 / 32, bins // 32 - 127)[32:]
        places = np.searchsorted(ends, magnitudes, side="right")
        of_bins = np.bincount(places, minlength=len(ends) + 1)
        np.testing.assert_array_equal([counts[:32].sum(), *counts[32:]], of_bins)
        normal = np.where(places > 0, magnitudes, 0)
        of_bins = np.bincount(places, normal**2, len(ends) + 1)
        np.testing.assert_allclose([squares[:32].sum(), *squares[32:]], of_bins, rtol=2**-28)

    @parameterized.parameters(np.float16, ml_dtypes.bfloat16)
    def test_half_precision_is_counted_as_its_float32(self, dtype):
        values = testing.gaussian(20000).astype(dtype)
        for result, expected in zip(
            kernels.magnitude_histogram(values),
            kernels.magnitude_histogram(values.astype(np.float32)),
            strict=True,
        ):
            np.testing.assert_array_equal(result, expected)

    def test_wrong_arguments_are_named(self):
        with self.assertRaisesRegex(ValueError, "values must have one dimension"):
            kernels.magnitude_histogram(np.zeros([2, 2], np.float32))
        with self.assertRaisesRegex(TypeError, "values .*float64"):
            kernels.magnitude_histogram(np.zeros(5))


class IndexPackingTest(InstructionSetTestCase):
    @hypothesis.given(st.one_of(_SETS, _SPARSE_SETS))
    def test_bytes_are_the_smallest_form_and_come_back(self, indices_and_size):
        indices, size = indices_and_size
        if size == 0:
            indices = []
        for instruction_set in kernels.instruction_sets():
            kernels.set_instruction_set(instruction_set)
            packed = kernels.pack_indices(_indices(indices), size)
            self.assertEqual(packed.tobytes(), _pack(indices, size))
            unpacked = kernels.unpack_indices(packed, len(indices), size)
            self.assertEqual(unpacked.tolist(), indices)

    @hypothesis.given(st.binary(max_size=12), st.integers(0, 40), st.integers(0, 300))
    def test_what_is_accepted_packs_to_the_same_bytes(self, data, count, size):
        packed = np.frombuffer(data, np.uint8)
        try:
            indices = kernels.unpack_indices(packed, count, size)
        except ValueError:
            return
        self.assertLen(indices, count)
        again = kernels.pack_indices(indices, size)
        self.assertEqual(again.tobytes(), data)

    def test_one_in_a_hundred_takes_at_most_9_bits(self):
        for n in 10**5, 2**20, 2**24:
            indices = np.arange(0, n, 100, dtype=np.int32)
            packed = kernels.pack_indices(indices, n)
            self.assertLessEqual(8 * packed.size, 9 * indices.size)
            np.testing.assert_array_equal(kernels.unpack_indices(packed, indices.size, n), indices)

    @parameterized.product(
        instruction_set=kernels.instruction_sets(), percent=[1, 10, 25, 50, 99, 100]
    )
    def test_many_indices_come_back(self, instruction_set, percent):
        kernels.set_instruction_set(instruction_set)
        n = 10**5 + 3
        chosen = np.random.default_rng(0).integers(0, 100, n) < percent
        indices = np.flatnonzero(chosen).astype(np.int32)
        packed = kernels.pack_indices(indices, n)
        np.testing.assert_array_equal(kernels.unpack_indices(packed, indices.size, n), indices)

    def test_wrong_indices_are_named_with_their_position(self):
        for bad, message in [
            ([1, 3, 3], "got 3 at position 2"),
            ([1, 3, 2], "got 2 at position 2"),
            ([-1, 3], "got -1 at position 0"),
            ([1, 10], "0 ... size - 1 = 9, got 10 at position 1"),
        ]:
            with self.subTest(bad=bad), self.assertRaisesRegex(ValueError, message):
                kernels.pack_indices(_indices(bad), 10)
        with self.assertRaisesRegex(TypeError, "indices .*int64"):
            kernels.pack_indices(np.array([1]), 10)
        with self.assertRaisesRegex(ValueError, "size must be in 0 ... 2147483647, got"):
            kernels.pack_indices(_indices([1]), 2**31)

    def test_wrong_bytes_are_refused_with_the_reason(self):
        for data, count, size, message in [
            ([0b1011], 2, 8, "1 bytes for 2 indices below 8, has more bits"),
            ([0b1000], 2, 8, "has fewer bits"),
            ([0b10001], 2, 4, "padding"),
            ([0b11, 0x44], 2, 60, "do not ascend"),
            ([0b10001, 0xC4], 2, 60, "too large"),
            ([1, 2], 2, 8, "packed must have 1 bytes for 2 indices below 8, got 2"),
            ([], 1, 8, "packed must have 1 bytes"),
            ([1], 0, 8, "packed must have 0 bytes"),
            ([1], 9, 8, "count must be in 0 ... 8, got 9"),
            ([1], -1, 8, "count must be in 0 ... 8, got -1"),
            ([1], 1, -1, "size must be in 0 ... 2147483647, got -1"),
        ]:
            with self.subTest(data=data), self.assertRaisesRegex(ValueError, message):
                kernels.unpack_indices(np.array(data, np.uint8), count, size)


if __name__ == "__main__":
    absltest.main()
