"""tf_gc.ops: signs, eagerly and in a tf.function."""

import hypothesis
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import signs_reference, testing
from tests.ops.op_testing import MODES, OpTestCase, as_bytes, philox_words, traced
from tf_gc import kernels, ops


class SignPackTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_by_hand(self, compile_function):
        values = [1, -1, 0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1e-45]
        packed = compile_function(ops.sign_pack)(tf.constant(values))
        self.assertEqual(packed.numpy().tolist(), [1 + 4 + 8 + 32 + 128, 0])
        signs = compile_function(ops.sign_unpack)(packed, tf.constant(9))
        self.assertEqual(signs.numpy().tolist(), [1, -1, 1, 1, -1, 1, -1, 1, -1])

    @parameterized.parameters((), (0,), (7,), (3, 0), (3, 5, 41), (1000003,))
    def test_signs_come_back(self, *shape):
        values = testing.gaussian(shape)
        packed = ops.sign_pack(values)
        np.testing.assert_array_equal(packed, signs_reference.pack(values >= 0))
        signs = ops.sign_unpack(packed, tf.constant(values.size, tf.int64))
        np.testing.assert_array_equal(signs, np.where(values.ravel() >= 0, 1.0, -1.0))
        self.assertEqual(signs.dtype, tf.float32)

    @hypothesis.given(st.lists(st.floats(width=32), max_size=100))
    def test_packing_agrees_with_numpy(self, values):
        values = np.array(values, np.float32)
        np.testing.assert_array_equal(ops.sign_pack(values), kernels.sign_pack(values))

    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_half_precision_has_the_signs_of_its_float32(self, dtype):
        special = [0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-7, -1e-7]
        values = tf.cast(tf.concat([special, testing.gaussian(1001)], 0), dtype)
        np.testing.assert_array_equal(
            ops.sign_pack(values), ops.sign_pack(tf.cast(values, tf.float32))
        )

    def test_denormal_values_have_signs_on_every_thread(self):
        values = tf.constant(np.float32(-1e-45), shape=[1 << 22])
        self.assertFalse(np.any(ops.sign_pack(values)))
        self.assertFalse(np.any(tf.function(ops.sign_pack)(values)))


class SignMergeTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_merging_uses_tensorflows_random_bits(self, compile_function):
        merge = compile_function(ops.sign_merge)
        first, second = testing.random_bytes(100, 1), testing.random_bytes(100, 2)
        for seed in 7, -7, [2**62 + 3, -5]:
            words = philox_words(seed, signs_reference.blocks(100))
            for i, j in (1, 1), (1, 2), (3, 1), (3, 5), (999999, 1):
                merged = merge(
                    tf.constant(first),
                    tf.constant(second),
                    tf.constant(i),
                    tf.constant(j),
                    tf.constant(seed, tf.int64),
                )
                np.testing.assert_array_equal(
                    merged, signs_reference.merge(first, second, i, j, words)
                )

    def test_types_of_counts_and_seeds_make_no_difference(self):
        first, second = testing.random_bytes(100, 1), testing.random_bytes(100, 2)
        expected = kernels.sign_merge(first, second, 2, 3, (-4, 5))
        for count_type in tf.int32, tf.int64:
            for seed_type in tf.int32, tf.int64:
                merged = ops.sign_merge(
                    first,
                    second,
                    tf.constant(2, count_type),
                    tf.constant(3, count_type),
                    tf.constant([-4, 5], seed_type),
                )
                np.testing.assert_array_equal(merged, expected)

    def test_an_aggregate_that_is_used_again_is_not_overwritten(self):
        @tf.function
        def merge_twice(values, other):
            packed = ops.sign_pack(values)
            merged = ops.sign_merge(packed, other, 1, 1, 0)
            again = ops.sign_merge(packed, other, 1, 1, 0)
            return packed, merged, again

        values, other = testing.gaussian(8000), testing.random_bytes(1000, 1)
        packed, merged, again = merge_twice(values, other)
        np.testing.assert_array_equal(packed, signs_reference.pack(values >= 0))
        np.testing.assert_array_equal(merged, again)

    def test_a_ring_in_a_graph_is_that_of_numpy(self):
        workers = [testing.random_bytes(1000, w) for w in range(4)]

        @tf.function
        def ring(seed):
            aggregate = tf.constant(workers[0])
            for m in range(2, 5):
                aggregate = ops.sign_merge(
                    aggregate, tf.constant(workers[m - 1]), m - 1, 1, tf.stack([seed, m])
                )
            return aggregate

        expected = workers[0]
        for m in range(2, 5):
            expected = kernels.sign_merge(expected, workers[m - 1], m - 1, 1, (9, m))
        np.testing.assert_array_equal(ring(tf.constant(9)), expected)

    def test_counts_and_seeds_may_change_without_a_new_trace(self):
        merge = tf.function(ops.sign_merge)
        first, second = testing.random_bytes(100, 1), testing.random_bytes(100, 2)
        for i, j, seed in (1, 1, 0), (2, 1, 1), (5, 9, 2):
            merged = merge(first, second, tf.constant(i), tf.constant(j), tf.constant(seed))
            expected = kernels.sign_merge(first, second, i, j, seed)
            np.testing.assert_array_equal(merged, expected)
        self.assertEqual(merge.experimental_get_tracing_count(), 1)


class ApplySignsTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_by_hand(self, compile_function):
        apply = compile_function(lambda p, m, v: ops.apply_signs(p, m, v, [2, 1], 4))
        packed, values = as_bytes([0b001]), tf.constant([1.0, 2.0, 3.0])
        total, residual = apply(packed, tf.constant([0.5, 2.0]), values)
        self.assertEqual(total.numpy().tolist(), [2, -2, -8])
        self.assertEqual(residual.numpy().tolist(), [0.5, 2.5, 5])
        total, residual = apply(packed, tf.constant([0.5, 1.0, 2.0]), values)
        self.assertEqual(total.numpy().tolist(), [2, -4, -8])
        self.assertEqual(residual.numpy().tolist(), [0.5, 3, 5])

    @hypothesis.given(st.lists(st.integers(0, 6000), max_size=6), st.booleans())
    @hypothesis.settings(max_examples=30)
    def test_is_what_unpacked_signs_give(self, sizes, by_value):
        values = testing.gaussian(sum(sizes))
        packed = ops.sign_pack(testing.gaussian(values.size, 1))
        by_value = by_value and values.size != len(sizes)  # which would be by variable
        magnitudes = testing.gaussian(values.size if by_value else len(sizes), 2)
        spread = magnitudes if by_value else np.repeat(magnitudes, sizes)
        share = spread * ops.sign_unpack(packed, values.size).numpy()
        total, residual = ops.apply_signs(packed, magnitudes, values, sizes, 3)
        np.testing.assert_array_equal(total, np.float32(3) * share)
        np.testing.assert_array_equal(residual, values - share)

    def test_as_many_variables_as_values_have_magnitudes_of_their_own(self):
        packed, values = kernels.sign_pack(np.ones(2, np.float32)), np.zeros(2, np.float32)
        total, _ = ops.apply_signs(packed, np.float32([1, 5]), values, [2, 0], 1)
        np.testing.assert_array_equal(total, [1, 1])

    def test_any_number_of_threads_gives_the_same_bits(self):
        sizes = [5, 10**6, 0, 70001]
        values = testing.gaussian(sum(sizes))
        values[::5] = 1e-45
        magnitudes = testing.gaussian(4, 1)
        self.assert_same_on_any_threads(
            lambda v, p, m: ops.apply_signs(p, m, v, sizes, 2),
            values,
            kernels.sign_pack(values),
            magnitudes,
        )

    def test_sizes_that_do_not_fit_are_refused(self):
        one, three = as_bytes([0]), tf.zeros([3])
        for packed, magnitudes, values in [
            (as_bytes([0, 0]), tf.zeros([2]), three),
            (one, tf.zeros([1]), three),
            (one, tf.zeros([2]), tf.zeros([4])),
            (one, tf.zeros([2, 1]), three),
            (one, tf.zeros([2]), tf.zeros([3, 1])),
        ]:
            with self.subTest(magnitudes=magnitudes.shape, values=values.shape):
                self.assert_invalid(
                    "2 variables of 3 values|vector|rank|3 but is 4",
                    lambda p, m, v: ops.apply_signs(p, m, v, [2, 1], 2),
                    packed,
                    magnitudes,
                    values,
                )
        self.assert_invalid(
            "at least 0, got -1", ops.apply_signs, one, tf.zeros([2]), three, [4, -1], 2
        )
        unknown = tf.TensorSpec(None, tf.float32)
        outputs = traced(lambda m, v: ops.apply_signs(one, m, v, [2, 1], 2), unknown, unknown)
        self.assertEqual([output.shape for output in outputs], [[3], [3]])


class ThreadsTest(OpTestCase):
    def test_any_number_of_threads_gives_the_same_bits(self):
        values = testing.gaussian(10**7 + 3)
        values[::7] = -1e-45
        packed = kernels.sign_pack(values)
        other = testing.random_bytes(packed.size, 1)

        def results(values, packed, other):
            return (
                ops.sign_pack(values),
                ops.sign_unpack(packed, values.shape[0]),
                ops.sign_merge(packed, other, 1, 1, 3),
                ops.sign_merge(packed, other, 2, 3, 3),
            )

        same = self.assert_same_on_any_threads(results, values, packed, other)
        np.testing.assert_array_equal(same[0], packed)
        np.testing.assert_array_equal(same[1], kernels.sign_unpack(packed, values.size))
        np.testing.assert_array_equal(same[2], kernels.sign_merge(packed, other, 1, 1, 3))
        np.testing.assert_array_equal(same[3], kernels.sign_merge(packed, other, 2, 3, 3))


class ErrorTest(OpTestCase):
    def test_sizes_that_do_not_fit_are_refused(self):
        for size, wrong in (8, 2), (9, 1), (0, 1), (1, 0), (2**62, 1):
            self.assert_invalid(
                f"packed .*{size} values, got {wrong}",
                ops.sign_unpack,
                as_bytes([0] * wrong),
                tf.constant(size, tf.int64),
            )
        self.assert_invalid(
            "second .*got 3|equal", ops.sign_merge, as_bytes([0, 0]), as_bytes([0, 0, 0]), 1, 1, 0
        )

    @parameterized.parameters(tf.int32, tf.int64)
    def test_a_negative_size_is_refused(self, dtype):
        self.assert_invalid("size .*-5", ops.sign_unpack, as_bytes([]), tf.constant(-5, dtype))

    def test_padding_other_than_zero_is_data_loss(self):
        for n in range(1, 8):
            for bit in range(n, 8):
                with self.assertRaisesRegex(tf.errors.DataLossError, "packed .*padding"):
                    ops.sign_unpack(as_bytes([1 << bit]), n)

    def test_counts_out_of_range_are_refused(self):
        one = as_bytes([0])
        for i, j in (0, 1), (1, 0), (-1, 5), (2**31 - 1, 1), (2**63 - 1, 2**63 - 1):
            self.assert_invalid(
                f"first_count .*2.31 - 1, got {i} and {j}",
                ops.sign_merge,
                one,
                one,
                tf.constant(i, tf.int64),
                tf.constant(j, tf.int64),
                0,
            )
        ops.sign_merge(one, one, 2**31 - 2, 1, 0)

    def test_ranks_other_than_the_documented_are_refused(self):
        one, matrix = as_bytes([0]), tf.zeros([1, 1], tf.uint8)
        for function, args in [
            (ops.sign_unpack, (matrix, 8)),
            (ops.sign_unpack, (one, [8])),
            (ops.sign_merge, (matrix, one, 1, 1, 0)),
            (ops.sign_merge, (one, matrix, 1, 1, 0)),
            (ops.sign_merge, (one, one, [1], 1, 0)),
            (ops.sign_merge, (one, one, 1, [1], 0)),
            (ops.sign_merge, (one, one, 1, 1, [0])),
            (ops.sign_merge, (one, one, 1, 1, [0, 1, 2])),
            (ops.sign_merge, (one, one, 1, 1, [[0, 1]])),
        ]:
            with self.subTest(function=function.__name__):
                self.assert_invalid("vector|scalar|rank|dimension|Dimension", function, *args)

    def test_wrong_types_are_refused(self):
        wrong, one = tf.constant([0], tf.int32), as_bytes([0])
        self.assert_refused(
            [
                (ops.sign_pack, (wrong,)),
                (ops.sign_pack, (tf.zeros([1], tf.float64),)),
                (ops.sign_unpack, (wrong, 8)),
                (ops.sign_unpack, (one, 8.0)),
                (ops.sign_merge, (wrong, one, 1, 1, 0)),
                (ops.sign_merge, (one, wrong, 1, 1, 0)),
                (ops.sign_merge, (one, one, 1.0, 1.0, 0)),
                (ops.sign_merge, (one, one, 1, 1, 0.5)),
            ]
        )

    def test_there_is_no_gradient(self):
        values = testing.gaussian(16)
        self.assert_no_gradient(ops.sign_pack, values)
        self.assert_no_gradient(lambda x: ops.sign_unpack(ops.sign_pack(x), 16), values)


class ShapeTest(OpTestCase):
    def test_known_shapes_give_known_shapes(self):
        for shape, size in ([3, 5], 2), ([16], 2), ([], 1), ([0, 7], 0):
            packed = traced(ops.sign_pack, tf.TensorSpec(shape, tf.float32))
            self.assertEqual(packed.shape, [size])
        packed = tf.TensorSpec([None], tf.uint8)
        self.assertEqual(traced(lambda x: ops.sign_unpack(x, 13), packed).shape, [13])
        merged = traced(
            lambda x, y: ops.sign_merge(x, y, 1, 1, 0), packed, tf.TensorSpec([7], tf.uint8)
        )
        self.assertEqual(merged.shape, [7])

    def test_unknown_shapes_give_known_ranks(self):
        packed = traced(ops.sign_pack, tf.TensorSpec([None, 4], tf.float32))
        self.assertEqual(packed.shape.as_list(), [None])
        unknown, scalar = tf.TensorSpec(None, tf.uint8), tf.TensorSpec([], tf.int32)
        signs = traced(ops.sign_unpack, unknown, scalar)
        self.assertEqual(signs.shape.as_list(), [None])
        merged = traced(ops.sign_merge, unknown, unknown, scalar, scalar, scalar)
        self.assertEqual(merged.shape.as_list(), [None])

    def test_what_cannot_fit_is_refused_while_tracing(self):
        two, matrix = tf.TensorSpec([2], tf.uint8), tf.TensorSpec([2, 2], tf.uint8)
        zeros = tf.zeros([2], tf.uint8)
        self.assert_refused_while_tracing(
            [
                ("3 bytes for 17 values, got 2", lambda x: ops.sign_unpack(x, 17), two),
                ("negative|-4", lambda x: ops.sign_unpack(x, -4), two),
                ("rank 1", lambda x: ops.sign_unpack(x, 17), matrix),
                ("rank 0", lambda x: ops.sign_unpack(x, [16]), two),
                ("equal", lambda x: ops.sign_merge(x, zeros[:1], 1, 1, 0), two),
                ("rank 1", lambda x: ops.sign_merge(x, zeros, 1, 1, 0), matrix),
                ("rank 0", lambda x: ops.sign_merge(x, zeros, [1], 1, 0), two),
                ("got 0 and 1", lambda x: ops.sign_merge(x, zeros, 0, 1, 0), two),
                ("got 1 and -1", lambda x: ops.sign_merge(x, zeros, 1, -1, 0), two),
                ("got 2147483647 and 1", lambda x: ops.sign_merge(x, zeros, 2**31 - 1, 1, 0), two),
                ("must be 2 but is 3", lambda x: ops.sign_merge(x, zeros, 1, 1, [1, 2, 3]), two),
                ("at most rank 1", lambda x: ops.sign_merge(x, zeros, 1, 1, [[1, 2]]), two),
            ]
        )


if __name__ == "__main__":
    absltest.main()
