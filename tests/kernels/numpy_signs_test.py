"""tf_gc.kernels: signs for NumPy arrays, on every instruction set.

The statistical tests have fixed seeds. Each says how probable it is that a
correct generator fails it for a seed that is drawn at random.
"""

import hypothesis
import ml_dtypes
import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import philox_reference, signs_reference, testing
from tests.kernels.numpy_testing import (
    ANY_FLOATS,
    INSTRUCTION_SETS,
    INT64,
    InstructionSetTestCase,
    as_bytes,
)
from tf_gc import kernels

# Bits of a statistical test: 2^22, in bytes.
_SAMPLE = 2**19

_SEEDS = st.one_of(
    INT64,
    st.tuples(INT64, INT64),
)


def _ones(size):
    return np.full(size, 255, np.uint8)


def _zeros(size):
    return np.zeros(size, np.uint8)


def _kept(first_count, second_count, seed, size=_SAMPLE):
    """Where the first one's bits are kept, if all differ."""
    merged = kernels.sign_merge(_ones(size), _zeros(size), first_count, second_count, seed)
    return signs_reference.bits(merged)


def _ring(workers, seed):
    """Merges the packed signs of workers one after the other."""
    aggregate = workers[0]
    for m, own in enumerate(workers[1:], start=2):
        aggregate = kernels.sign_merge(aggregate, own, m - 1, 1, (seed, m))
    return aggregate


class SignPackTest(InstructionSetTestCase):
    def test_by_hand(self):
        values = np.array([1, -1, 0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1e-45], np.float32)
        packed = kernels.sign_pack(values)
        self.assertEqual(packed.tolist(), [1 + 4 + 8 + 32 + 128, 0])
        self.assertEqual(kernels.sign_unpack(packed, 9).tolist(), [1, -1, 1, 1, -1, 1, -1, 1, -1])

    @hypothesis.given(ANY_FLOATS, INSTRUCTION_SETS)
    def test_packing_agrees_with_numpy(self, values, instruction_set):
        kernels.set_instruction_set(instruction_set)
        packed = kernels.sign_pack(values)
        np.testing.assert_array_equal(packed, signs_reference.pack(values >= 0))
        signs = kernels.sign_unpack(packed, values.size)
        np.testing.assert_array_equal(signs, np.where(values >= 0, np.float32(1), -1))
        self.assertEqual(signs.dtype, np.float32)

    @parameterized.parameters(np.float16, ml_dtypes.bfloat16)
    def test_half_precision_has_the_signs_of_its_float32(self, dtype):
        smallest = ml_dtypes.finfo(dtype).smallest_subnormal
        special = np.array([0, -0.0, np.nan, -np.inf, smallest, -smallest], dtype)
        for values in special, np.random.default_rng(0).standard_normal(1001).astype(dtype):
            np.testing.assert_array_equal(
                kernels.sign_pack(values), signs_reference.pack(values.astype(np.float32) >= 0)
            )

    def test_arrays_are_read_in_their_own_order(self):
        values = np.array([[1, -1, -1], [-1, 1, 1]], np.float32)
        self.assertEqual(kernels.sign_pack(values).tolist(), [0b110001])
        self.assertEqual(kernels.sign_pack(values.T).tolist(), [0b101001])

    def test_nothing_takes_no_bytes(self):
        self.assertEqual(kernels.sign_pack(np.zeros([3, 0], np.float32)).shape, (0,))
        self.assertEqual(kernels.sign_unpack(as_bytes([]), 0).shape, (0,))

    def test_bad_arguments_are_refused(self):
        with self.assertRaisesRegex(TypeError, "values .*got float64"):
            kernels.sign_pack(np.zeros(3))
        with self.assertRaisesRegex(TypeError, "packed .*uint8, got int8"):
            kernels.sign_unpack(np.zeros(1, np.int8), 3)
        with self.assertRaisesRegex(ValueError, "packed .*one dimension"):
            kernels.sign_unpack(np.zeros((1, 1), np.uint8), 3)
        for size, wrong in (8, 2), (9, 1), (0, 1), (1, 0), (2**62, 1):
            with self.assertRaisesRegex(ValueError, f"packed .*{size} values, got {wrong}"):
                kernels.sign_unpack(_zeros(wrong), size)
        with self.assertRaisesRegex(ValueError, "size .*got -1"):
            kernels.sign_unpack(as_bytes([]), -1)
        with self.assertRaisesRegex(ValueError, "padding .*9 values, got the last byte 2"):
            kernels.sign_unpack(as_bytes([255, 2]), 9)


class SignMergeTest(InstructionSetTestCase):
    @hypothesis.given(
        st.integers(0, 80),
        st.integers(0, 2**32),
        st.integers(1, 2**20),
        st.integers(1, 2**20),
        _SEEDS,
        INSTRUCTION_SETS,
    )
    def test_merging_agrees_with_the_reference(self, size, bits, i, j, seed, instruction_set):
        kernels.set_instruction_set(instruction_set)
        first, second = testing.random_bytes(size, bits), testing.random_bytes(size, bits + 1)
        words = philox_reference.words(seed, signs_reference.blocks(size))
        np.testing.assert_array_equal(
            kernels.sign_merge(first, second, i, j, seed),
            signs_reference.merge(first, second, i, j, words),
        )

    @parameterized.parameters((1, 1), (1, 2), (7, 1), (3, 5), (1, 1000000))
    def test_instruction_sets_agree_and_agreeing_bits_stay(self, i, j):
        first, second = testing.random_bytes(100003, 1), testing.random_bytes(100003, 2)
        [merged] = self.assert_instruction_sets_agree(
            lambda: [kernels.sign_merge(first, second, i, j, 5)]
        )
        self.assertFalse(np.any((merged ^ first) & ~(first ^ second)))

    @parameterized.parameters(*kernels.instruction_sets())
    def test_the_merging_rule_is_the_golden_one(self, instruction_set):
        # The drawn bit v is what was kept where the bits differ. |z| < 4.5
        # fails with probability 7e-6 for each of 12 cases.
        kernels.set_instruction_set(instruction_set)
        golden = testing.golden("marsit_merge")
        for case in golden:
            m, incoming, local = case["m"], case["incoming"], case["local"]
            aggregate, own = (_ones(_SAMPLE) * bit for bit in (incoming, local))
            merged = signs_reference.bits(kernels.sign_merge(aggregate, own, m - 1, 1, 7))
            if incoming == local:
                self.assertTrue(np.all(merged == case["out"]))
                continue
            kept = _kept(m - 1, 1, 7)
            transient = kept if incoming else 1 - kept
            drawn = transient == case["transient"]
            self.assertTrue(np.all(merged[drawn] == case["out"]))
            p = case["p_transient_one"]
            z = (transient.mean() - p) * np.sqrt(transient.size / (p * (1 - p)))
            self.assertLess(abs(z), 4.5, case)

    def test_a_seed_is_an_integer_or_two(self):
        first, second = testing.random_bytes(100, 1), testing.random_bytes(100, 2)

        def merge(seed):
            return kernels.sign_merge(first, second, 1, 2, seed).tobytes()

        self.assertEqual(merge(3), merge((3, 0)))
        self.assertEqual(merge(np.array([3, 4], np.int32)), merge([3, 4]))
        self.assertLen({merge(seed) for seed in (3, 4, (3, 1), -3, 3 + 2**32)}, 5)

    def test_inputs_keep_their_bytes(self):
        first, second = testing.random_bytes(100, 1), testing.random_bytes(100, 2)
        before = first.copy(), second.copy()
        kernels.sign_merge(first, second, 1, 2, 0)
        np.testing.assert_array_equal(first, before[0])
        np.testing.assert_array_equal(second, before[1])

    def test_bad_arguments_are_refused(self):
        def merge(first=2, second=2, i=1, j=1, seed=0):
            return kernels.sign_merge(_zeros(first), _zeros(second), i, j, seed)

        with self.assertRaisesRegex(ValueError, "second .*size of first, 2, got 3"):
            merge(second=3)
        for i, j in [
            (0, 1),
            (1, 0),
            (-1, 5),
            (2**31 - 1, 1),
            (1, 2**31 - 1),
            (2**63 - 1, 2**63 - 1),
        ]:
            with self.assertRaisesRegex(ValueError, f"first_count .*2.31 - 1, got {i} and {j}"):
                merge(i=i, j=j)
        for i, j in (2**31 - 2, 1), (1, 2**31 - 2):
            merge(i=i, j=j)
        with self.assertRaisesRegex(ValueError, "seed"):
            merge(seed=0.5)
        with self.assertRaisesRegex(TypeError, "first .*uint8, got int8"):
            kernels.sign_merge(np.zeros(1, np.int8), _zeros(1), 1, 1, 0)
        with self.assertRaisesRegex(ValueError, "second .*one dimension"):
            kernels.sign_merge(_zeros(1), np.zeros((1, 1), np.uint8), 1, 1, 0)


class UnbiasedTest(parameterized.TestCase):
    """The expected bit of a merge is the mean of its workers' bits."""

    def _assert_means(self, workers, aggregate):
        # One z-test for each combination of the workers' bits: with 2^m of
        # them, |z| < 5.5 fails with probability 2^m * 4e-8.
        count = len(workers)
        which = np.zeros(8 * aggregate.size, np.int64)
        for w, own in enumerate(workers):
            which |= signs_reference.bits(own).astype(np.int64) << w
        totals = np.bincount(which, minlength=2**count)
        ones = np.bincount(which, signs_reference.bits(aggregate), 2**count)
        for combination in range(2**count):
            p = combination.bit_count() / count
            if p in (0, 1):
                self.assertEqual(ones[combination], p * totals[combination])
                continue
            z = (ones[combination] - totals[combination] * p) / np.sqrt(
                totals[combination] * p * (1 - p)
            )
            self.assertLess(abs(z), 5.5, f"{combination:b}")

    @parameterized.parameters(2, 3, 8)
    def test_a_ring_of_workers(self, count):
        workers = [testing.random_bytes(_SAMPLE, w) for w in range(count)]
        self._assert_means(workers, _ring(workers, 11))

    @parameterized.parameters((2, 2), (3, 1), (4, 2), (3, 5))
    def test_groups_as_a_torus_merges_them(self, i, j):
        workers = [testing.random_bytes(_SAMPLE, w) for w in range(i + j)]
        rows = _ring(workers[:i], 12), _ring(workers[i:], 13)
        self._assert_means(workers, kernels.sign_merge(*rows, i, j, 14))

    @parameterized.parameters((1, 1000000), (1000000, 1))
    def test_very_unequal_groups(self, i, j):
        # The probability is i / (i + j) but for 2^-20, exactly T / 2^19.
        # |z| < 4.5 fails with probability 7e-6.
        total = i + j
        p = (i * 2**19 + total // 2) // total / 2**19
        self.assertLessEqual(abs(p - i / total), 2**-20)
        kept = _kept(i, j, 15, 2**23)
        z = (kept.sum() - kept.size * p) / np.sqrt(kept.size * p * (1 - p))
        self.assertLess(abs(z), 4.5)


class IndependenceTest(parameterized.TestCase):
    """|z| < 5 fails with probability 6e-7 for each z."""

    def _assert_uncorrelated(self, a, b, p, message):
        z = np.sum((a - p) * (b - p)) / (p * (1 - p) * np.sqrt(a.size))
        self.assertLess(abs(z), 5, message)

    @parameterized.parameters((1, 1), (1, 2), (3, 1), (3, 5), (7, 9))
    def test_neighbours_and_groups_are_uncorrelated(self, i, j):
        kept = _kept(i, j, 21).astype(np.float64)
        # Within words, blocks and groups (128 values), batches and turns.
        for lag in [1, 2, 3, 7, 8, 16, 31, 32, 33, 64, 96, 127, 128, 129, 256, 1024, 4096, 8192]:
            self._assert_uncorrelated(kept[:-lag], kept[lag:], i / (i + j), lag)

    @parameterized.parameters((1, 1), (1, 2), (3, 1), (3, 5))
    def test_bytes_have_all_values_as_often_as_they_should(self, i, j):
        # The chi-square sum of 256 values has 255 degrees of freedom.
        p = i / (i + j)
        counts = np.bincount(signs_reference.pack(_kept(i, j, 22)), minlength=256)
        ones = np.array([value.bit_count() for value in range(256)])
        expected = _SAMPLE * p**ones * (1 - p) ** (8 - ones)
        chi_square = np.sum((counts - expected) ** 2 / expected)
        self.assertLess(abs(chi_square - 255) / np.sqrt(2 * 255), 5)

    def test_positions_among_the_undecided_have_the_same_probability(self):
        # Which half of which block decides depends on the bits before: no
        # place of a group may be preferred, however many bits differ.
        for density in 1, 4:
            differ = _ones(_SAMPLE)
            for k in range(density - 1):
                differ &= testing.random_bytes(_SAMPLE, k)
            kept = signs_reference.bits(
                kernels.sign_merge(differ, _zeros(_SAMPLE), 1, 2, 23)
            ).reshape(-1, 128)
            totals = signs_reference.bits(differ).reshape(-1, 128).sum(0)
            z = (kept.sum(0) - totals / 3) / np.sqrt(totals * 2 / 9)
            self.assertLess(np.abs(z).max(), 5)
            self._assert_sum_of_squares(z)

    def _assert_sum_of_squares(self, z):
        self.assertLess(abs(np.sum(z**2) - z.size) / np.sqrt(2 * z.size), 5)

    def test_seeds_and_streams_are_uncorrelated(self):
        seeds = [0, 1, 2**32, (0, 1), (0, 2**32), -1]
        kept = [_kept(1, 2, seed).astype(np.float64) for seed in seeds]
        for k, seed in enumerate(seeds):
            for other in range(k):
                self._assert_uncorrelated(kept[other], kept[k], 1 / 3, seed)


if __name__ == "__main__":
    absltest.main()
