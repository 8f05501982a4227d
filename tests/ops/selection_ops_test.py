"""tf_gc.ops: selection and the packing of indices, eagerly and in a tf.function."""

import hypothesis
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import testing
from tests.ops.op_testing import MODES, OpTestCase, as_bytes, traced
from tf_gc import kernels, ops


def _top_k(values, k):
    """What top_k_indices does, by sorting."""
    keys = np.asarray(values, np.float32).view(np.uint32) & 0x7FFFFFFF
    return np.sort(np.argsort(-keys.astype(np.int64), kind="stable")[:k])


def _indices(values):
    return tf.constant(values, tf.int32, shape=[len(values)])


class TopKTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_is_what_sorting_gives(self, compile_function):
        top_k_indices = compile_function(ops.top_k_indices)
        for n, k in [(0, 0), (1, 1), (100, 0), (100, 7), (50000, 500), (50000, 49999)]:
            values = testing.gaussian(n)
            for dtype in tf.int32, tf.int64:
                indices = top_k_indices(tf.constant(values), tf.constant(k, dtype))
                self.assertEqual(indices.dtype, tf.int32)
                np.testing.assert_array_equal(indices, _top_k(values, k))

    def test_k_may_change_without_a_new_trace(self):
        select = tf.function(ops.top_k_indices)
        values = testing.gaussian(1000)
        for k in 0, 10, 1000:
            selected = select(tf.constant(values), tf.constant(k))
            np.testing.assert_array_equal(selected, _top_k(values, k))
        self.assertEqual(select.experimental_get_tracing_count(), 1)

    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_half_precision_is_selected_as_its_float32(self, dtype):
        values = tf.cast(testing.gaussian(30000), dtype)
        expected = _top_k(tf.cast(values, tf.float32).numpy(), 300)
        np.testing.assert_array_equal(ops.top_k_indices(values, 300), expected)

    def test_nan_and_denormal_values_count(self):
        values = tf.constant([0, 1e-45, -5e-45, np.inf, -np.nan, 3e-45], tf.float32)
        self.assertEqual(ops.top_k_indices(values, 1).numpy().tolist(), [4])
        self.assertEqual(ops.top_k_indices(values, 4).numpy().tolist(), [2, 3, 4, 5])

    def test_large_tensors_use_all_threads_and_give_the_same(self):
        values = testing.gaussian(3 * 10**6 + 7)
        for k in 30000, 2 * 10**6:
            [indices] = self.assert_same_on_any_threads(
                lambda x, k=k: ops.top_k_indices(x, k), values
            )
            np.testing.assert_array_equal(indices, kernels.top_k_indices(values, k))


class ChunkArgmaxTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_gives_the_golden_indices_and_averages(self, compile_function):
        chunk_argmax = compile_function(ops.chunk_argmax)
        golden = testing.golden("scale_com_figure_a2")
        gradients = tf.constant(golden["gradients"])
        indices = chunk_argmax(gradients[golden["leader"]], tf.constant(golden["chunk"]))
        self.assertEqual(indices.numpy().tolist(), golden["indices"])
        averaged = tf.reduce_mean(tf.gather(gradients, indices, axis=1), axis=0)
        np.testing.assert_allclose(averaged, golden["averaged"], rtol=1e-6)

    @parameterized.parameters(tf.float32, tf.float16, tf.bfloat16)
    def test_every_chunk_gives_its_largest(self, dtype):
        values = tf.cast(testing.gaussian(300001), dtype)
        magnitudes = np.abs(tf.cast(values, tf.float32).numpy())
        for chunk in 1, 3, 16, 100, 4096, 300000, 2**40:
            expected = [
                i + int(np.argmax(magnitudes[i : i + chunk]))
                for i in range(0, len(magnitudes), chunk)
            ]
            indices = ops.chunk_argmax(values, tf.constant(chunk, tf.int64))
            np.testing.assert_array_equal(indices, expected)

    def test_a_python_integer_above_int32_keeps_its_value(self):
        values = tf.range(10, dtype=tf.float32)
        self.assertEqual(ops.chunk_argmax(values, 2**32 + 5).numpy().tolist(), [9])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "4294967299"):
            ops.top_k_indices(values, 2**32 + 3)

    def test_no_values_have_no_chunks(self):
        self.assertEqual(ops.chunk_argmax(tf.zeros([0]), 4).shape, [0])


class MagnitudeHistogramTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_is_what_numpy_gives(self, compile_function):
        magnitude_histogram = compile_function(ops.magnitude_histogram)
        for dtype in tf.float32, tf.float16, tf.bfloat16:
            values = tf.cast(testing.gradient(50001), dtype)
            expected = kernels.magnitude_histogram(values.numpy())
            for result, array in zip(magnitude_histogram(values), expected, strict=True):
                self.assertEqual(result.dtype, array.dtype)
                np.testing.assert_array_equal(result, array)

    def test_large_tensors_use_all_threads_and_give_the_same(self):
        values = testing.gradient(3 * 10**6 + 7)
        counts, squares = self.assert_same_on_any_threads(ops.magnitude_histogram, values)
        self.assertEqual(counts.sum(), values.size)
        total = np.sum(np.square(values, dtype=np.float64))
        self.assertAlmostEqual(squares.sum() / total, 1, delta=2**-28)


class IndexPackingTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_indices_come_back(self, compile_function):
        pack = compile_function(ops.pack_indices)
        unpack = compile_function(ops.unpack_indices)
        for size, k in [(0, 0), (1, 1), (100, 0), (100, 3), (5000, 50), (5000, 2500)]:
            indices = np.sort(np.random.default_rng(k).permutation(size)[:k]).astype(np.int32)
            packed = pack(tf.constant(indices), tf.constant(size))
            np.testing.assert_array_equal(packed, kernels.pack_indices(indices, size))
            unpacked = unpack(packed, tf.constant(k, tf.int64), tf.constant(size))
            np.testing.assert_array_equal(unpacked, indices)

    def test_the_largest_index_comes_back(self):
        packed = ops.pack_indices(_indices([0, 2**31 - 2]), 2**31 - 1)
        self.assertLess(packed.shape[0], 20)
        unpacked = ops.unpack_indices(packed, 2, 2**31 - 1)
        self.assertEqual(unpacked.numpy().tolist(), [0, 2**31 - 2])


def _selected(indices, values, size):
    """A message with these values at indices."""
    packed = kernels.pack_indices(np.array(indices, np.int32), size)
    return np.concatenate([packed, np.array(values, np.float32).view(np.uint8)])


class SumSelectedTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_by_hand(self, compile_function):
        messages = [_selected([1, 4], [2, 3], 6), _selected([0, 4], [-1, 5], 6)]
        sums = compile_function(ops.sum_selected)(np.stack(messages), tf.constant(2), 6)
        self.assertEqual(sums.numpy().tolist(), [-1, 2, 0, 0, 8, 0])

    def test_values_are_added_in_the_order_of_ranks(self):
        messages = [_selected([0], [value], 1) for value in (1e8, 1, -1e8)]
        self.assertEqual(ops.sum_selected(messages, 1, 1).numpy().tolist(), [0])
        messages = [_selected([0], [value], 1) for value in (1e8, -1e8, 1)]
        self.assertEqual(ops.sum_selected(messages, 1, 1).numpy().tolist(), [1])

    @hypothesis.given(st.integers(1, 5), st.integers(0, 300), st.data())
    def test_is_what_numpy_does(self, workers, n, data):
        k = data.draw(st.integers(0, n))
        expected, messages = np.zeros(n, np.float32), []
        for rank in range(workers):
            indices = np.sort(np.random.default_rng(rank).permutation(n)[:k])
            values = testing.gaussian(k, rank)
            expected[indices] += values
            messages.append(_selected(indices, values, n))
        np.testing.assert_array_equal(ops.sum_selected(messages, k, n), expected)

    def test_no_messages_add_up_to_zeros(self):
        sums = ops.sum_selected(tf.zeros([0, 10], tf.uint8), 2, 60)
        np.testing.assert_array_equal(sums, np.zeros(60))

    def test_denormal_sums_are_kept(self):
        sums = ops.sum_selected(2 * [_selected([0], [1e-45], 1)], 1, 1)
        self.assertEqual(sums.numpy().view(np.uint32).tolist(), [2])

    def test_large_vectors_are_cut_among_threads(self):
        n = 10**6 + 3
        ranks = [np.arange(rank, n, 7 + rank)[: n // 10] for rank in range(3)]
        messages = np.stack([_selected(i, testing.gaussian(i.size), n) for i in ranks])
        [sums] = self.assert_same_on_any_threads(
            lambda x: ops.sum_selected(x, n // 10, n), messages
        )
        expected = np.zeros(n, np.float32)
        for indices in ranks:
            expected[indices] += testing.gaussian(indices.size)
        np.testing.assert_array_equal(sums, expected)

    def test_bytes_that_no_encoder_wrote_are_data_loss_with_the_rank(self):
        good = _selected([1, 4], [2, 3], 60)
        for place, value, message in [
            (0, 0b1011, "has more bits that are 1 than indices"),
            (0, 0b1000, "has fewer bits that are 1 than indices"),
            (1, 0x44, "has indices that do not ascend"),
        ]:
            bad = good.copy()
            bad[place] = value
            for rank in range(3):
                messages = [good] * rank + [bad] * (3 - rank)
                what = f"from rank {rank}: packed, 2 bytes for 2 indices below 60, {message}"
                with self.subTest(what=what):
                    self.assert_data_loss(what, ops.sum_selected, messages, 2, 60)

    def test_other_sizes_are_data_loss(self):
        good = _selected([1, 4], [2, 3], 60)
        message = "messages must have 10 bytes for 2 values of 60, got"
        for bad in good[:-1], np.append(good, 0), good[:0]:
            self.assert_data_loss(message, ops.sum_selected, [bad.astype(np.uint8)], 2, 60)


class ScatterTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_by_hand(self, compile_function):
        indices, values = _indices([4, 1, 4]), tf.constant([1.0, 2.0, 3.0])
        sums = compile_function(ops.scatter)(indices, values, tf.constant(6))
        self.assertEqual(sums.numpy().tolist(), [0, 2, 0, 0, 4, 0])
        updated = compile_function(ops.scatter_update)(tf.range(6.0), indices, values)
        self.assertEqual(updated.numpy().tolist(), [0, 2, 2, 3, 3, 5])

    @hypothesis.given(st.integers(0, 40), st.integers(0, 60), st.integers(0, 9))
    def test_is_what_numpy_does(self, n, k, seed):
        indices = np.random.default_rng(seed).integers(0, n, k if n else 0, np.int32)
        values, others = testing.gaussian(n), testing.gaussian(indices.size, 1)
        expected = np.zeros(n, np.float32)
        np.add.at(expected, indices, others)
        np.testing.assert_array_equal(ops.scatter(indices, others, n), expected)
        expected = values.copy()
        expected[indices] = others
        np.testing.assert_array_equal(ops.scatter_update(values, indices, others), expected)

    def test_denormal_sums_are_kept(self):
        sums = ops.scatter(_indices([0, 0]), tf.constant([1e-45, 1e-45]), 1)
        self.assertEqual(sums.numpy().view(np.uint32).tolist(), [2])

    def test_large_vectors_are_cut_among_threads(self):
        values = testing.gaussian(10**6 + 3)
        indices = np.arange(0, values.size, 7, dtype=np.int32)
        others = values[indices] + 1
        sums, updated = self.assert_same_on_any_threads(
            lambda v, i, o: (ops.scatter(i, o, v.shape[0]), ops.scatter_update(v, i, o)),
            values,
            indices,
            others,
        )
        self.assertEqual(np.count_nonzero(sums), np.count_nonzero(others))
        np.testing.assert_array_equal(sums[indices], others)
        np.testing.assert_array_equal(updated - values, np.where(sums, updated - values, 0))
        np.testing.assert_array_equal(updated[indices], others)

    def test_what_is_needed_later_is_not_written_to(self):
        @tf.function
        def update(values):
            doubled = 2 * values
            updated = ops.scatter_update(doubled, [1], [7.0])
            with tf.control_dependencies([updated]):
                return updated, tf.identity(doubled)

        updated, doubled = update(tf.constant([1.0, 2.0]))
        self.assertEqual(updated.numpy().tolist(), [2, 7])
        self.assertEqual(doubled.numpy().tolist(), [2, 4])

    @parameterized.parameters(-1, 3, 2**31 - 1, -(2**31))
    def test_indices_out_of_range_are_refused(self, index):
        indices, values = _indices([0, index]), tf.zeros([2])
        message = f"indices must be in 0 ... 2, got {index}"
        self.assert_invalid(message, ops.scatter, indices, values, 3)
        self.assert_invalid(message, ops.scatter_update, tf.zeros([3]), indices, values)

    def test_values_that_are_not_as_many_are_refused(self):
        message = "one value for each of 1 indices|must be equal|Dimensions"
        self.assert_invalid(message, ops.scatter, _indices([0]), tf.zeros([2]), 3)
        zeros = tf.zeros([3])
        self.assert_invalid(message, ops.scatter_update, zeros, _indices([0]), tf.zeros([2]))


class ErrorTest(OpTestCase):
    @parameterized.parameters(tf.int32, tf.int64)
    def test_numbers_out_of_range_are_named(self, dtype):
        def number(value):
            return tf.constant(value, dtype)

        values, messages = tf.zeros([5]), tf.zeros([1, 0], tf.uint8)
        for message, function, args in [
            ("k must be in 0 ... 5, got 6", ops.top_k_indices, (values, number(6))),
            ("k must be in 0 ... 5, got -1", ops.top_k_indices, (values, number(-1))),
            ("chunk must be in 1 .*, got 0", ops.chunk_argmax, (values, number(0))),
            ("size must be in 0 .*, got -3", ops.pack_indices, (_indices([]), number(-3))),
            ("size must be in 0 .*, got -3", ops.scatter, (_indices([]), [], number(-3))),
            ("size must be in 0 .*, got -3", ops.unpack_indices, (as_bytes([]), 0, number(-3))),
            ("count must be in 0 ... 2, got 3", ops.unpack_indices, (as_bytes([]), number(3), 2)),
            ("count must be in 0 ... 2, got -1", ops.unpack_indices, (as_bytes([]), number(-1), 2)),
            ("size must be in 0 .*, got -3", ops.sum_selected, (messages, 0, number(-3))),
            ("count must be in 0 ... 2, got 3", ops.sum_selected, (messages, number(3), 2)),
        ]:
            with self.subTest(message=message):
                self.assert_invalid(message, function, *args)
        self.assert_invalid(
            "size must be in 0 ... 2147483647, got 2147483648",
            ops.pack_indices,
            _indices([]),
            tf.constant(2**31, tf.int64),
        )

    def test_ranks_other_than_the_documented_are_refused(self):
        matrix = tf.zeros([1, 1])
        for function, args in [
            (ops.top_k_indices, (matrix, 1)),
            (ops.top_k_indices, (tf.zeros([1]), [1])),
            (ops.chunk_argmax, (matrix, 1)),
            (ops.chunk_argmax, (tf.zeros([1]), [1])),
            (ops.magnitude_histogram, (matrix,)),
            (ops.pack_indices, (tf.zeros([1, 1], tf.int32), 1)),
            (ops.pack_indices, (_indices([0]), [1])),
            (ops.unpack_indices, (tf.zeros([1, 1], tf.uint8), 1, 1)),
            (ops.unpack_indices, (as_bytes([1]), [1], 1)),
            (ops.unpack_indices, (as_bytes([1]), 1, [1])),
            (ops.unpack_indices, (as_bytes([1]), 1, 1, [1])),
            (ops.sum_selected, (as_bytes([]), 0, 1)),
            (ops.sum_selected, (tf.zeros([1, 0], tf.uint8), [0], 1)),
            (ops.scatter, (tf.zeros([1, 1], tf.int32), [1.0], 1)),
            (ops.scatter, (_indices([0]), [1.0], [1])),
            (ops.scatter_update, (matrix, _indices([0]), [1.0])),
            (ops.scatter_update, ([1.0], tf.zeros([1, 1], tf.int32), [1.0])),
        ]:
            with self.subTest(function=function.__name__):
                self.assert_invalid("vector|matrix|scalar|rank", function, *args)

    def test_indices_that_do_not_ascend_are_named_with_their_position(self):
        for bad, message in [
            ([1, 3, 3], "got 3 at position 2"),
            ([1, 3, 2], "got 2 at position 2"),
            ([-1, 3], "got -1 at position 0"),
            ([1, 10], "size - 1 = 9, got 10 at position 1"),
        ]:
            with self.subTest(bad=bad):
                self.assert_invalid(message, ops.pack_indices, _indices(bad), 10)

    def test_bytes_that_no_encoder_wrote_are_data_loss(self):
        for data, count, size, message in [
            ([0b1011], 2, 8, "packed, 1 bytes for 2 indices below 8, has more bits"),
            ([0b1000], 2, 8, "has fewer bits"),
            ([0b10001], 2, 4, "padding"),
            ([0b11, 0x44], 2, 60, "do not ascend"),
            ([0b10001, 0xC4], 2, 60, "too large"),
            ([1, 2], 2, 8, "packed must have 1 bytes for 2 indices below 8, got 2"),
            ([], 1, 8, "packed must have 1 bytes"),
            ([1], 2**31 - 1, 2**31 - 1, "packed must have 268435456 bytes"),
        ]:
            with self.subTest(data=data):
                self.assert_data_loss(message, ops.unpack_indices, as_bytes(data), count, size)
                message = f"from rank 3: .*{message}"
                args = as_bytes(data), count, size, tf.constant(3)
                self.assert_data_loss(message, ops.unpack_indices, *args)

    def test_there_is_no_gradient(self):
        self.assert_no_gradient(
            lambda x: (
                ops.top_k_indices(x, 3),
                ops.chunk_argmax(x, 3),
                *ops.magnitude_histogram(x),
            ),
            testing.gaussian(10),
        )


class ShapeTest(OpTestCase):
    def test_constants_give_known_shapes(self):
        values = tf.TensorSpec([10], tf.float32)
        unknown = tf.TensorSpec([None], tf.float32)
        self.assertEqual(traced(lambda x: ops.top_k_indices(x, 3), values).shape, [3])
        self.assertEqual(traced(lambda x: ops.top_k_indices(x, 3), unknown).shape, [3])
        self.assertEqual(traced(lambda x: ops.chunk_argmax(x, 4), values).shape, [3])
        for output in traced(ops.magnitude_histogram, unknown):
            self.assertEqual(output.shape, [8160])
        indices = tf.TensorSpec([100], tf.int32)
        packed = traced(lambda x: ops.pack_indices(x, 10000), indices)
        expected = kernels.pack_indices(np.arange(100, dtype=np.int32), 10000)
        self.assertEqual(packed.shape, expected.shape)
        unpacked = traced(
            lambda x: ops.unpack_indices(x, 100, 10000), tf.TensorSpec(None, tf.uint8)
        )
        self.assertEqual(unpacked.shape, [100])
        messages = tf.TensorSpec([None, None], tf.uint8)
        self.assertEqual(traced(lambda x: ops.sum_selected(x, 7, 60), messages).shape, [60])
        others = tf.zeros([100])
        self.assertEqual(traced(lambda x: ops.scatter(x, others, 500), indices).shape, [500])
        updated = traced(lambda x: ops.scatter_update(x, [1], [0.0]), values)
        self.assertEqual(updated.shape, [10])

    def test_what_is_not_known_gives_known_ranks(self):
        number = tf.TensorSpec([], tf.int64)
        values = tf.TensorSpec(None, tf.float32)
        packed = tf.TensorSpec(None, tf.uint8)
        indices = tf.TensorSpec([7], tf.int32)
        for output in [
            traced(ops.top_k_indices, tf.TensorSpec([10], tf.float32), number),
            traced(ops.chunk_argmax, tf.TensorSpec([10], tf.float32), number),
            traced(lambda x: ops.chunk_argmax(x, 4), values),
            traced(ops.pack_indices, indices, number),
            traced(ops.unpack_indices, packed, number, number),
            traced(ops.sum_selected, tf.TensorSpec(None, tf.uint8), number, number),
            traced(ops.scatter, indices, values, number),
            traced(lambda x: ops.scatter_update(x, [1], [0.0]), values),
        ]:
            self.assertEqual(output.shape.as_list(), [None])

    def test_what_cannot_fit_is_refused_while_tracing(self):
        values = tf.TensorSpec([5], tf.float32)
        unknown = tf.TensorSpec(None, tf.float32)
        matrix = tf.TensorSpec([5, 5], tf.float32)
        indices = tf.TensorSpec([3], tf.int32)
        packed = tf.TensorSpec([3], tf.uint8)
        self.assert_refused_while_tracing(
            [
                ("k must be in 0 ... 5, got 6", lambda x: ops.top_k_indices(x, 6), values),
                ("k must be in 0 .*got -1", lambda x: ops.top_k_indices(x, -1), unknown),
                ("rank 1", lambda x: ops.top_k_indices(x, 1), matrix),
                ("rank 0", lambda x: ops.top_k_indices(x, [1]), values),
                ("chunk must be in 1 .*got 0", lambda x: ops.chunk_argmax(x, 0), unknown),
                ("rank 1", lambda x: ops.chunk_argmax(x, 1), matrix),
                ("size must be in 3 .*got 2", lambda x: ops.pack_indices(x, 2), indices),
                (
                    "size must be in 0 .*got -1",
                    lambda x: ops.pack_indices(x, -1),
                    tf.TensorSpec([None], tf.int32),
                ),
                ("rank 0", lambda x: ops.pack_indices(x, [4]), indices),
                ("count must be in 0 ... 4, got 5", lambda x: ops.unpack_indices(x, 5, 4), packed),
                ("size must be in 0 .*got -4", lambda x: ops.unpack_indices(x, 5, -4), packed),
                ("1 bytes for 3 indices", lambda x: ops.unpack_indices(x, 3, 8), packed),
                ("rank 0", lambda x: ops.unpack_indices(x, [5], 4), packed),
                ("rank 0", lambda x: ops.unpack_indices(x, 2, 4, [1]), packed),
                ("rank 2", lambda x: ops.sum_selected(x, 1, 8), packed),
                ("must be 5", lambda x: ops.sum_selected([x, x], 1, 8), packed),
                ("size must be in 0 .*got -1", lambda x: ops.scatter([0], x, -1), unknown),
                ("must be equal", lambda x: ops.scatter(x, [1.0], 4), indices),
                ("rank 1", lambda x: ops.scatter_update(x, [0], [1.0]), matrix),
            ]
        )


if __name__ == "__main__":
    absltest.main()
