"""tf_gc.kernels: 3LC for NumPy arrays, on every instruction set."""

import threading

import hypothesis
import ml_dtypes
import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import testing
from tests import three_lc_reference as reference
from tests.kernels.numpy_testing import (
    INSTRUCTION_SETS,
    MODERATE_FLOAT,
    InstructionSetTestCase,
    as_bytes,
    as_floats,
)
from tf_gc import kernels

_TERNARY = st.lists(st.integers(-1, 1), max_size=400).map(lambda values: np.array(values, np.int8))
# Half of them 121, so that there are runs.
_QUARTIC = st.lists(st.one_of(st.just(121), st.integers(0, 242)), max_size=400).map(as_bytes)
_VALUES = st.lists(MODERATE_FLOAT, max_size=200).map(as_floats)
_MULTIPLIERS = st.floats(0.125, 2, exclude_max=True, width=32)
_UNIT = st.floats(2.0**-20, 2.0**20, width=32)


class GoldenTest(InstructionSetTestCase):
    @parameterized.parameters(*kernels.instruction_sets())
    def test_three_lc_gives_the_golden_steps(self, instruction_set):
        kernels.set_instruction_set(instruction_set)
        for case in testing.golden("three_lc")["three_lc"]:
            multiplier = case["sparsity_multiplier"]
            residual = np.zeros(case["n"], np.float32)
            for step in case["steps"]:
                values = as_floats(step["x"])
                scale, ternary, quantized_residual = kernels.three_lc_quantize(
                    values, residual, multiplier
                )
                encoded, residual = kernels.three_lc_encode(values, residual, multiplier)
                self.assertEqual(np.float32(scale), np.float32(step["scale"]))
                self.assertEqual(ternary.tolist(), step["ternary"])
                self.assertEqual(kernels.quartic_encode(ternary).tolist(), step["quartic"])
                self.assertEqual(encoded[:4].view("<f4")[0], scale)
                self.assertEqual(encoded[4:].tolist(), step["zero_run"])
                np.testing.assert_array_equal(residual, as_floats(step["residual"]))
                np.testing.assert_array_equal(residual, quantized_residual)

    @parameterized.parameters(*kernels.instruction_sets())
    def test_zero_run_gives_the_golden_codes(self, instruction_set):
        kernels.set_instruction_set(instruction_set)
        for case in testing.golden("three_lc")["zero_run"]:
            encoded = kernels.zero_run_encode(as_bytes(case["quartic"]))
            self.assertEqual(encoded.tolist(), case["zero_run"])
            decoded = kernels.zero_run_decode(encoded, len(case["quartic"]))
            self.assertEqual(decoded.tolist(), case["quartic"])

    def test_zeros_shrink_280_fold(self):
        case = testing.golden("three_lc")["all_zero_ratio_280"]
        zeros = np.zeros(case["values"], np.float32)
        encoded, residual = kernels.three_lc_encode(zeros, zeros, 1.0)
        self.assertEqual(encoded.tolist(), [0, 0, 0, 0] + [255] * case["bytes"])
        np.testing.assert_array_equal(residual, zeros)


class QuarticTest(InstructionSetTestCase):
    def test_digits_come_from_five_partitions(self):
        # Partitions (1, -1), (0, 0), (-1, 1), (1, 1), (0, padding).
        ternary = np.array([1, -1, 0, 0, -1, 1, 1, 1, 0], np.int8)
        self.assertEqual(
            kernels.quartic_encode(ternary).tolist(),
            [
                2 * 81 + 1 * 27 + 0 * 9 + 2 * 3 + 1,
                0 * 81 + 1 * 27 + 2 * 9 + 2 * 3 + 0,
            ],
        )

    def test_every_length_comes_back(self):
        for n in range(201):
            ternary = np.random.default_rng(n).integers(-1, 2, n).astype(np.int8)
            encoded = kernels.quartic_encode(ternary)
            self.assertEqual(encoded.tolist(), reference.quartic_encode(ternary))
            decoded = kernels.quartic_decode(encoded, [n])
            np.testing.assert_array_equal(decoded, ternary)

    @parameterized.parameters(*kernels.instruction_sets())
    def test_a_million_values_come_back(self, instruction_set):
        kernels.set_instruction_set(instruction_set)
        ternary = np.random.default_rng(0).integers(-1, 2, (1001, 1003))
        ternary = ternary.astype(np.int8)
        encoded = kernels.quartic_encode(ternary)
        self.assertEqual(encoded.shape, (200801,))
        decoded = kernels.quartic_decode(encoded, ternary.shape)
        np.testing.assert_array_equal(decoded, ternary)

    @hypothesis.given(_TERNARY)
    def test_decoding_inverts_encoding(self, ternary):
        encoded = kernels.quartic_encode(ternary)
        np.testing.assert_array_equal(kernels.quartic_decode(encoded, ternary.shape), ternary)

    def test_a_strided_array_is_read_in_its_own_order(self):
        ternary = np.array([[1, -1, 0], [0, 1, 1]], np.int8)
        self.assertEqual(
            kernels.quartic_encode(ternary.T).tolist(),
            reference.quartic_encode([1, 0, -1, 1, 0, 1]),
        )

    def test_a_value_that_is_not_ternary_is_named_with_its_index(self):
        ternary = np.zeros(300, np.int8)
        ternary[207] = -2
        ternary[250] = 2
        with self.assertRaisesRegex(ValueError, "ternary .*got -2 at index 207"):
            kernels.quartic_encode(ternary)

    def test_a_byte_above_242_is_named_with_its_index(self):
        with self.assertRaisesRegex(ValueError, "encoded .*got 243 at index 1"):
            kernels.quartic_decode(as_bytes([0, 243, 0]), [15])

    def test_padding_other_than_zero_is_refused(self):
        with self.assertRaisesRegex(ValueError, "encoded .*got 1 at index 0"):
            kernels.quartic_decode(as_bytes([1]), [4])

    def test_a_size_that_does_not_fit_the_shape_is_refused(self):
        with self.assertRaisesRegex(ValueError, "encoded .*3 bytes .*got 2"):
            kernels.quartic_decode(as_bytes([0, 0]), [11])

    def test_wrong_types_are_refused(self):
        with self.assertRaisesRegex(TypeError, "ternary .*int8, got int32"):
            kernels.quartic_encode(np.zeros(3, np.int32))
        with self.assertRaisesRegex(TypeError, "encoded .*uint8, got int8"):
            kernels.quartic_decode(np.zeros(1, np.int8), [3])
        with self.assertRaisesRegex(ValueError, "encoded .*one dimension"):
            kernels.quartic_decode(np.zeros((1, 1), np.uint8), [3])
        with self.assertRaisesRegex(ValueError, "shape .*negative.*-3"):
            kernels.quartic_decode(np.zeros(1, np.uint8), [-3])


class ZeroRunTest(InstructionSetTestCase):
    def test_runs_up_to_29(self):
        for run, codes in [
            (0, []),
            (1, [121]),
            (2, [243]),
            (13, [254]),
            (14, [255]),
            (15, [255, 121]),
            (16, [255, 243]),
            (28, [255, 255]),
            (29, [255, 255, 121]),
        ]:
            with self.subTest(run=run):
                quartic = as_bytes([7] + [121] * run + [9])
                encoded = kernels.zero_run_encode(quartic)
                self.assertEqual(encoded.tolist(), [7, *codes, 9])
                np.testing.assert_array_equal(kernels.zero_run_decode(encoded, run + 2), quartic)

    @hypothesis.given(_QUARTIC, INSTRUCTION_SETS)
    def test_decoding_inverts_encoding(self, quartic, instruction_set):
        kernels.set_instruction_set(instruction_set)
        encoded = kernels.zero_run_encode(quartic)
        self.assertEqual(encoded.tolist(), reference.zero_run_encode(quartic))
        np.testing.assert_array_equal(kernels.zero_run_decode(encoded, quartic.size), quartic)

    def test_a_byte_above_242_is_named_with_its_index(self):
        with self.assertRaisesRegex(ValueError, "quartic .*got 255 at index 2"):
            kernels.zero_run_encode(as_bytes([0, 242, 255]))

    def test_truncated_and_over_long_encodings_are_refused(self):
        for encoded, size in [([], 1), ([7], 2), ([255], 13), ([7, 7], 1)]:
            with self.assertRaisesRegex(ValueError, f"size = {size} "):
                kernels.zero_run_decode(as_bytes(encoded), size)

    def test_a_negative_size_is_refused(self):
        with self.assertRaisesRegex(ValueError, "size .*got -1"):
            kernels.zero_run_decode(as_bytes([]), -1)


class ThreeLcTest(InstructionSetTestCase):
    def test_by_hand(self):
        # t = (1, -0.75, 0.5, 0.25, -1, 0), M = 1: 2 |t| > 1 for three of them.
        values = as_floats([1, -1, 0.5, 0.5, -1, 0])
        residual = as_floats([0, 0.25, 0, -0.25, 0, 0])
        encoded, new_residual = kernels.three_lc_encode(values, residual, 1.0)
        self.assertEqual(encoded[:4].tobytes(), b"\x00\x00\x80\x3f")
        # Partitions (1, -1), (0, 0), (-1, 0) and twice padding, all plus 1.
        self.assertEqual(encoded[4:].tolist(), [162 + 27, 27 + 9])
        self.assertEqual(new_residual.tolist(), [0, 0.25, 0.5, 0.25, 0, 0])
        decoded = kernels.three_lc_decode(encoded, [2, 3])
        self.assertEqual(decoded.tolist(), [[1, -1, 0], [0, -1, 0]])

    def test_half_the_scale_is_not_sent(self):
        # Round half to even: t / M = 1/2 gives 0.
        _, ternary, _ = kernels.three_lc_quantize(
            as_floats([1, 0.5, -0.5, np.nextafter(np.float32(0.5), 1)]),
            np.zeros(4, np.float32),
            1.0,
        )
        self.assertEqual(ternary.tolist(), [1, 0, 0, 1])

    @hypothesis.given(_VALUES, _MULTIPLIERS, st.data())
    def test_encoding_agrees_with_the_reference(self, values, multiplier, data):
        residual = as_floats(
            data.draw(st.lists(MODERATE_FLOAT, min_size=values.size, max_size=values.size))
        )
        expected, expected_residual = reference.encode(values, residual, multiplier)
        for instruction_set in kernels.instruction_sets():
            kernels.set_instruction_set(instruction_set)
            encoded, new_residual = kernels.three_lc_encode(values, residual, multiplier)
            self.assertEqual(encoded.tolist(), expected)
            np.testing.assert_array_equal(new_residual, expected_residual)

    def test_every_length_agrees_with_the_reference(self):
        for n in range(201):
            values, residual = testing.gradient(n, n), testing.gradient(n, n + 1000)
            encoded, new_residual = kernels.three_lc_encode(values, residual, 1.25)
            expected, expected_residual = reference.encode(values, residual, 1.25)
            self.assertEqual(encoded.tolist(), expected)
            np.testing.assert_array_equal(new_residual, expected_residual)

    @hypothesis.given(
        st.lists(_UNIT, min_size=1, max_size=20).map(as_floats),
        st.lists(_UNIT, min_size=1, max_size=80).map(as_floats),
        _MULTIPLIERS,
        st.integers(0, 2**32),
    )
    def test_encoding_in_units_agrees_with_the_reference(self, rows, columns, multiplier, seed):
        shape = rows.size, columns.size
        units = rows, columns
        values = testing.gradient(shape, seed) * np.outer(rows, columns)
        residual = testing.gradient(shape, seed + 1) * rows[:, np.newaxis]
        expected, expected_residual = reference.encode(values, residual, multiplier, units)
        scale, expected_ternary, _ = reference.quantize(values, residual, multiplier, units)
        delivered = reference.scaled(scale, units, shape) * expected_ternary
        for instruction_set in kernels.instruction_sets():
            kernels.set_instruction_set(instruction_set)
            encoded, new_residual = kernels.three_lc_encode(values, residual, multiplier, units)
            self.assertEqual(encoded.tolist(), expected)
            np.testing.assert_array_equal(new_residual, expected_residual)
            decoded = kernels.three_lc_decode(encoded, shape, units)
            np.testing.assert_array_equal(decoded, delivered)
            _, ternary, new_residual = kernels.three_lc_quantize(
                values, residual, multiplier, units
            )
            np.testing.assert_array_equal(ternary, expected_ternary)
            np.testing.assert_array_equal(new_residual, expected_residual)

    def test_in_units_small_rows_are_sent_too(self):
        units = as_floats([1, 1e-4]), as_floats([1, 1, 1, 1])
        values = as_floats([[1, -1, 0.25, 1], [1e-4, -1e-4, 0, 0.25e-4]])
        residual = np.zeros_like(values)
        _, ternary, _ = kernels.three_lc_quantize(values, residual, 1.0)
        self.assertEqual(ternary.tolist(), [[1, -1, 0, 1], [0, 0, 0, 0]])
        _, ternary, _ = kernels.three_lc_quantize(values, residual, 1.0, units)
        self.assertEqual(ternary.tolist(), [[1, -1, 0, 1], [1, -1, 0, 0]])

    def test_below_1_larger_values_are_cut(self):
        values = as_floats([1, -0.75, 0.25, 0.125])
        scale, ternary, residual = kernels.three_lc_quantize(values, np.zeros(4, np.float32), 0.5)
        self.assertEqual(scale, 0.5)
        self.assertEqual(ternary.tolist(), [1, -1, 0, 0])
        self.assertEqual(residual.tolist(), [0.5, -0.25, 0.25, 0.125])

    @parameterized.parameters(0.5, 1.0, 1.5, 1.999)
    def test_delivered_plus_new_residual_is_values_plus_residual(self, multiplier):
        for n in [0, 1, 4, 5, 64, 199, 12345]:
            values, residual = testing.gradient(n, 1), testing.gradient(n, 2)
            encoded, new_residual = kernels.three_lc_encode(values, residual, multiplier)
            delivered = kernels.three_lc_decode(encoded, [n])
            # t - M q is exact, so that adding M q gives t back.
            np.testing.assert_array_equal(
                delivered.astype(np.float64) + new_residual, values + residual
            )

    def test_instruction_sets_agree_on_large_arrays(self):
        values, residual = testing.gradient(300007, 1), testing.gradient(300007, 2)

        def results():
            encoded, new_residual = kernels.three_lc_encode(values, residual, 1.75)
            return encoded, new_residual, kernels.three_lc_decode(encoded, values.shape)

        self.assert_instruction_sets_agree(results)

    @parameterized.parameters(np.float16, ml_dtypes.bfloat16)
    def test_half_precision_is_encoded_as_its_float32(self, dtype):
        values = testing.gradient(1000).astype(dtype)
        residual = testing.gradient(1000, 1)
        encoded, new_residual = kernels.three_lc_encode(values, residual, 1.5)
        expected, expected_residual = kernels.three_lc_encode(
            values.astype(np.float32), residual, 1.5
        )
        np.testing.assert_array_equal(encoded, expected)
        np.testing.assert_array_equal(new_residual, expected_residual)

    @parameterized.parameters(np.nan, np.inf, -np.inf)
    def test_a_non_finite_value_arrives_as_nan_everywhere(self, bad):
        for n, index in [(1, 0), (7, 6), (1000, 500)]:
            values, residual = testing.gradient(n), testing.gradient(n, 1)
            values[index] = bad
            encoded, new_residual = kernels.three_lc_encode(values, residual, 1.0)
            self.assertEqual(encoded.size, 4)
            np.testing.assert_array_equal(new_residual, residual)
            decoded = kernels.three_lc_decode(encoded, [n])
            self.assertTrue(np.isnan(decoded).all())
            scale, ternary, _ = kernels.three_lc_quantize(values, residual, 1.0)
            self.assertTrue(np.isnan(scale))
            self.assertFalse(ternary.any())

    def test_a_scale_that_overflows_is_non_finite(self):
        values = as_floats([3e38, 1])
        encoded, residual = kernels.three_lc_encode(values, as_floats([0, 0]), 1.5)
        self.assertTrue(np.isnan(kernels.three_lc_decode(encoded, [2])).all())
        self.assertEqual(residual.tolist(), [0, 0])

    def test_values_keep_their_arrays(self):
        values, residual = testing.gradient(100), testing.gradient(100, 1)
        before = values.copy(), residual.copy()
        kernels.three_lc_encode(values, residual, 1.0)
        np.testing.assert_array_equal(values, before[0])
        np.testing.assert_array_equal(residual, before[1])

    @parameterized.parameters(0.0, 2.0, -1.0, np.nan, np.inf)
    def test_a_sparsity_multiplier_outside_0_to_2_is_refused(self, multiplier):
        zeros = np.zeros(3, np.float32)
        for function in kernels.three_lc_encode, kernels.three_lc_quantize:
            with self.assertRaisesRegex(ValueError, "sparsity_multiplier must .*got"):
                function(zeros, zeros, multiplier)

    def test_wrong_arrays_are_refused(self):
        zeros = np.zeros(6, np.float32)
        for function in kernels.three_lc_encode, kernels.three_lc_quantize:
            with self.assertRaisesRegex(TypeError, "values .*got float64"):
                function(zeros.astype(np.float64), zeros, 1.0)
            with self.assertRaisesRegex(TypeError, "residual .*got float16"):
                function(zeros, zeros.astype(np.float16), 1.0)
            with self.assertRaisesRegex(ValueError, r"residual .*\(6,\), got \(2, 3\)"):
                function(zeros, zeros.reshape(2, 3), 1.0)
            with self.assertRaises(TypeError):
                function([1.0], zeros, 1.0)

    def test_units_of_other_sizes_are_refused(self):
        zeros = np.zeros([2, 3], np.float32)
        three, two = np.ones(3, np.float32), np.ones(2, np.float32)
        encoded, _ = kernels.three_lc_encode(zeros, zeros, 1.0, (two, three))
        for units, message in [
            ((three, three), r"units .* 6, .*got shapes \(3,\) and \(3,\)"),
            ((two, zeros), r"units .*got shapes \(2,\) and \(2, 3\)"),
        ]:
            for call in (
                lambda units: kernels.three_lc_encode(zeros, zeros, 1.0, units),
                lambda units: kernels.three_lc_quantize(zeros, zeros, 1.0, units),
                lambda units: kernels.three_lc_decode(encoded, [2, 3], units),
            ):
                with self.assertRaisesRegex(ValueError, message):
                    call(units)
        for bad in (0.0, -1.0, np.nan, np.inf):
            units = two, as_floats([1, bad, 1])
            message = rf"units\[1\] must be finite and above 0, got {bad} at index 1"
            for call in (
                lambda units: kernels.three_lc_encode(zeros, zeros, 1.0, units),
                lambda units: kernels.three_lc_quantize(zeros, zeros, 1.0, units),
                lambda units: kernels.three_lc_decode(encoded, [2, 3], units),
            ):
                with self.assertRaisesRegex(ValueError, message):
                    call(units)
        with self.assertRaisesRegex(TypeError, r"units\[1\] .*float32, got float64"):
            kernels.three_lc_encode(zeros, zeros, 1.0, (two, np.ones(3)))

    def test_bad_encodings_are_refused(self):
        one = [0, 0, 128, 63]
        for bad, message in [
            ([], "too short"),
            ([0, 0, 128], "too short"),
            (one, "ends before"),
            ([*one, 0, 0], "ends before"),
            ([*one, 0, 0, 255], "zero run"),
            ([*one, 0, 0, 1], "padding"),
            ([*one, 0, 0, 0, 121], "goes on"),
            ([0, 0, 192, 127, 0], "NaN"),
            ([0, 0, 128, 127, 0, 0, 0], "infinite"),
            ([0, 0, 128, 191, 0, 0, 0], "negative"),
        ]:
            with (
                self.subTest(bad=bad),
                self.assertRaisesRegex(ValueError, f"encoded.*{message}"),
            ):
                kernels.three_lc_decode(as_bytes(bad), [11])
        with self.assertRaisesRegex(TypeError, "encoded .*uint8"):
            kernels.three_lc_decode(np.zeros(4, np.int8), [1])
        with self.assertRaisesRegex(ValueError, "shape .*negative.*-1"):
            kernels.three_lc_decode(as_bytes(one), [-1])
        with self.assertRaisesRegex(ValueError, "ends before"):
            kernels.three_lc_decode(as_bytes([*one, 255]), [2**30, 2**30])

    def test_threads_may_call_at_once(self):
        values, residual = testing.gradient(100003), testing.gradient(100003, 1)
        expected, _ = kernels.three_lc_encode(values, residual, 1.0)
        results = [None] * 4

        def encode(index):
            for _ in range(10):
                results[index], _ = kernels.three_lc_encode(values, residual, 1.0)

        threads = [threading.Thread(target=encode, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            np.testing.assert_array_equal(result, expected)


class InstructionSetsTest(InstructionSetTestCase):
    def test_baseline_comes_first(self):
        self.assertEqual(kernels.instruction_sets()[0], "baseline")

    def test_an_unknown_name_is_refused(self):
        with self.assertRaisesRegex(ValueError, "name .*got 'mmx'"):
            kernels.set_instruction_set("mmx")


if __name__ == "__main__":
    absltest.main()
