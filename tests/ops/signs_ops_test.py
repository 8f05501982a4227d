"""tf_gc.ops: signs, eagerly and in a tf.function."""

import hypothesis
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import signs_reference
from tf_gc import kernels, ops

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


def _bytes(values):
    return tf.constant(values, tf.uint8, shape=[len(values)])


def _random_bytes(size, seed):
    return np.random.default_rng(seed).integers(0, 256, size).astype(np.uint8)


def _gaussian(size, seed=0):
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def _philox_words(seed, blocks):
    """TensorFlow's own stream, uint32 [blocks, 4]."""
    key, stream = np.array(seed if np.ndim(seed) else [seed, 0], np.int64).view(np.uint64)
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[blocks, 4],
        key=tf.constant([key], tf.uint64),
        counter=tf.constant([0, stream], tf.uint64),
        alg=1,
        dtype=tf.uint32,
    ).numpy()


def _traced(function, *specs):
    """The graph's outputs for inputs of which only the specs are known."""
    return tf.function(function).get_concrete_function(*specs).structured_outputs


class SignPackTest(parameterized.TestCase):
    @parameterized.named_parameters(*_MODES)
    def test_by_hand(self, compile_function):
        values = [1, -1, 0, -0.0, _NAN, _INFINITY, -_INFINITY, 1e-45, -1e-45]
        packed = compile_function(ops.sign_pack)(tf.constant(values))
        self.assertEqual(packed.numpy().tolist(), [1 + 4 + 8 + 32 + 128, 0])
        signs = compile_function(ops.sign_unpack)(packed, tf.constant(9))
        self.assertEqual(signs.numpy().tolist(), [1, -1, 1, 1, -1, 1, -1, 1, -1])

    @parameterized.parameters((), (0,), (7,), (3, 0), (3, 5, 41), (1000003,))
    def test_signs_come_back(self, *shape):
        values = _gaussian(shape)
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
        special = [0, -0.0, _NAN, -_NAN, _INFINITY, -_INFINITY, 1e-7, -1e-7]
        values = tf.cast(tf.concat([special, _gaussian(1001)], 0), dtype)
        np.testing.assert_array_equal(
            ops.sign_pack(values), ops.sign_pack(tf.cast(values, tf.float32))
        )

    def test_denormal_values_have_signs_on_every_thread(self):
        values = tf.constant(np.float32(-1e-45), shape=[1 << 22])
        self.assertFalse(np.any(ops.sign_pack(values)))
        self.assertFalse(np.any(tf.function(ops.sign_pack)(values)))


class SignMergeTest(parameterized.TestCase):
    @parameterized.named_parameters(*_MODES)
    def test_merging_uses_tensorflows_random_bits(self, compile_function):
        merge = compile_function(ops.sign_merge)
        first, second = _random_bytes(100, 1), _random_bytes(100, 2)
        for seed in 7, -7, [2**62 + 3, -5]:
            words = _philox_words(seed, signs_reference.blocks(100))
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
        first, second = _random_bytes(100, 1), _random_bytes(100, 2)
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

        values, other = _gaussian(8000), _random_bytes(1000, 1)
        packed, merged, again = merge_twice(values, other)
        np.testing.assert_array_equal(packed, signs_reference.pack(values >= 0))
        np.testing.assert_array_equal(merged, again)

    def test_a_ring_in_a_graph_is_that_of_numpy(self):
        workers = [_random_bytes(1000, w) for w in range(4)]

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
        traces = []

        @tf.function
        def merge(first, second, i, j, seed):
            traces.append(i)
            return ops.sign_merge(first, second, i, j, seed)

        first, second = _random_bytes(100, 1), _random_bytes(100, 2)
        for i, j, seed in (1, 1, 0), (2, 1, 1), (5, 9, 2):
            merged = merge(first, second, tf.constant(i), tf.constant(j), tf.constant(seed))
            expected = kernels.sign_merge(first, second, i, j, seed)
            np.testing.assert_array_equal(merged, expected)
        self.assertLen(traces, 1)


class ThreadsTest(parameterized.TestCase):
    def test_any_number_of_threads_gives_the_same_bits(self):
        # Eager ops share their work out; the NumPy functions do not.
        values = _gaussian(10**7 + 3)
        values[::7] = -1e-45
        packed = ops.sign_pack(values)
        np.testing.assert_array_equal(packed, kernels.sign_pack(values))
        np.testing.assert_array_equal(
            ops.sign_unpack(packed, values.size), kernels.sign_unpack(packed.numpy(), values.size)
        )
        other = _random_bytes(packed.shape[0], 1)
        for i, j in (1, 1), (2, 3):
            np.testing.assert_array_equal(
                ops.sign_merge(packed, other, i, j, 3),
                kernels.sign_merge(packed.numpy(), other, i, j, 3),
            )


class ErrorTest(parameterized.TestCase):
    def _assert_invalid(self, message, function, *args):
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
            function(*args)

    def test_sizes_that_do_not_fit_are_refused(self):
        for size, wrong in (8, 2), (9, 1), (0, 1), (1, 0), (2**62, 1):
            self._assert_invalid(
                f"packed .*{size} values, got {wrong}",
                ops.sign_unpack,
                _bytes([0] * wrong),
                tf.constant(size, tf.int64),
            )
        self._assert_invalid(
            "second .*got 3|equal", ops.sign_merge, _bytes([0, 0]), _bytes([0, 0, 0]), 1, 1, 0
        )

    @parameterized.parameters(tf.int32, tf.int64)
    def test_a_negative_size_is_refused(self, dtype):
        self._assert_invalid("size .*-5", ops.sign_unpack, _bytes([]), tf.constant(-5, dtype))

    def test_padding_other_than_zero_is_data_loss(self):
        for n in range(1, 8):
            for bit in range(n, 8):
                with self.assertRaisesRegex(tf.errors.DataLossError, "packed .*padding"):
                    ops.sign_unpack(_bytes([1 << bit]), n)

    def test_counts_out_of_range_are_refused(self):
        one = _bytes([0])
        for i, j in (0, 1), (1, 0), (-1, 5), (2**31 - 1, 1), (2**63 - 1, 2**63 - 1):
            self._assert_invalid(
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
        one, matrix = _bytes([0]), tf.zeros([1, 1], tf.uint8)
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
                self._assert_invalid("vector|scalar|rank|dimension|Dimension", function, *args)

    def test_wrong_types_are_refused(self):
        wrong, one = tf.constant([0], tf.int32), _bytes([0])
        for function, args in [
            (ops.sign_pack, (wrong,)),
            (ops.sign_pack, (tf.zeros([1], tf.float64),)),
            (ops.sign_unpack, (wrong, 8)),
            (ops.sign_unpack, (one, 8.0)),
            (ops.sign_merge, (wrong, one, 1, 1, 0)),
            (ops.sign_merge, (one, wrong, 1, 1, 0)),
            (ops.sign_merge, (one, one, 1.0, 1.0, 0)),
            (ops.sign_merge, (one, one, 1, 1, 0.5)),
        ]:
            with (
                self.subTest(function=function.__name__),
                self.assertRaises((tf.errors.InvalidArgumentError, TypeError, ValueError)),
            ):
                function(*args)

    def test_there_is_no_gradient(self):
        values = tf.constant(_gaussian(16))
        with tf.GradientTape() as tape:
            tape.watch(values)
            signs = ops.sign_unpack(ops.sign_pack(values), 16)
        self.assertIsNone(tape.gradient(signs, values))


class ShapeTest(parameterized.TestCase):
    def test_known_shapes_give_known_shapes(self):
        for shape, size in ([3, 5], 2), ([16], 2), ([], 1), ([0, 7], 0):
            packed = _traced(ops.sign_pack, tf.TensorSpec(shape, tf.float32))
            self.assertEqual(packed.shape, [size])
        packed = tf.TensorSpec([None], tf.uint8)
        self.assertEqual(_traced(lambda x: ops.sign_unpack(x, 13), packed).shape, [13])
        merged = _traced(
            lambda x, y: ops.sign_merge(x, y, 1, 1, 0), packed, tf.TensorSpec([7], tf.uint8)
        )
        self.assertEqual(merged.shape, [7])

    def test_unknown_shapes_give_known_ranks(self):
        packed = _traced(ops.sign_pack, tf.TensorSpec([None, 4], tf.float32))
        self.assertEqual(packed.shape.as_list(), [None])
        unknown, scalar = tf.TensorSpec(None, tf.uint8), tf.TensorSpec([], tf.int32)
        signs = _traced(ops.sign_unpack, unknown, scalar)
        self.assertEqual(signs.shape.as_list(), [None])
        merged = _traced(ops.sign_merge, unknown, unknown, scalar, scalar, scalar)
        self.assertEqual(merged.shape.as_list(), [None])

    def test_what_cannot_fit_is_refused_while_tracing(self):
        two, matrix = tf.TensorSpec([2], tf.uint8), tf.TensorSpec([2, 2], tf.uint8)
        zeros = tf.zeros([2], tf.uint8)
        for message, function, spec in [
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
        ]:
            with (
                self.subTest(message=message),
                self.assertRaisesRegex(ValueError, message),
            ):
                _traced(function, spec)


if __name__ == "__main__":
    absltest.main()
