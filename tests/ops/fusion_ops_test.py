"""tf_gc.ops: gradients fused into one vector and back, eagerly and in a tf.function."""

import itertools
import os
import unittest

import hypothesis
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import testing
from tests.ops.op_testing import MODES, OpTestCase, traced
from tf_gc import kernels, ops

DTYPES = (tf.float32, tf.float16, tf.bfloat16)
_KEYS = itertools.count()
# Two pieces of a thread's share and a rest; a scalar, and no value at all.
_SHAPES = ((3, 5), (), (0, 7), (140001,), (1,))


def make_bucket(variables):
    return ops.bucket(key=f"fusion_ops_test {next(_KEYS)}", variables=variables)


def residual_variables(shapes, seed=10):
    return [tf.Variable(testing.gaussian(shape, seed + i)) for i, shape in enumerate(shapes)]


def handles(variables):
    return [variable.handle for variable in variables]


def flat(arrays):
    """The values of all arrays, one after the other, in float32."""
    return np.concatenate([np.ravel(tf.cast(array, tf.float32)) for array in arrays])


def fuse(gradients, residuals=(), group_size=2):
    return ops.fuse_gradients(
        gradients, handles(residuals), make_bucket(len(gradients)), group_size
    )


shapes_strategy = st.lists(
    st.sampled_from([(), (0,), (1,), (2, 0, 3), (5,), (3, 4), (2, 2, 2), (33,)]),
    min_size=1,
    max_size=6,
)


def sparse_vector(shapes, random):
    """Values of variables of these shapes, one after the other, some of them 0."""
    vector = flat([testing.gaussian(shape, i) for i, shape in enumerate(shapes)])
    vector[random.sample(range(vector.size), vector.size // 2)] = 0
    return vector


def slices(vector, random):
    """Those values that are not 0, in any order."""
    indices = np.flatnonzero(vector).astype(np.int32)
    indices = indices[random.sample(range(indices.size), indices.size)]
    return tf.IndexedSlices(tf.constant(vector[indices]), tf.constant(indices))


class FuseGradientsTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_by_hand(self, compile_function):
        residuals = [tf.Variable([0.5, -1.0]), tf.Variable(7.0)]
        bucket = make_bucket(2)

        @compile_function
        def step(first, second):
            return ops.fuse_gradients([first, second], handles(residuals), bucket, 2)

        fused = step(tf.constant([1.0, 2.0]), tf.constant(-3.0))
        self.assertEqual(fused.values.numpy().tolist(), [1.5, 1.0, 4.0])
        self.assertEqual(fused.finite.numpy().tolist(), [True, True])

    @hypothesis.given(shapes_strategy, st.sampled_from(DTYPES), st.booleans())
    def test_values_are_gradients_plus_residuals(self, shapes, dtype, has_residuals):
        gradients = [tf.cast(testing.gaussian(shape, i), dtype) for i, shape in enumerate(shapes)]
        residuals = residual_variables(shapes) if has_residuals else []
        values, finite = fuse(gradients, residuals)
        expected = flat(gradients)
        if has_residuals:
            expected = expected + flat(residuals)
        np.testing.assert_array_equal(values, expected)
        self.assertEqual(values.dtype, tf.float32)
        np.testing.assert_array_equal(finite, [True] * len(shapes))

    @parameterized.product(dtype=DTYPES, has_residuals=(False, True))
    def test_large_variables_are_cut_among_threads(self, dtype, has_residuals):
        gradients = [tf.cast(testing.gaussian(shape, i), dtype) for i, shape in enumerate(_SHAPES)]
        residuals = residual_variables(_SHAPES) if has_residuals else []
        values, finite = fuse(gradients, residuals)
        expected = flat(gradients) + (flat(residuals) if has_residuals else 0)
        np.testing.assert_array_equal(values, expected)
        self.assertTrue(np.all(finite))

    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_every_half_precision_value_is_exact(self, dtype):
        patterns = np.arange(1 << 16, dtype=np.uint16)
        gradients = tf.bitcast(patterns, dtype)
        gradients = tf.boolean_mask(gradients, tf.math.is_finite(tf.cast(gradients, tf.float32)))
        expected = gradients.numpy().astype(np.float32)
        zeros = tf.Variable(tf.fill(gradients.shape, -0.0))
        for residuals in [], [zeros]:
            values, finite = fuse([gradients], residuals)
            self.assertEqual(values.numpy().tobytes(), expected.tobytes())
            self.assertTrue(finite[0])

    @parameterized.product(
        wrong=(np.nan, -np.nan, np.inf, -np.inf), dtype=DTYPES, has_residuals=(False, True)
    )
    def test_a_value_that_is_not_finite_zeroes_its_variable(self, wrong, dtype, has_residuals):
        for position in 0, 1, 70000, 140000:
            gradients = [testing.gaussian(shape, i) for i, shape in enumerate(_SHAPES)]
            gradients[3][position] = wrong
            residuals = residual_variables(_SHAPES) if has_residuals else []
            gradients = [tf.cast(gradient, dtype) for gradient in gradients]
            values, finite = fuse(gradients, residuals)
            np.testing.assert_array_equal(finite, [True, True, True, False, True])
            gradients[3] = tf.zeros_like(gradients[3])
            expected = flat(gradients)
            if has_residuals:
                kept = [residual.numpy() for residual in residuals]
                kept[3] = np.zeros_like(kept[3])
                expected = expected + flat(kept)
            np.testing.assert_array_equal(values, expected)

    def test_it_is_found_in_every_position(self):
        for size in 1, 2, 5, 19:
            for position in range(size):
                gradient = testing.gaussian(size)
                gradient[position] = np.inf
                for residuals in [], [tf.Variable(tf.zeros([size]))]:
                    values, finite = fuse([tf.constant(gradient)], residuals)
                    self.assertEqual(finite.numpy().tolist(), [False])
                    self.assertEqual(values.numpy().tolist(), [0] * size)

    def test_a_sum_that_overflows_is_not_finite(self):
        largest = float(np.finfo(np.float32).max)
        residuals = [tf.Variable([1.0, largest]), tf.Variable([largest])]
        values, finite = fuse([tf.constant([1.0, largest]), tf.constant([-largest])], residuals)
        self.assertEqual(finite.numpy().tolist(), [False, True])
        self.assertEqual(values.numpy().tolist(), [0, 0, 0])

    def test_a_residual_that_is_not_finite_counts(self):
        residuals = [tf.Variable([np.nan]), tf.Variable([-np.inf]), tf.Variable([2.0])]
        values, finite = fuse([tf.constant([1.0])] * 3, residuals)
        self.assertEqual(finite.numpy().tolist(), [False, False, True])
        self.assertEqual(values.numpy().tolist(), [0, 0, 3])

    def test_the_largest_and_denormal_values_are_finite(self):
        info = np.finfo(np.float32)
        gradient = np.array([info.max, info.min, info.tiny, 1e-45, -1e-45, 0.0, -0.0], np.float32)
        for residuals in [], [tf.Variable(tf.fill([7], -0.0))]:
            for function in fuse, tf.function(fuse, autograph=False):
                values, finite = function([tf.constant(gradient)], residuals)
                self.assertEqual(values.numpy().tobytes(), gradient.tobytes())
                self.assertTrue(finite[0])

    def test_a_gradient_that_is_used_again_is_not_overwritten(self):
        bucket = make_bucket(1)

        @tf.function
        def step(gradient):
            gradient = gradient * 2.0
            values, finite = ops.fuse_gradients([gradient], [], bucket, 2)
            return gradient, values, values + 1.0, finite

        for value, expected in ((3.0, 6.0), (np.inf, 0.0)):
            gradient, values, more, _ = step(tf.fill([2, 2], value))
            self.assertEqual(gradient.numpy().tolist(), [[2 * value] * 2] * 2)
            self.assertEqual(values.numpy().tolist(), [expected] * 4)
            self.assertEqual(more.numpy().tolist(), [expected + 1] * 4)

    @parameterized.named_parameters(*MODES)
    def test_a_step_counts_what_each_worker_sends(self, compile_function):
        bucket = make_bucket(4)
        gradients = [tf.zeros([size]) for size in (1, 3, 0, 1000)]

        @compile_function
        def step(gradients):
            ops.fuse_gradients(gradients, [], bucket, 3)
            return tf.constant(0)

        for steps in 1, 2:
            step(gradients)
            traffic = ops.bucket_traffic(bucket)
            # 4/3, 4 and 4000/3 values, rounded.
            self.assertEqual(
                traffic.values_sent.numpy().tolist(), [steps * n for n in (1, 4, 0, 1333)]
            )
            self.assertEqual(int(traffic.bytes_sent), 0)

    def test_a_worker_alone_sends_nothing(self):
        bucket = make_bucket(1)
        ops.fuse_gradients([tf.zeros([5])], [], bucket, 1)
        self.assertEqual(ops.bucket_traffic(bucket).values_sent.numpy().tolist(), [0])

    def test_a_step_that_fails_does_not_count(self):
        bucket = make_bucket(1)
        with self.assertRaises(tf.errors.InvalidArgumentError):
            ops.fuse_gradients([tf.zeros([5])], handles([tf.Variable([1.0])]), bucket, 2)
        self.assertEqual(ops.bucket_traffic(bucket).values_sent.numpy().tolist(), [0])


class _BucketTestCase(OpTestCase):
    def assert_indices_are_checked(self, function):
        """Of a function of slices of a vector of five values."""
        for indices in [5, 0], [-1, 0]:
            wrong = tf.IndexedSlices([1.0, 2.0], indices)
            message = rf"indices must be in 0 \.\.\. 4, got {indices[0]}"
            self.assert_invalid(message, function, wrong)
        for wrong in tf.IndexedSlices([1.0], [0, 1]), tf.IndexedSlices([[1.0]], [0]):
            self.assert_invalid("one value for each of|equal rank|must be equal", function, wrong)


class AllFiniteTest(_BucketTestCase):
    @parameterized.parameters(np.nan, np.inf, -np.inf)
    def test_a_value_that_is_not_finite_is_found_in_its_variable(self, wrong):
        sizes = [int(np.prod(shape)) for shape in _SHAPES]
        for position in 15, 16, 70000, 140016, 140017:
            values = testing.gaussian(sum(sizes))
            values[position] = wrong
            found = np.searchsorted(np.cumsum(sizes), position, side="right")
            expected = [i != found for i in range(len(sizes))]
            np.testing.assert_array_equal(ops.all_finite(values, sizes), expected)

    @hypothesis.given(shapes_strategy, st.randoms(use_true_random=False))
    def test_of_slices_those_that_are_there_count(self, shapes, random):
        vector = sparse_vector(shapes, random)
        wrong = random.sample(range(vector.size), vector.size // 4)
        vector[wrong] = [random.choice([np.nan, np.inf, -np.inf]) for _ in wrong]
        sizes = [int(np.prod(shape)) for shape in shapes]
        found = ops.all_finite(slices(vector, random), sizes)
        np.testing.assert_array_equal(found, ops.all_finite(vector, sizes))

    def test_wrong_sizes(self):
        self.assert_invalid("values must have the 3 values", ops.all_finite, [1.0, 2.0], [1, 2])
        self.assert_invalid("at least 0", ops.all_finite, [1.0], [2, -1])

    def test_wrong_indices(self):
        self.assert_indices_are_checked(lambda x: ops.all_finite(x, [1, 4]))


class MeanMagnitudesTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_by_hand(self, compile_function):
        values = tf.constant([1.0, -2.0, -5.0])
        means = compile_function(lambda x: ops.mean_magnitudes(x, [2, 0, 1]))(values)
        self.assertEqual(means.numpy().tolist(), [1.5, 0, 5])

    @hypothesis.given(st.lists(st.integers(0, 200000), min_size=1, max_size=5))
    @hypothesis.settings(max_examples=20)
    def test_is_the_mean_within_float32(self, sizes):
        values = testing.gaussian(sum(sizes))
        parts = np.split(np.abs(values.astype(np.float64)), np.cumsum(sizes)[:-1])
        expected = [part.mean() if part.size else 0 for part in parts]
        np.testing.assert_allclose(ops.mean_magnitudes(values, sizes), expected, rtol=1e-6)

    def test_any_number_of_threads_gives_the_same_bits(self):
        sizes = [3, 10**6, 0, 12345]
        self.assert_same_on_any_threads(
            lambda x: [ops.mean_magnitudes(x, sizes)], testing.gaussian(sum(sizes))
        )

    def test_a_mean_is_finite_where_the_sum_is_not(self):
        values = np.repeat(np.float32([2e36, 3e38]), [4096, 17])
        np.testing.assert_allclose(ops.mean_magnitudes(values, [4096, 17]), [2e36, 3e38], rtol=1e-6)

    def test_what_is_not_finite_is_so_in_its_variable_alone(self):
        means = ops.mean_magnitudes([1.0, np.nan, -np.inf], [1, 1, 1]).numpy()
        np.testing.assert_array_equal(means, [1, np.nan, np.inf])

    def test_wrong_sizes(self):
        wrong = [1.0, 2.0], [1, 2]
        self.assert_invalid("values must have the 3 values", ops.mean_magnitudes, *wrong)
        self.assert_invalid("at least 0", ops.mean_magnitudes, [1.0], [2, -1])
        shape = traced(lambda x: ops.mean_magnitudes(x, [2, 3]), tf.TensorSpec(None)).shape
        self.assertEqual(shape, [2])


class GradientHistogramTest(OpTestCase):
    @parameterized.product(dtype=DTYPES, has_residuals=(False, True))
    def test_is_that_of_all_sums(self, dtype, has_residuals):
        gradients = [tf.cast(testing.gaussian(shape, i), dtype) for i, shape in enumerate(_SHAPES)]
        residuals = residual_variables(_SHAPES) if has_residuals else []
        sums = flat(gradients) + (flat(residuals) if has_residuals else 0)
        expected = kernels.magnitude_histogram(sums)
        for result, array in zip(
            ops.gradient_histogram(gradients, handles(residuals)), expected, strict=True
        ):
            np.testing.assert_array_equal(result, array)

    @parameterized.named_parameters(*MODES)
    def test_it_is_empty_where_it_is_not_wanted(self, compile_function):
        @compile_function
        def histogram(gradients, wanted):
            return ops.gradient_histogram(gradients, [], wanted)

        gradients = [tf.ones([2, 3]), tf.constant(np.nan)]
        counts, squares = histogram(gradients, tf.constant(True))
        self.assertEqual((sum(counts.numpy()), sum(squares.numpy())), (6, 6))
        for result in histogram(gradients, tf.constant(False)):
            self.assertEqual(result.shape, [0])

    def test_wrong_residuals(self):
        for residuals, error in [
            (residual_variables([[3], [3]]), "residuals must be none or one per gradient, got 2"),
            (residual_variables([[2]]), "must be a float32 variable of 3 values"),
        ]:
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, error):
                ops.gradient_histogram([tf.zeros([3])], handles(residuals))


class StoreResidualsTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_by_hand(self, compile_function):
        residuals = [tf.Variable(tf.zeros([1, 2])), tf.Variable(9.0), tf.Variable([8.0, 8.0])]

        @compile_function
        def store(residual, finite):
            ops.store_residuals(residual, handles(residuals), finite)
            return tf.constant(0)

        store(tf.constant([1.0, 2.0, 3.0, 4.0, 5.0]), tf.constant([True, False, True]))
        self.assertEqual(residuals[0].numpy().tolist(), [[1, 2]])
        self.assertEqual(residuals[1].numpy(), 9)
        self.assertEqual(residuals[2].numpy().tolist(), [4, 5])

    @hypothesis.given(shapes_strategy, st.randoms(use_true_random=False))
    def test_each_variable_gets_its_slice_or_keeps_its_value(self, shapes, random):
        residuals = residual_variables(shapes)
        finite = [random.random() < 0.7 for _ in shapes]
        new = [testing.gaussian(shape, 50 + i) for i, shape in enumerate(shapes)]
        expected = [new[i] if finite[i] else residuals[i].numpy() for i, _ in enumerate(shapes)]
        ops.store_residuals(flat(new), handles(residuals), tf.constant(finite))
        for residual, value in zip(residuals, expected, strict=True):
            np.testing.assert_array_equal(residual, value)

    def test_large_variables_are_cut_among_threads(self):
        residuals = residual_variables(_SHAPES)
        new = [testing.gaussian(shape, 50 + i) for i, shape in enumerate(_SHAPES)]
        ops.store_residuals(flat(new), handles(residuals), tf.fill([5], True))
        for residual, value in zip(residuals, new, strict=True):
            np.testing.assert_array_equal(residual, value)

    @parameterized.product(wrong=(np.nan, np.inf, -np.inf), is_read=(False, True))
    def test_a_value_that_is_not_finite_is_not_stored(self, wrong, is_read):
        for shapes, v in (_SHAPES, 3), ([(140001,)], 0):
            residuals = residual_variables(shapes)
            new = [testing.gaussian(shape, 50 + i) for i, shape in enumerate(shapes)]
            expected = [value.copy() for value in new]
            for position in 0, 1, 70000, 140000:
                new[v][position] = wrong
                expected[v][position] = residuals[v].numpy()[position]
            before = [residual.read_value() for residual in residuals] if is_read else None
            ops.store_residuals(flat(new), handles(residuals), tf.fill([len(shapes)], True))
            for residual, value in zip(residuals, expected, strict=True):
                np.testing.assert_array_equal(residual, value)
            del before

    @parameterized.named_parameters(*MODES)
    def test_a_value_that_was_read_before_does_not_change(self, compile_function):
        residual = tf.Variable([1.0, 2.0])

        @compile_function
        def store(new):
            before = residual.read_value()
            ops.store_residuals(new, [residual.handle], [True])
            return before, residual.read_value()

        read = residual.read_value()
        before, after = store(tf.constant([3.0, 4.0]))
        self.assertEqual(read.numpy().tolist(), [1, 2])
        self.assertEqual(before.numpy().tolist(), [1, 2])
        self.assertEqual(after.numpy().tolist(), [3, 4])
        # Nobody shares the variable's own buffer now.
        del before, after, read
        store(tf.constant([5.0, 6.0]))
        self.assertEqual(residual.numpy().tolist(), [5, 6])

    @unittest.skipIf("asan" in os.environ.get("LD_PRELOAD", ""), "it ends the program")
    def test_where_memory_does_not_suffice_all_variables_keep_what_they_have(self):
        residuals = [tf.Variable(tf.ones([size])) for size in (1 << 10, 64 << 20)]
        read = [residual.read_value() for residual in residuals]  # so that they need new memory
        vector = tf.zeros([(1 << 10) + (64 << 20)])
        with (
            self.assertRaises(tf.errors.ResourceExhaustedError),
            testing.limited_memory(64 << 20),
        ):
            ops.store_residuals(vector, handles(residuals), [True, True])
        for residual in residuals:
            self.assertTrue(np.all(residual.numpy() == 1))
        del read

    def test_a_variable_does_not_share_the_vector(self):
        residual, vector = tf.Variable([1.0, 2.0]), tf.constant([3.0, 4.0])
        ops.store_residuals(vector, [residual.handle], [True])
        residual.assign_add([1.0, 1.0])
        self.assertEqual(vector.numpy().tolist(), [3, 4])

    def test_a_vector_that_nothing_else_needs_becomes_the_variables_buffer(self):
        residual = tf.Variable([[1.0, 2.0]])

        @tf.function
        def store(vector):
            ops.store_residuals(vector + 1, [residual.handle], [True])

        vector = tf.constant([3.0, 4.0])
        store(vector)
        self.assertEqual(residual.numpy().tolist(), [[4, 5]])
        residual.assign_add([[1.0, 1.0]])
        store(vector)
        self.assertEqual(residual.numpy().tolist(), [[4, 5]])
        self.assertEqual(vector.numpy().tolist(), [3, 4])

    def test_a_vector_that_something_else_needs_is_copied(self):
        residual = tf.Variable([1.0, 2.0])

        @tf.function
        def store(vector):
            vector = vector + 1
            ops.store_residuals(vector, [residual.handle], [True])
            residual.assign_add([1.0, 1.0])
            with tf.control_dependencies([residual.read_value()]):
                return tf.identity(vector)

        self.assertEqual(store(tf.constant([3.0, 4.0])).numpy().tolist(), [4, 5])
        self.assertEqual(residual.numpy().tolist(), [5, 6])

    def test_a_variable_that_is_read_sparsely_is_stored(self):
        residual = tf.Variable([[1.0], [2.0]])
        row = tf.gather(residual, [1])
        ops.store_residuals([3.0, 4.0], [residual.handle], [True])
        self.assertEqual(row.numpy().tolist(), [[2]])
        self.assertEqual(tf.gather(residual, [1]).numpy().tolist(), [[4]])

    def test_nothing_is_lost_over_steps_in_a_graph(self):
        shapes = [(3, 5), (), (41,)]
        residuals = [tf.Variable(tf.zeros(shape)) for shape in shapes]
        bucket = make_bucket(3)

        @tf.function
        def step(gradients):
            values, finite = ops.fuse_gradients(gradients, handles(residuals), bucket, 2)
            sent = tf.round(values)
            ops.store_residuals(values - sent, handles(residuals), finite)
            return ops.unfuse_gradients(sent, finite, 1.0, shapes)

        # Multiples of 1/16, of which all sums are exact.
        rng = np.random.default_rng(0)
        given = [np.zeros(shape, np.float32) for shape in shapes]
        delivered = [np.zeros(shape, np.float32) for shape in shapes]
        for _ in range(20):
            gradients = [np.float32(rng.integers(-20, 20, shape) / 16) for shape in shapes]
            for total, gradient in zip(given, gradients, strict=True):
                total += gradient
            sent = step([tf.constant(gradient) for gradient in gradients])
            for total, value in zip(delivered, sent, strict=True):
                total += value.numpy()
        for total, sum_sent, residual in zip(given, delivered, residuals, strict=True):
            np.testing.assert_array_equal(total, sum_sent + residual.numpy())


class UnfuseGradientsTest(_BucketTestCase):
    @parameterized.named_parameters(*MODES)
    def test_by_hand(self, compile_function):
        unfuse = compile_function(
            lambda total, finite, divisor: ops.unfuse_gradients(
                total, finite, divisor, [[1, 2], [], [3]]
            )
        )
        total = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        first, second, third = unfuse(total, tf.constant([True, True, False]), tf.constant(2.0))
        self.assertEqual(first.numpy().tolist(), [[0.5, 1]])
        self.assertEqual(second.numpy(), 1.5)
        self.assertEqual(third.shape, [3])
        self.assertTrue(np.all(np.isnan(third)))

    @hypothesis.given(
        shapes_strategy, st.sampled_from(DTYPES), st.sampled_from([1.0, 2.0, 3.0, 0.7])
    )
    def test_quotients_are_rounded_once(self, shapes, dtype, divisor):
        values = [testing.gaussian(shape, i) for i, shape in enumerate(shapes)]
        gradients = ops.unfuse_gradients(
            flat(values), tf.fill([len(shapes)], True), divisor, shapes, dtype
        )
        for gradient, value in zip(gradients, values, strict=True):
            expected = (value / np.float32(divisor)).astype(dtype.as_numpy_dtype)
            self.assertEqual(gradient.dtype, dtype)
            np.testing.assert_array_equal(gradient.numpy(), expected)

    @parameterized.parameters(*DTYPES)
    def test_large_gradients_are_cut_among_threads(self, dtype):
        values = [testing.gaussian(shape, i) for i, shape in enumerate(_SHAPES)]
        finite = [True, True, False, True, False]
        gradients = ops.unfuse_gradients(flat(values), finite, 3.0, _SHAPES, dtype)
        values[4] = np.array([np.nan])
        for gradient, value in zip(gradients, values, strict=True):
            expected = (value / np.float32(3)).astype(dtype.as_numpy_dtype)
            self.assertEqual(gradient.dtype, dtype)
            np.testing.assert_array_equal(
                tf.cast(gradient, tf.float32), expected.astype(np.float32)
            )

    @parameterized.parameters(
        (tf.float16, [1 + 2**-11, 1 + 3 * 2**-11, 65519, 65520], [1, 1 + 2**-9, 65504, np.inf]),
        (tf.bfloat16, [1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8], [1, 1 + 2**-6, -1]),
    )
    def test_ties_go_to_even(self, dtype, values, expected):
        (gradient,) = ops.unfuse_gradients(values, [True], 1.0, [[len(values)]], dtype)
        self.assertEqual(gradient.numpy().astype(np.float32).tolist(), expected)

    @parameterized.parameters(*DTYPES)
    def test_fused_gradients_come_back(self, dtype):
        gradients = [tf.cast(testing.gaussian(shape, i), dtype) for i, shape in enumerate(_SHAPES)]
        values, finite = fuse(gradients)
        back = ops.unfuse_gradients(values, finite, 1.0, _SHAPES, dtype)
        for gradient, again in zip(gradients, back, strict=True):
            self.assertEqual(again.shape, gradient.shape)
            np.testing.assert_array_equal(again.numpy(), gradient.numpy())

    @parameterized.parameters(1.0, 2.0)
    def test_a_total_that_is_used_again_is_not_overwritten(self, divisor):
        @tf.function
        def unfuse(values):
            total = values + 1.0
            (gradient,) = ops.unfuse_gradients(total, [True], divisor, [[1, 2]])
            return total, gradient, gradient * 2.0

        total, gradient, twice = unfuse(tf.constant([1.0, 3.0]))
        self.assertEqual(total.numpy().tolist(), [2, 4])
        self.assertEqual(gradient.numpy().tolist(), [[2 / divisor, 4 / divisor]])
        self.assertEqual(twice.numpy().tolist(), [[4 / divisor, 8 / divisor]])

    @hypothesis.given(
        shapes_strategy,
        st.sampled_from(DTYPES),
        st.sampled_from([1.0, 3.0]),
        st.randoms(use_true_random=False),
    )
    def test_slices_are_as_the_vector_of_which_they_are(self, shapes, dtype, divisor, random):
        vector = sparse_vector(shapes, random)
        finite = [random.random() < 0.7 for _ in shapes]
        of_slices, of_vector = (
            ops.unfuse_gradients(total, finite, divisor, shapes, dtype)
            for total in (slices(vector, random), vector)
        )
        for gradient, expected in zip(of_slices, of_vector, strict=True):
            self.assertEqual((gradient.dtype, gradient.shape), (dtype, expected.shape))
            np.testing.assert_array_equal(flat([gradient]), flat([expected]))

    def test_many_slices_are_cut_among_threads(self):
        indices = np.random.default_rng(0).permutation(140018)[:70000]
        vector = np.zeros(140018, np.float32)
        vector[indices] = testing.gaussian(70000)
        total = tf.IndexedSlices(vector[indices], tf.constant(indices, tf.int32))
        gradients = ops.unfuse_gradients(total, [True] * 5, 1.0, _SHAPES)
        np.testing.assert_array_equal(flat(gradients), vector)

    def test_wrong_indices(self):
        self.assert_indices_are_checked(
            lambda x: ops.unfuse_gradients(x, [True, True], 1.0, [[1], [4]])[1]
        )


class ThreadsTest(OpTestCase):
    def test_any_number_of_threads_gives_the_same_bits(self):
        shapes = [[1000003], [3], [2000001]]
        gradients = [testing.gaussian(shape, i) for i, shape in enumerate(shapes)]
        gradients[0][::7] = 1e-45

        def results(*gradients):
            bucket = ops.bucket(key="threads", variables=3)
            values, finite = ops.fuse_gradients(gradients, [], bucket, 2)
            return values, finite, *ops.unfuse_gradients(values, finite, 3.0, shapes, tf.float16)

        values, *_ = self.assert_same_on_any_threads(results, *gradients)
        np.testing.assert_array_equal(values, flat(gradients))


class ErrorTest(OpTestCase):
    def test_residuals_are_none_or_one_per_gradient(self):
        gradient = tf.zeros([2])
        for count in 1, 3:
            self.assert_invalid(
                f"residuals must be none or one per gradient, got {count} for 2",
                fuse,
                [gradient] * 2,
                residual_variables([(2,)] * count),
            )

    def test_a_residual_has_the_gradients_number_of_values(self):
        residuals = residual_variables([(2,), (3,)])
        self.assert_invalid(
            r"residuals\[1\] must be a float32 variable of 2 values, as gradients\[1\]",
            fuse,
            [tf.zeros([2])] * 2,
            residuals,
        )
        # Any shape will do.
        fuse([tf.zeros([2]), tf.zeros([3, 1])], residuals)

    @parameterized.parameters(tf.float16, tf.float64)
    def test_a_residual_is_float32(self, dtype):
        residual = tf.Variable(tf.zeros([2], dtype))
        self.assert_invalid(
            r"residuals\[0\] must be a float32 variable", fuse, [tf.zeros([2])], [residual]
        )
        self.assert_invalid(
            r"residuals\[0\] must be a float32 variable",
            ops.store_residuals,
            tf.zeros([2]),
            [residual.handle],
            [True],
        )

    def test_the_bucket_has_as_many_variables(self):
        self.assert_invalid(
            "gradients: 2 tensors for a bucket of 3 variables",
            ops.fuse_gradients,
            [tf.zeros([1])] * 2,
            [],
            make_bucket(3),
            2,
        )

    def test_a_residual_is_a_variable(self):
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "wrong type"):
            ops.fuse_gradients([tf.zeros([1])], [make_bucket(1)], make_bucket(1), 2)

    def test_a_vector_that_does_not_fit_the_variables_is_refused(self):
        residuals = residual_variables([(2,), (3,)])
        for size in 0, 4, 6:
            self.assert_invalid(
                f"residual must have the 5 values .*, got {size}",
                ops.store_residuals,
                tf.zeros([size]),
                handles(residuals),
                [True, True],
            )

    def test_a_variable_comes_once(self):
        first, second = residual_variables([(2,), (2,)])
        self.assert_invalid(
            r"residuals\[2\] must be another variable than residuals\[0\]",
            ops.store_residuals,
            tf.zeros([6]),
            handles([first, second, first]),
            [True] * 3,
        )

    def test_finite_has_one_flag_per_variable(self):
        (residual,) = residual_variables([(2,)])
        for finite in [], [True, True]:
            finite = tf.constant(finite, tf.bool)
            for function, args in (
                (ops.store_residuals, (tf.zeros([2]), [residual.handle], finite)),
                (ops.unfuse_gradients, (tf.zeros([2]), finite, 1.0, [[2]])),
            ):
                self.assert_invalid("finite|must be 1 but is", function, *args)

    def test_a_total_that_does_not_fit_the_shapes_is_refused(self):
        for size in 0, 4, 6:
            self.assert_invalid(
                f"total must have the 5 values .*, got {size}|must be 5 but is {size}",
                ops.unfuse_gradients,
                tf.zeros([size]),
                [True, True],
                1.0,
                [[2], [3, 1]],
            )

    @parameterized.parameters(0.0, -1.0, np.inf, np.nan)
    def test_a_divisor_is_positive_and_finite(self, divisor):
        self.assert_invalid(
            "divisor must be positive and finite",
            ops.unfuse_gradients,
            tf.zeros([2]),
            [True],
            divisor,
            [[2]],
        )

    def test_wrong_types_and_ranks_are_refused(self):
        (residual,) = residual_variables([(2,)])
        bucket, zeros = make_bucket(1), tf.zeros([2])
        self.assert_refused(
            [
                (ops.fuse_gradients, ([tf.zeros([2], tf.float64)], [], bucket, 2)),
                (ops.fuse_gradients, ([zeros, tf.zeros([2], tf.float16)], [], bucket, 2)),
                (ops.fuse_gradients, ([], [], bucket, 2)),
                (ops.fuse_gradients, ([zeros], [], bucket, 0)),
                (ops.store_residuals, (zeros[None], [residual.handle], [True])),
                (ops.store_residuals, (tf.zeros([2], tf.float16), [residual.handle], [True])),
                (ops.store_residuals, (zeros, [residual.handle], [1])),
                (ops.unfuse_gradients, (zeros[None], [True], 1.0, [[2]])),
                (ops.unfuse_gradients, (zeros, [True], [1.0], [[2]])),
                (ops.unfuse_gradients, (zeros, [True], 1.0, [[None]])),
                (ops.unfuse_gradients, (zeros, [True], 1.0, [None])),
                (ops.unfuse_gradients, (zeros, [True], 1.0, [])),
                (ops.unfuse_gradients, (zeros, [True], 1.0, [[2]], tf.float64)),
            ]
        )

    def test_there_is_no_gradient(self):
        self.assert_no_gradient(lambda x: fuse([x]), testing.gaussian(16))
        self.assert_no_gradient(
            lambda x: ops.unfuse_gradients(x, [True], 2.0, [[4, 4]]), testing.gaussian(16)
        )


class ShapeTest(OpTestCase):
    def test_known_shapes_give_known_shapes(self):
        fused = traced(
            lambda x, y: fuse([x, y]),
            tf.TensorSpec([3, 5], tf.float32),
            tf.TensorSpec([], tf.float32),
        )
        self.assertEqual(fused.values.shape, [16])
        self.assertEqual(fused.finite.shape, [2])

    def test_unknown_shapes_give_known_ranks(self):
        for shape in [None, 4], None:
            fused = traced(
                lambda x, y: fuse([x, y]),
                tf.TensorSpec(shape, tf.float32),
                tf.TensorSpec([2], tf.float32),
            )
            self.assertEqual(fused.values.shape.as_list(), [None])
            self.assertEqual(fused.finite.shape, [2])
        gradients = traced(
            lambda x: ops.unfuse_gradients(x, [True, True], 1.0, [[2, 3], []]),
            tf.TensorSpec(None, tf.float32),
        )
        self.assertEqual([gradient.shape for gradient in gradients], [[2, 3], []])

    def test_what_cannot_fit_is_refused_while_tracing(self):
        (residual,) = residual_variables([(2,)])
        vector, matrix = tf.TensorSpec([2], tf.float32), tf.TensorSpec([1, 2], tf.float32)
        flags = tf.constant([True, True])
        self.assert_refused_while_tracing(
            [
                ("got 1 for 2", lambda x: fuse([x, x], [residual]), vector),
                (
                    "rank 1",
                    lambda x: ops.store_residuals(x, [residual.handle], [True]),
                    matrix,
                ),
                (
                    "must be 1 but is 2",
                    lambda x: ops.store_residuals(x, [residual.handle], flags),
                    vector,
                ),
                (
                    "must be 3 but is 2",
                    lambda x: ops.unfuse_gradients(x, [True], 1.0, [[3]]),
                    vector,
                ),
                (
                    "must be 1 but is 2",
                    lambda x: ops.unfuse_gradients(x, flags, 1.0, [[2]]),
                    vector,
                ),
                ("rank 1", lambda x: ops.unfuse_gradients(x, [True], 1.0, [[2]]), matrix),
                ("rank 0", lambda x: ops.unfuse_gradients(x, [True], [1.0], [[2]]), vector),
                (
                    r"shapes\[1\] must be fully defined",
                    lambda x: ops.unfuse_gradients(x, flags, 1.0, [[2], [None]]),
                    vector,
                ),
            ]
        )


if __name__ == "__main__":
    absltest.main()
