"""tf_gc.ops: ternary quantisation, eagerly and in a tf.function."""

import hypothesis
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import philox_reference, testing
from tests.ops.op_testing import MODES, OpTestCase, philox_words, traced
from tf_gc import kernels, ops


def _both(values, scale):
    return (
        ops.ternary_quantize(values, scale),
        ops.stochastic_ternary_quantize(values, scale, 0),
    )


class TernaryQuantizeTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_by_hand(self, compile_function):
        values = tf.constant([[0.5, 0.75, -0.75, -0.5], [-0.0, np.nan, np.inf, -np.inf]])
        ternary = compile_function(ops.ternary_quantize)(values, tf.constant(1.0))
        self.assertEqual(ternary.numpy().tolist(), [[0, 1, -1, 0], [0, 0, 1, -1]])
        self.assertEqual(ternary.dtype, tf.int8)

    @hypothesis.given(
        st.lists(st.floats(width=32), max_size=100),
        st.floats(0, width=32, allow_infinity=False, allow_nan=False),
    )
    def test_agrees_with_numpy(self, values, scale):
        values = np.array(values, np.float32)
        np.testing.assert_array_equal(
            ops.ternary_quantize(values, scale), kernels.ternary_quantize(values, scale)
        )
        np.testing.assert_array_equal(
            ops.stochastic_ternary_quantize(values, scale, 3),
            kernels.stochastic_ternary_quantize(values, scale, 3),
        )

    def test_quartic_encoding_takes_it(self):
        values = testing.gaussian(1003)
        scale = tf.reduce_max(tf.abs(values))
        ternary = ops.ternary_quantize(values, scale)
        encoded = ops.zero_run_encode(ops.quartic_encode(ternary))
        expected = ops.three_lc_encode(values, tf.zeros([1003]), 1.0).encoded
        np.testing.assert_array_equal(encoded, expected[4:])


class StochasticTernaryQuantizeTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_uses_tensorflows_random_bits(self, compile_function):
        quantize = compile_function(ops.stochastic_ternary_quantize)
        values = testing.gaussian([7, 143])
        for key, stream in (7, 0), (-7, 3), (2**62 + 1, -5):
            words = philox_words((key, stream), 126)
            halves = philox_reference.halves(words)[: values.size]
            r = ((halves + 0.5) / 65536).astype(np.float32).reshape(values.shape)
            expected = np.where(np.abs(values) > r * np.float32(1.7), np.sign(values), 0)
            ternary = quantize(
                tf.constant(values), tf.constant(1.7), tf.constant([key, stream], tf.int64)
            )
            np.testing.assert_array_equal(ternary, expected)

    def test_a_seed_is_a_scalar_or_a_vector_of_two(self):
        values = testing.gaussian(100)
        expected = kernels.stochastic_ternary_quantize(values, 2.0, -3)
        for seed in (
            -3,
            [-3, 0],
            tf.constant(-3, tf.int32),
            tf.constant([-3, 0], tf.int32),
            tf.constant(-3, tf.int64),
        ):
            np.testing.assert_array_equal(
                ops.stochastic_ternary_quantize(values, 2.0, seed), expected
            )

    def test_scales_and_seeds_may_change_without_a_new_trace(self):
        quantize = tf.function(ops.stochastic_ternary_quantize)
        values = testing.gaussian(100)
        for scale, seed in (1.0, 1), (2.0, 2), (0.0, 3):
            np.testing.assert_array_equal(
                quantize(values, tf.constant(scale), tf.constant(seed)),
                kernels.stochastic_ternary_quantize(values, scale, seed),
            )
        self.assertEqual(quantize.experimental_get_tracing_count(), 1)


class BothTest(OpTestCase):
    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_half_precision_is_quantized_as_its_float32(self, dtype):
        special = [0, -0.0, np.nan, np.inf, -np.inf, 1e-7, -1e-7, 6e4]
        values = tf.cast(tf.concat([special, testing.gaussian(1001)], 0), dtype)
        for got, expected in zip(
            _both(values, 1.5), _both(tf.cast(values, tf.float32), 1.5), strict=True
        ):
            np.testing.assert_array_equal(got, expected)

    @parameterized.parameters(2.5, 1e-38, 1e-44)
    def test_any_number_of_threads_gives_the_same_bits(self, scale):
        values = testing.gaussian(3 * 10**6 + 3) * np.float32(scale)
        nearest, stochastic = self.assert_same_on_any_threads(
            lambda x: (
                ops.ternary_quantize(x, scale),
                ops.stochastic_ternary_quantize(x, scale, [3, 4]),
            ),
            values,
        )
        np.testing.assert_array_equal(nearest, kernels.ternary_quantize(values, scale))
        np.testing.assert_array_equal(
            stochastic, kernels.stochastic_ternary_quantize(values, scale, (3, 4))
        )

    def test_a_scale_of_zero_gives_zeros(self):
        for ternary in _both(tf.constant([0, 1, 1e-45, np.nan, np.inf, -np.inf]), 0.0):
            self.assertFalse(np.any(ternary))

    @parameterized.parameters(-1.0, np.nan, np.inf, -np.inf)
    def test_a_scale_that_is_negative_or_not_finite_is_refused(self, scale):
        message = "scale must be finite and at least 0, got"
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
            ops.ternary_quantize([1.0], scale)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
            ops.stochastic_ternary_quantize([1.0], scale, 0)
        with self.assertRaisesRegex(ValueError, message):
            traced(lambda x: ops.ternary_quantize(x, scale), tf.TensorSpec([1], tf.float32))

    def test_wrong_ranks_and_types_are_refused(self):
        self.assert_refused(
            [
                (ops.ternary_quantize, ([1.0], [1.0])),
                (ops.ternary_quantize, (tf.constant([1]), 1.0)),
                (ops.stochastic_ternary_quantize, ([1.0], [1.0], 0)),
                (ops.stochastic_ternary_quantize, ([1.0], 1.0, [0])),
                (ops.stochastic_ternary_quantize, ([1.0], 1.0, [0, 1, 2])),
                (ops.stochastic_ternary_quantize, ([1.0], 1.0, 0.5)),
            ]
        )

    def test_shapes_are_those_of_the_values(self):
        for shape in [3, 5], [None, 4], None:
            for ternary in traced(lambda x: _both(x, 1.0), tf.TensorSpec(shape, tf.float32)):
                self.assertEqual(ternary.dtype, tf.int8)
                self.assertEqual(ternary.shape.as_list() if shape else ternary.shape.rank, shape)
        for shape in [], [0], [3, 0], [2, 3, 5]:
            for ternary in _both(tf.ones(shape), 1.0):
                self.assertEqual(ternary.shape, shape)

    def test_what_cannot_fit_is_refused_while_tracing(self):
        values = tf.TensorSpec([2], tf.float32)
        self.assert_refused_while_tracing(
            [
                ("rank 0", lambda x: ops.ternary_quantize(x, [1.0]), values),
                ("scale .*got -1", lambda x: ops.ternary_quantize(x, -1.0), values),
                ("scale .*got -1", lambda x: ops.stochastic_ternary_quantize(x, -1.0, 0), values),
                (
                    "must be 2 but is 1",
                    lambda x: ops.stochastic_ternary_quantize(x, 1.0, [0]),
                    values,
                ),
                (
                    "at most rank 1",
                    lambda x: ops.stochastic_ternary_quantize(x, 1.0, [[0, 1]]),
                    values,
                ),
            ]
        )

    def test_there_is_no_gradient(self):
        self.assert_no_gradient(lambda x: _both(x, 1.0), testing.gaussian(10))


if __name__ == "__main__":
    absltest.main()
