"""tf_gc.ops: gradients that have few rows, packed and summed."""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from tests import rows_reference, testing
from tests.ops.op_testing import MODES, OpTestCase, run_on_threads
from tf_gc import ops

_BITS = (2, 3, 4, 5, 8, 32)
_SHAPES = ((40, 5), (7, 2, 3))
_KEYS = itertools.count()


def _gradients(worker, rows=60):
    """Indices that come again and again, and values of many magnitudes."""
    rng = np.random.default_rng(worker)
    return [
        (rng.integers(0, shape[0], rows), testing.gradient((rows, *shape[1:]), worker))
        for shape in _SHAPES
    ]


def _pack(gradients, bits=8, seed=(7, 3), shapes=_SHAPES, group_size=2, bucket=None):
    if bucket is None:
        bucket = ops.bucket(f"rows_ops_test {next(_KEYS)}", len(gradients))
    return ops.pack_rows(
        [tf.constant(indices, tf.int64) for indices, _ in gradients],
        [tf.constant(values) for _, values in gradients],
        tf.constant(seed, tf.int64),
        bucket,
        shapes=shapes,
        bits=bits,
        group_size=group_size,
    )


def _delivered(gradients, bits, seed=(7, 3)):
    """The same by the reference: by variable indices, and rows of [k, length]."""
    delivered = []
    for variable, (indices, values) in enumerate(gradients):
        unique, sums = rows_reference.sum_rows(indices, values.reshape(len(indices), -1))
        delivered.append((unique, rows_reference.quantize(sums, seed, variable, bits)))
    return delivered


def _sum(messages, shapes):
    sizes = [tf.size(message, tf.int64) for message in messages]
    rows = tf.RaggedTensor.from_row_lengths(tf.concat(messages, 0), sizes)
    return ops.sum_packed_rows(rows, shapes)


class RowsTest(OpTestCase):
    @parameterized.product(mode=MODES, bits=_BITS)
    def test_the_sum_of_workers_is_that_of_the_reference(self, mode, bits):
        _, compile_function = mode
        workers = [_gradients(worker) for worker in range(3)]

        @compile_function
        def total():
            messages = [_pack(g, bits, (worker, 1)) for worker, g in enumerate(workers)]
            return _sum(messages, _SHAPES)

        sums = total()
        packed = [_delivered(g, bits, (worker, 1)) for worker, g in enumerate(workers)]
        for variable, shape in enumerate(_SHAPES):
            indices = np.concatenate([p[variable][0] for p in packed])
            rows = np.concatenate([p[variable][1] for p in packed])
            unique, expected = rows_reference.sum_rows(indices.tolist(), rows)
            self.assertEqual(sums.indices[variable].numpy().tolist(), unique)
            np.testing.assert_array_equal(sums.values[variable], expected.reshape(-1, *shape[1:]))

    @parameterized.parameters(2, 4, 8)
    def test_it_is_unbiased_and_off_by_a_level_at_most(self, bits):
        [(indices, values), _] = gradients = _gradients(0)
        _, exact = rows_reference.sum_rows(indices, values)
        seeds = 300
        total = np.zeros_like(exact)
        level = np.abs(exact).max(axis=1, keepdims=True) * 1.01 / (2 ** (bits - 1) - 1)
        for seed in range(seeds):
            sums = _sum([_pack(gradients, bits, (seed, 0))], _SHAPES)
            self.assertTrue(np.all(np.abs(sums.values[0] - exact) <= level))
            total += sums.values[0]
        # Of one value the deviation is half a level at most.
        self.assertTrue(np.all(np.abs(total / seeds - exact) < 2.5 * level / seeds**0.5))

    def test_a_row_that_is_not_finite_is_nan_and_others_are_not(self):
        values = np.array([[1, 2], [np.inf, 1], [3, np.nan], [4, 4], [3e38, 3e38]], np.float32)
        gradients = [([5, 6, 7, 8, 8], values)]
        sums = _sum([_pack(gradients, shapes=[[9, 2]])], [[9, 2]])
        self.assertEqual(np.isnan(sums.values[0]).all(axis=1).tolist(), [False, True, True, False])
        gradients = [([8, 8], np.full([2, 2], 3e38, np.float32))]  # overflows
        sums = _sum([_pack(gradients, shapes=[[9, 2]])], [[9, 2]])
        self.assertTrue(np.isnan(sums.values[0]).all())

    def test_exact_rows_stay_as_they_are_finite_or_not(self):
        values = np.array([[np.inf, 1], [3, np.nan]], np.float32)
        sums = _sum([_pack([([5, 6], values)], bits=32, shapes=[[9, 2]])], [[9, 2]])
        np.testing.assert_array_equal(sums.values[0], values)

    def test_no_row_one_row_and_tables_of_two_billion(self):
        last = 2**31 - 2
        for indices in ([], [last], [0, last]):
            values = np.ones([len(indices), 1], np.float32)
            message = _pack([(indices, values)], shapes=[[last + 1, 1]])
            sums = _sum([message, message], [[last + 1, 1]])
            self.assertEqual(sums.indices[0].numpy().tolist(), indices)
            self.assertEqual(sums.values[0].numpy().ravel().tolist(), [2.0] * len(indices))

    def test_bytes_are_the_same_on_any_number_of_threads(self):
        values = testing.gaussian((3000, 33))
        indices = np.random.default_rng(0).integers(0, 5000, 3000)

        def pack(values):
            bucket = ops.bucket("threads", 1)
            return ops.pack_rows(
                [tf.constant(indices)], [values], 5, bucket, [[5000, 33]], bits=5, group_size=2
            )

        (one,), (three,) = run_on_threads(1, pack, values), run_on_threads(3, pack, values)
        np.testing.assert_array_equal(one, three)

    def test_the_values_of_rows_that_are_sent_are_counted(self):
        bucket = ops.bucket("counted", 2)
        gradients = [([1, 1, 3], np.ones([3, 5], np.float32)), ([0], np.ones([1, 6], np.float32))]
        _pack(gradients, shapes=[[9, 5], [9, 6]], group_size=4, bucket=bucket)
        traffic = ops.bucket_traffic(bucket)
        self.assertEqual(int(traffic.steps), 1)
        self.assertEqual(traffic.values_sent.numpy().tolist(), [15, 9])

    def test_what_is_wrong_is_named(self):
        row = np.ones([1, 2], np.float32)
        for message, arguments in [
            (r"indices\[0\] must be in 0 ... 8, got 9", {"gradients": [([9], row)]}),
            (r"indices\[0\] must be in 0 ... 8, got -1", {"gradients": [([-1], row)]}),
            (r"indices\[0\].*got 4294967296", {"gradients": [([2**32], row)]}),
            (r"less than 2\^31 rows", {"gradients": [([0], row)], "shapes": [[2**31, 2]]}),
            ("bits must be 2, 3, 4, 5, 8 or 32, got 6", {"gradients": [([0], row)], "bits": 6}),
        ]:
            arguments = {"shapes": [[9, 2]], **arguments}
            self.assert_invalid(message, lambda a=arguments: _pack(**a))

    def test_shapes_that_do_not_fit_are_refused_eagerly_too(self):
        row = np.ones([1, 2], np.float32)
        gradients = [([0], row), ([0], row)]
        for message, shapes in ("one for each of 2", [[9, 2]]), ("must have rows", [[9, 2], []]):
            self.assert_invalid(message, lambda s=shapes: _pack(gradients, shapes=s))
        message = _pack(gradients[:1], shapes=[[9, 2]])
        self.assert_invalid("must have rows", _sum, [message], [[]])

    def test_bytes_that_no_worker_has_sent_are_data_loss(self):
        message = _pack([([1, 4], np.ones([2, 2], np.float32))], bits=8, shapes=[[9, 2]]).numpy()
        head, scales = 5, message.size - 8
        for what, place, value in [
            ("number of rows is 258", 1, 1),
            ("bits of a value are 7", 4, 7),
            ("packed indices of rows", head, 0xFF),
            ("scale of row 1 is -", scales + 3, 0xBF),
            ("code of value 3 is 255", scales + 7, 0xFF),
        ]:
            damaged = message.copy()
            damaged[place] = value
            self.assert_data_loss(
                rf"messages\[1\], variable 0: the {what}",
                _sum,
                [message, damaged],
                [[9, 2]],
            )
        for size in range(message.size):
            with self.assertRaises(tf.errors.DataLossError):
                _sum([message[:size]], [[9, 2]])
        self.assert_data_loss("1 bytes behind", _sum, [np.append(message, message[:1])], [[9, 2]])

    def test_splits_that_are_not_of_the_messages_are_refused(self):
        message = _pack([([1], np.ones([1, 2], np.float32))], shapes=[[9, 2]])
        for splits in ([0, 99], [0, -1, message.shape[0]], [1, message.shape[0]], [0]):
            messages = tf.RaggedTensor.from_row_splits(message, splits, validate=False)
            self.assert_invalid(
                "row_splits must ascend from 0", ops.sum_packed_rows, messages, [[9, 2]]
            )


if __name__ == "__main__":
    absltest.main()
