"""tf_gc.ops: the Hadamard transforms' ops, eagerly and in a tf.function."""

import hypothesis
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import testing
from tests.ops.op_testing import MODES, OpTestCase, philox_words, traced
from tf_gc import kernels, ops

_RANDOMIZED = (ops.randomized_hadamard, ops.inverse_randomized_hadamard)


def _matrix(size):
    """The orthonormal transform as a matrix."""
    matrix = np.ones([1, 1])
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]]) / np.sqrt(2)
    return matrix


def _signs(shape, seed):
    """D's diagonal, from TensorFlow's own generator."""
    size = np.prod(shape, dtype=int)
    words = philox_words(seed, -(-size // 128))
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")[:size]
    return (1 - 2.0 * bits).reshape(shape).astype(np.float32)


class HadamardTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_gives_the_golden_numbers(self, compile_function):
        hadamard = compile_function(ops.hadamard)
        for case in testing.golden("hadamard"):
            np.testing.assert_allclose(hadamard(tf.constant(case["x"])), case["y"], atol=1e-6)

    @parameterized.parameters((1,), (8,), (3, 2), (2, 3, 64), (0, 4), (5, 0, 16), (2, 1024))
    def test_every_row_is_multiplied_by_the_matrix(self, *shape):
        values = testing.gaussian(shape)
        transformed = ops.hadamard(values)
        self.assertEqual(transformed.shape, shape)
        self.assertEqual(transformed.dtype, tf.float32)
        np.testing.assert_allclose(transformed, values @ _matrix(shape[-1]), atol=2e-5)

    @parameterized.parameters((3, 64), (1, 1), (7, 4), (1, 1 << 17))
    def test_gives_the_bits_of_the_numpy_functions(self, *shape):
        values = testing.gaussian(shape)
        np.testing.assert_array_equal(ops.hadamard(values), kernels.hadamard(values))
        for name in "randomized_hadamard", "inverse_randomized_hadamard":
            np.testing.assert_array_equal(
                getattr(ops, name)(values, [3, 4]), getattr(kernels, name)(values, [3, 4])
            )

    @parameterized.parameters((7, 16), (2, 3, 256), (5, 1), (100, 4), (2, 8192))
    def test_the_signs_are_those_of_tensorflows_philox(self, *shape):
        values = testing.gaussian(shape)
        for key, stream in [(0, 0), (123, 0), (2**63 - 1, 77), (5, 2**40)]:
            signs = _signs(shape, (key, stream))
            seed = tf.constant([key, stream], tf.int64)
            np.testing.assert_array_equal(
                ops.randomized_hadamard(values, seed), ops.hadamard(values * signs)
            )
            np.testing.assert_array_equal(
                ops.inverse_randomized_hadamard(values, seed), ops.hadamard(values) * signs
            )

    def test_seeds_of_both_types_and_negative_ones(self):
        values = testing.gaussian([4, 64])
        for seed, key, stream in [
            (7, 7, 0),
            (tf.constant(7, tf.int64), 7, 0),
            (tf.constant([7, 9], tf.int32), 7, 9),
            (tf.constant(-1, tf.int32), 2**64 - 1, 0),
            (tf.constant([-1, -2], tf.int64), 2**64 - 1, 2**64 - 2),
        ]:
            expected = ops.hadamard(values * _signs([4, 64], (key, stream)))
            np.testing.assert_array_equal(ops.randomized_hadamard(values, seed), expected)

    @hypothesis.given(st.integers(0, 11), st.integers(0, 5), st.integers(-(2**63), 2**63 - 1))
    def test_the_inverse_restores_and_norms_are_kept(self, log_size, rows, seed):
        values = testing.gaussian([rows, 2**log_size], 1)
        transformed = ops.randomized_hadamard(values, tf.constant(seed, tf.int64))
        np.testing.assert_allclose(
            np.linalg.norm(transformed, axis=-1), np.linalg.norm(values, axis=-1), rtol=1e-5
        )
        restored = ops.inverse_randomized_hadamard(transformed, tf.constant(seed, tf.int64))
        np.testing.assert_allclose(restored, values, atol=1e-5)
        np.testing.assert_allclose(ops.hadamard(ops.hadamard(values)), values, atol=1e-5)

    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_half_precision_is_transformed_in_float32(self, dtype):
        values = tf.cast(testing.gaussian([3, 128]), dtype)
        floats = tf.cast(values, tf.float32)
        transformed = ops.hadamard(values)
        self.assertEqual(transformed.dtype, dtype)
        np.testing.assert_array_equal(transformed, tf.cast(ops.hadamard(floats), dtype))
        for function in _RANDOMIZED:
            np.testing.assert_array_equal(function(values, 5), tf.cast(function(floats, 5), dtype))

    def test_a_row_with_nan_leaves_the_others_alone(self):
        values = testing.gaussian([3, 32])
        expected = ops.hadamard(values).numpy()
        values[1, 7] = np.nan
        expected[1] = np.nan
        np.testing.assert_array_equal(ops.hadamard(values), expected)

    def test_values_that_are_used_again_are_not_overwritten(self):
        @tf.function
        def transform(values):
            doubled = 2 * values
            return ops.hadamard(doubled), ops.randomized_hadamard(doubled, 1), doubled

        values = testing.gaussian([4, 64])
        first, second, doubled = transform(values)
        np.testing.assert_array_equal(doubled, 2 * values)
        np.testing.assert_array_equal(first, ops.hadamard(2 * values))
        np.testing.assert_array_equal(second, ops.randomized_hadamard(2 * values, 1))

    def test_the_seed_may_change_without_a_new_trace(self):
        transform = tf.function(ops.randomized_hadamard, autograph=False)
        values = testing.gaussian([256])
        results = [transform(values, tf.constant(seed)).numpy().tobytes() for seed in (1, 2, 1)]
        self.assertEqual(transform.experimental_get_tracing_count(), 1)
        self.assertEqual(results[0], results[2])
        self.assertNotEqual(results[0], results[1])

    @parameterized.parameters((1 << 18,), (3, 1 << 17), (1000, 256), (20, 1 << 13))
    def test_the_number_of_threads_changes_nothing(self, *shape):
        def transform(values):
            return ops.hadamard(values), *(function(values, 3) for function in _RANDOMIZED)

        values = testing.gaussian(shape)
        results = self.assert_same_on_any_threads(transform, values)
        np.testing.assert_array_equal(results[0], kernels.hadamard(values))
        np.testing.assert_array_equal(results[1], kernels.randomized_hadamard(values, 3))
        np.testing.assert_array_equal(results[2], kernels.inverse_randomized_hadamard(values, 3))


class ErrorTest(OpTestCase):
    @parameterized.parameters((3,), (0,), (4, 6), (2, 0), ())
    def test_a_last_axis_that_is_no_power_of_two_is_refused(self, *shape):
        values = tf.zeros(shape)
        for function in [ops.hadamard, *(lambda x, f=f: f(x, 1) for f in _RANDOMIZED)]:
            with self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, "values .*power of two|rank 1"
            ):
                function(values)
            with self.assertRaisesRegex(ValueError, "values .*power of two|rank 1"):
                traced(function, tf.TensorSpec(shape, tf.float32))

    def test_a_size_that_only_the_run_shows_is_refused_there(self):
        transform = tf.function(ops.hadamard, autograph=False).get_concrete_function(
            tf.TensorSpec([None, None], tf.float32)
        )
        self.assertEqual(transform(tf.ones([1, 4])).shape, [1, 4])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "power of two.*\\[2,3\\]"):
            transform(tf.zeros([2, 3]))

    def test_seeds_of_other_shapes_and_types_are_refused(self):
        values = tf.zeros([4])
        for function in _RANDOMIZED:
            for seed in [1], [1, 2, 3], [[1, 2]]:
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "seed|rank"):
                    function(values, tf.constant(seed))
                with self.assertRaisesRegex(ValueError, "seed|rank"):
                    traced(lambda x, f=function, s=seed: f(x, s), tf.TensorSpec([4]))
            self.assert_refused([(function, (values, 1.5))])

    def test_values_of_other_types_are_refused(self):
        self.assert_refused(
            [(ops.hadamard, (tf.zeros([4], dtype),)) for dtype in (tf.float64, tf.int32)]
        )

    def test_there_is_no_gradient(self):
        for function in [ops.hadamard, *(lambda x, f=f: f(x, 1) for f in _RANDOMIZED)]:
            self.assert_no_gradient(function, testing.gaussian([8]))


class ShapeTest(OpTestCase):
    @parameterized.parameters(([3, 4],), ([None, 4],), ([None, None],), (None,))
    def test_the_shape_is_that_of_the_values(self, shape):
        for dtype in tf.float32, tf.bfloat16:
            spec = tf.TensorSpec(shape, dtype)
            for function in [ops.hadamard, *(lambda x, f=f: f(x, 1) for f in _RANDOMIZED)]:
                transformed = traced(function, spec)
                self.assertEqual(transformed.dtype, dtype)
                self.assertEqual(transformed.shape.rank, None if shape is None else len(shape))
                if shape is not None:
                    self.assertEqual(transformed.shape.as_list(), shape)


if __name__ == "__main__":
    absltest.main()
