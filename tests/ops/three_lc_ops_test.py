"""tf_gc.ops: 3LC's ops, eagerly and in a tf.function."""

import concurrent.futures
import hashlib
import json
import multiprocessing
import os

import hypothesis
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import three_lc_reference as reference
from tf_gc import ops

_GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "three_lc.json")

hypothesis.settings.register_profile(
    "tf_gc", deadline=None, derandomize=True, database=None, max_examples=30
)
hypothesis.settings.load_profile("tf_gc")

_NAN = float("nan")
_INFINITY = float("inf")

# How a test calls the ops: as they are, and in a graph.
_MODES = (
    ("eager", lambda function: function),
    ("graph", lambda function: tf.function(function, reduce_retracing=True)),
)


def _golden():
    with open(_GOLDEN, encoding="utf-8") as file:
        return json.load(file)


def _gradient(size, seed=0):
    """Values most of which are small, as gradients are."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(size) * rng.choice([0.01, 1.0], size)
    return values.astype(np.float32)


def _bytes(values):
    return tf.constant(values, tf.uint8, shape=[len(values)])


def _floats(values):
    return np.array(values, np.float32)


def _traced(function, *specs):
    """The graph's outputs for inputs of which only the specs are known."""
    return tf.function(function).get_concrete_function(*specs).structured_outputs


class GoldenTest(parameterized.TestCase):
    @parameterized.named_parameters(*_MODES)
    def test_three_lc_gives_the_golden_steps(self, compile_function):
        encode = compile_function(ops.three_lc_encode)
        decode = compile_function(ops.three_lc_decode)
        quartic_encode = compile_function(ops.quartic_encode)
        for case in _golden()["three_lc"]:
            residual = tf.zeros([case["n"]])
            for step in case["steps"]:
                encoded, residual = encode(
                    tf.constant(step["x"]),
                    residual,
                    tf.constant(case["sparsity_multiplier"]),
                )
                encoded = encoded.numpy()
                scale = encoded[:4].view("<f4")[0]
                self.assertEqual(scale, np.float32(step["scale"]))
                self.assertEqual(encoded[4:].tolist(), step["zero_run"])
                np.testing.assert_array_equal(residual, _floats(step["residual"]))
                np.testing.assert_array_equal(
                    decode(tf.constant(encoded), tf.constant([case["n"]])),
                    scale * _floats(step["ternary"]),
                )
                quartic = quartic_encode(tf.constant(step["ternary"], tf.int8))
                self.assertEqual(quartic.numpy().tolist(), step["quartic"])

    @parameterized.named_parameters(*_MODES)
    def test_zero_run_gives_the_golden_codes(self, compile_function):
        encode = compile_function(ops.zero_run_encode)
        decode = compile_function(ops.zero_run_decode)
        for case in _golden()["zero_run"]:
            encoded = encode(_bytes(case["quartic"]))
            self.assertEqual(encoded.numpy().tolist(), case["zero_run"])
            decoded = decode(encoded, tf.constant(len(case["quartic"])))
            self.assertEqual(decoded.numpy().tolist(), case["quartic"])

    def test_zeros_shrink_280_fold(self):
        case = _golden()["all_zero_ratio_280"]
        zeros = tf.zeros([case["values"]])
        encoded, _ = ops.three_lc_encode(zeros, zeros, 1.0)
        self.assertEqual(encoded.shape, [4 + case["bytes"]])


class RoundTripTest(parameterized.TestCase):
    def test_every_length_comes_back_from_quartic_encoding(self):
        for n in range(201):
            ternary = np.random.default_rng(n).integers(-1, 2, n).astype(np.int8)
            quartic = ops.quartic_encode(ternary)
            self.assertEqual(quartic.numpy().tolist(), reference.quartic_encode(ternary))
            np.testing.assert_array_equal(ops.quartic_decode(quartic, [n]), ternary)

    @hypothesis.given(st.lists(st.one_of(st.just(121), st.integers(0, 242)), max_size=300))
    def test_zero_run_decoding_inverts_encoding(self, quartic):
        encoded = ops.zero_run_encode(_bytes(quartic))
        self.assertEqual(encoded.numpy().tolist(), reference.zero_run_encode(quartic))
        decoded = ops.zero_run_decode(encoded, tf.constant(len(quartic), tf.int64))
        self.assertEqual(decoded.numpy().tolist(), quartic)

    def test_every_length_agrees_with_the_reference(self):
        for n in range(201):
            values, residual = _gradient(n, n), _gradient(n, n + 1000)
            encoded, new_residual = ops.three_lc_encode(values, residual, 1.25)
            expected, expected_residual = reference.encode(values, residual, 1.25)
            self.assertEqual(encoded.numpy().tolist(), expected)
            np.testing.assert_array_equal(new_residual, expected_residual)

    @parameterized.parameters((), (7,), (0,), (3, 0), (3, 5, 41), (1000003,))
    def test_delivered_plus_new_residual_is_values_plus_residual(self, *shape):
        values, residual = _gradient(shape, 1), _gradient(shape, 2)
        encoded, new_residual = ops.three_lc_encode(values, residual, 1.5)
        delivered = ops.three_lc_decode(encoded, tf.constant(shape, tf.int32))
        self.assertEqual(delivered.shape, shape)
        # t - M q is exact, so that adding M q gives t back.
        np.testing.assert_array_equal(
            delivered.numpy().astype(np.float64) + new_residual.numpy(),
            values + residual,
        )

    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_half_precision_is_encoded_as_its_float32(self, dtype):
        values = tf.cast(_gradient(1000), dtype)
        residual = _gradient(1000, 1)
        encoded, new_residual = ops.three_lc_encode(values, residual, 1.5)
        expected = ops.three_lc_encode(tf.cast(values, tf.float32), residual, 1.5)
        np.testing.assert_array_equal(encoded, expected.encoded)
        np.testing.assert_array_equal(new_residual, expected.new_residual)

    def test_a_residual_that_is_used_again_is_not_overwritten(self):
        @tf.function
        def steps(values):
            residual = values * 0.5
            _, first = ops.three_lc_encode(values, residual, 1.0)
            _, second = ops.three_lc_encode(values, residual, 1.0)
            return first, second, residual

        values = _gradient(100)
        first, second, residual = steps(values)
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(residual, values * np.float32(0.5))

    @parameterized.parameters(_NAN, _INFINITY, -_INFINITY)
    def test_a_non_finite_value_arrives_as_nan_everywhere(self, bad):
        values, residual = _gradient(1000), _gradient(1000, 1)
        values[500] = bad
        encoded, new_residual = ops.three_lc_encode(values, residual, 1.0)
        self.assertEqual(encoded.shape, [4])
        np.testing.assert_array_equal(new_residual, residual)
        decoded = ops.three_lc_decode(encoded, [10, 100])
        self.assertTrue(np.isnan(decoded).all())

    def test_the_multiplier_may_change_without_a_new_trace(self):
        traces = []

        @tf.function
        def encode(values, multiplier):
            traces.append(multiplier)
            return ops.three_lc_encode(values, tf.zeros_like(values), multiplier)

        values = tf.constant(_gradient(1000))
        sizes = [
            encode(values, tf.constant(multiplier)).encoded.shape[0]
            for multiplier in (1.0, 1.5, 1.9)
        ]
        self.assertLen(traces, 1)
        self.assertEqual(sizes, sorted(sizes, reverse=True))


def _digests(threads):
    """Of what the ops make of large inputs on so many intra-op threads."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    results = []
    # Small enough, all that is left over is denormal.
    for factor in np.float32(1), np.float32(1e-38):
        values = _gradient(2_000_003) * factor
        values[500_000:1_100_000] = 0
        encoded, residual = ops.three_lc_encode(values, tf.zeros_like(values), 1.75)
        decoded = ops.three_lc_decode(encoded, values.shape)
        ternary = tf.cast(tf.sign(decoded), tf.int8)
        quartic = ops.quartic_encode(ternary)
        runs = ops.zero_run_encode(quartic)
        results += [encoded, residual, decoded, quartic, runs]
        results.append(ops.quartic_decode(quartic, values.shape))
        results.append(ops.zero_run_decode(runs, quartic.shape[0]))
    return [hashlib.sha256(result.numpy().tobytes()).hexdigest() for result in results]


class ThreadsTest(absltest.TestCase):
    def test_results_do_not_depend_on_the_number_of_threads(self):
        # That number is settled once in a process.
        context = multiprocessing.get_context("spawn")
        digests = []
        for threads in 1, 2, 3:
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as process:
                digests.append(process.submit(_digests, threads).result())
        self.assertEqual(digests[1], digests[0])
        self.assertEqual(digests[2], digests[0])


class ErrorTest(parameterized.TestCase):
    def _assert_invalid(self, message, function, *args):
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
            function(*args)

    def _assert_data_loss(self, message, function, *args):
        with self.assertRaisesRegex(tf.errors.DataLossError, message):
            function(*args)

    def test_a_value_that_is_not_ternary_is_named_with_its_index(self):
        self._assert_invalid(
            "ternary .*got 2 at index 3",
            ops.quartic_encode,
            tf.constant([0, 1, -1, 2, -2], tf.int8),
        )

    def test_bad_quartic_bytes_are_named_with_their_index(self):
        self._assert_invalid(
            "encoded .*got 243 at index 1", ops.quartic_decode, _bytes([0, 243]), [10]
        )
        self._assert_invalid(
            "encoded .*padding .*got 1 at index 0", ops.quartic_decode, _bytes([1]), [4]
        )
        self._assert_invalid("quartic .*got 255 at index 0", ops.zero_run_encode, _bytes([255]))

    def test_ranks_other_than_the_documented_are_refused(self):
        matrix = tf.zeros([1, 1], tf.uint8)
        for function, args in [
            (ops.quartic_decode, (matrix, [5])),
            (ops.quartic_decode, (_bytes([0]), 5)),
            (ops.zero_run_encode, (matrix,)),
            (ops.zero_run_decode, (matrix, 1)),
            (ops.zero_run_decode, (_bytes([0]), [1])),
            (ops.three_lc_encode, (tf.zeros([1]), tf.zeros([1]), [1.0])),
            (ops.three_lc_decode, (matrix, [5])),
            (ops.three_lc_decode, (_bytes([0] * 5), 5)),
        ]:
            with self.subTest(function=function.__name__):
                self._assert_invalid("vector|scalar|rank", function, *args)

    def test_wrong_types_are_refused(self):
        wrong = tf.constant([0], tf.int32)
        for function, args in [
            (ops.quartic_encode, (wrong,)),
            (ops.quartic_decode, (wrong, [5])),
            (ops.zero_run_encode, (wrong,)),
            (ops.zero_run_decode, (wrong, 1)),
            (ops.three_lc_encode, (wrong, tf.zeros([1]), 1.0)),
            (ops.three_lc_encode, (tf.zeros([1]), wrong, 1.0)),
            (ops.three_lc_decode, (wrong, [1])),
        ]:
            with (
                self.subTest(function=function.__name__),
                self.assertRaises((tf.errors.InvalidArgumentError, TypeError, ValueError)),
            ):
                function(*args)

    @parameterized.parameters(tf.int32, tf.int64)
    def test_a_negative_dimension_is_refused(self, dtype):
        shape = tf.constant([-5], dtype)
        self._assert_invalid("shape .*-5", ops.quartic_decode, _bytes([0]), shape)
        self._assert_invalid("shape .*-5", ops.three_lc_decode, _bytes([0] * 5), shape)
        self._assert_invalid("size .*-5", ops.zero_run_decode, _bytes([0]), tf.constant(-5, dtype))

    def test_a_shape_with_too_many_values_is_refused_before_it_is_allocated(self):
        huge = tf.constant([2**31, 2**31], tf.int64)
        overflowing = tf.constant([2**40, 2**40], tf.int64)
        payload = _bytes([0, 0, 128, 63, 255])
        self._assert_invalid("encoded", ops.quartic_decode, payload, huge)
        self._assert_data_loss("ends before", ops.three_lc_decode, payload, huge)
        self._assert_data_loss("encoded", ops.zero_run_decode, payload, tf.constant(2**62))
        for decode in ops.quartic_decode, ops.three_lc_decode:
            self._assert_invalid("shape", decode, payload, overflowing)

    def test_sizes_that_do_not_fit_are_refused(self):
        self._assert_invalid("encoded .*2 bytes.*got 1", ops.quartic_decode, _bytes([0]), [6])
        self._assert_invalid(
            "residual .*got .*3",
            ops.three_lc_encode,
            tf.zeros([2]),
            tf.zeros([3]),
            1.0,
        )

    @parameterized.parameters(0.0, 0.999, 2.0, -1.0, _NAN, _INFINITY)
    def test_a_sparsity_multiplier_outside_1_to_2_is_refused(self, multiplier):
        zeros = tf.zeros([3])
        self._assert_invalid(
            "sparsity_multiplier .*got", ops.three_lc_encode, zeros, zeros, multiplier
        )

    def test_bad_encodings_are_data_loss(self):
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
            with self.subTest(bad=bad):
                self._assert_data_loss(
                    f"encoded.*{message}", ops.three_lc_decode, _bytes(bad), [11]
                )
        for bad, size in [([], 1), ([7], 2), ([255], 13), ([7, 7], 1)]:
            with self.subTest(bad=bad):
                self._assert_data_loss(
                    f"encoded.*size = {size} ", ops.zero_run_decode, _bytes(bad), size
                )

    def test_there_is_no_gradient(self):
        values = tf.constant(_gradient(10))
        with tf.GradientTape() as tape:
            tape.watch(values)
            _, residual = ops.three_lc_encode(values, tf.zeros([10]), 1.0)
        self.assertIsNone(tape.gradient(residual, values))


class ShapeTest(parameterized.TestCase):
    def test_known_shapes_give_known_shapes(self):
        zeros = tf.TensorSpec([3, 4], tf.int8)
        self.assertEqual(_traced(ops.quartic_encode, zeros).shape, [3])
        quartic = tf.TensorSpec([3], tf.uint8)
        decoded = _traced(lambda x: ops.quartic_decode(x, [3, 4]), quartic)
        self.assertEqual(decoded.shape, [3, 4])
        encoded = tf.TensorSpec([None], tf.uint8)
        decoded = _traced(lambda x: ops.zero_run_decode(x, 7), encoded)
        self.assertEqual(decoded.shape, [7])
        decoded = _traced(lambda x: ops.three_lc_decode(x, [3, 4]), encoded)
        self.assertEqual(decoded.shape, [3, 4])
        encoded, residual = _traced(
            lambda values: ops.three_lc_encode(values, tf.zeros([3, 4]), 1.0),
            tf.TensorSpec(None, tf.float32),
        )
        self.assertEqual(encoded.shape.as_list(), [None])
        self.assertEqual(residual.shape, [3, 4])

    def test_unknown_shapes_give_known_ranks(self):
        unknown = _traced(ops.quartic_encode, tf.TensorSpec([None, 4], tf.int8))
        self.assertEqual(unknown.shape.as_list(), [None])
        encoded = tf.TensorSpec(None, tf.uint8)
        shape = tf.TensorSpec([2], tf.int64)
        for decode in ops.quartic_decode, ops.three_lc_decode:
            decoded = _traced(decode, encoded, shape)
            self.assertEqual(decoded.shape.as_list(), [None, None])
        decoded = _traced(ops.zero_run_decode, encoded, tf.TensorSpec([], tf.int32))
        self.assertEqual(decoded.shape.as_list(), [None])
        self.assertEqual(_traced(ops.zero_run_encode, encoded).shape.as_list(), [None])

    def test_what_cannot_fit_is_refused_while_tracing(self):
        quartic = tf.TensorSpec([2], tf.uint8)
        matrix = tf.TensorSpec([2, 2], tf.uint8)
        values = tf.TensorSpec([3], tf.float32)
        for message, function, spec in [
            ("3 bytes", lambda x: ops.quartic_decode(x, [11]), quartic),
            ("at least 4 bytes", lambda x: ops.three_lc_decode(x, [5]), quartic),
            ("rank 1", lambda x: ops.three_lc_decode(x, [5]), matrix),
            ("rank 1", lambda x: ops.quartic_decode(x, [20]), matrix),
            ("rank 1", ops.zero_run_encode, matrix),
            ("rank 1", lambda x: ops.zero_run_decode(x, 4), matrix),
            ("rank 0", lambda x: ops.zero_run_decode(x, [4]), quartic),
            ("negative|-4", lambda x: ops.zero_run_decode(x, -4), quartic),
            (
                "equal",
                lambda x: ops.three_lc_encode(x, tf.zeros([4]), 1.0),
                values,
            ),
            (
                "rank 0",
                lambda x: ops.three_lc_encode(x, x, [1.0]),
                values,
            ),
            (
                "sparsity_multiplier .*got 2",
                lambda x: ops.three_lc_encode(x, x, 2.0),
                values,
            ),
        ]:
            with (
                self.subTest(message=message),
                self.assertRaisesRegex(ValueError, message),
            ):
                _traced(function, spec)


if __name__ == "__main__":
    absltest.main()
