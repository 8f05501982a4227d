"""What compressors decode that all workers gather, or one broadcasts: an error or the sum.

The examples given explicitly are the corpus: each has shown a fault, or leads to
a branch of its own.
"""

import dataclasses
import functools
import os

import hypothesis
import numpy as np
import tensorflow as tf
from absl.testing import absltest
from hypothesis import strategies as st

import tf_gc
from tests import testing
from tf_gc import ops
from tf_gc.compressors import sparse
from tf_gc.exchange import Exchange

# The same ones each time: with AddressSanitizer, and in `make test-long`, there are more.
testing.set_up_hypothesis(max_examples=int(os.environ.get("TF_GC_FUZZ_EXAMPLES", 30)))

_WORKERS = 3
_SIZE = 13


@dataclasses.dataclass(frozen=True)
class _Received(Exchange):
    """An exchange in which the other workers have sent these messages."""

    others: tuple[tf.Tensor, ...] = ()
    sent: list[tf.Tensor] = dataclasses.field(default_factory=list)

    def broadcast(self, values, root):
        del values, root
        return self.others[0]

    def _all_gather_bytes(self, data, max_bytes=None):
        del max_bytes
        self.sent.append(data)
        messages = [data, *self.others]
        return tf.concat(messages, 0), tf.stack([tf.size(m, tf.int64) for m in messages])


def _exchange(others, shapes, bucket=None):
    return _Received(
        bucket=bucket,
        group_key=0,
        workers=_WORKERS,
        rank=0,
        reduce_op="SUM",
        timeout_seconds=0,
        step=tf.constant(0, tf.int64),
        names=("a", "b")[: len(shapes)],
        shapes=shapes,
        slots={},
        others=others,
    )


@functools.cache
def _reduce(compressor):
    """A function of the others' messages that returns the sum, and what this worker sends."""

    def reduce(*others):
        exchange = _exchange(others, shapes=((4, 2), (5,)))
        total, _ = compressor.reduce(tf.constant(testing.gaussian(_SIZE)), exchange)
        return total, exchange.sent[0]

    def reduce_rows(*others):
        exchange = _exchange(others, shapes=(_TABLE,), bucket=bucket)
        slices = tf.IndexedSlices(tf.constant(testing.gaussian((2, 3))), tf.constant([4, 1]))
        [total] = compressor.all_reduce([slices], exchange)
        return tf.convert_to_tensor(total), exchange.sent[0]

    is_of_rows = isinstance(compressor, tf_gc.EmbeddingRows)
    bucket = ops.bucket("gathered_fuzz_test", 1)
    spec = tf.TensorSpec([None], tf.uint8)
    function = reduce_rows if is_of_rows else reduce
    return tf.function(function, input_signature=[spec] * (_WORKERS - 1))


@tf.function(input_signature=[tf.TensorSpec([None], tf.uint8)])
def _broadcast_indices(message):
    """The 3 indices that the worker 2 sends with this message."""
    exchange = _exchange((message,), shapes=((_SIZE,),))
    root = tf.constant(2, tf.int64)
    return sparse.broadcast_indices(lambda: tf.range(3), 3, _SIZE, root, exchange)


def _unpack(packed, bits, size):
    """The numbers of so many bits, lowest bits first; None if the padding is not 0."""
    unpacked = np.unpackbits(packed, bitorder="little")
    if unpacked[size * bits :].any():
        return None
    return unpacked[: size * bits].reshape(size, bits) @ (1 << np.arange(bits))


def _decode_qsgd(message):
    """A worker's share by `_QSGD`, or None if it cannot be its message."""
    if message.size != 8 + 7:
        return None
    norms, indices = message[:8].view(np.float32), _unpack(message[8:], 4, _SIZE)
    if not np.all(norms >= 0) or indices is None or indices.max() > 10:
        return None
    table = (np.arange(-5, 6) / 5).astype(np.float32)
    with np.errstate(invalid="ignore"):  # infinity times 0
        return np.repeat(norms, 8)[:_SIZE] * table[indices]


def _decode_sampled_top_k(message):
    """The same of SampledTopK."""
    selected = _unpack(message[:2], 1, _SIZE) if message.size >= 2 else None
    if selected is None or message.size != 2 + 4 * selected.sum():
        return None
    share = np.zeros(_SIZE, np.float32)
    share[selected.ravel() == 1] = message[2:].view(np.float32)
    return share


def _decode_top_k(message):
    """The same of TopK, for so few values that indices are a bitmap."""
    if message.size != 2 + 4 * 3:
        return None
    return _decode_sampled_top_k(message)


def _decode_rows(message):
    """The same of EmbeddingRows, for a table of so few rows that indices are a bitmap."""
    if message.size < 5:
        return None
    rows, length = _TABLE
    count, bits = int(message[:4].view("<u4")[0]), int(message[4])
    indices = _unpack(message[5:6], 1, rows) if count > 0 and message.size > 5 else np.zeros(0)
    if bits not in (2, 3, 4, 5, 8, 32) or indices is None or indices.sum() != count:
        return None
    scales = message[5 + bool(count) :][: 0 if bits == 32 else 2 * count]
    codes = message[5 + bool(count) + scales.size :]
    if (bits < 32 and scales.size != 2 * count) or codes.size != -(-count * length * bits // 8):
        return None
    share = np.zeros(_TABLE, np.float32)
    if bits == 32:
        share[indices.ravel() == 1] = codes.view("<f4").reshape(-1, length)
    elif count:
        scales = (scales.view("<u2").astype("<u4") << 16).view("<f4")
        codes = _unpack(codes, bits, count * length)
        s = 2 ** (bits - 1) - 1
        if codes is None or codes.max() > 2 * s or not np.all(~(scales < 0) & ~np.isinf(scales)):
            return None
        levels = (codes.reshape(-1, length) - s).astype(np.float32) / np.float32(s)
        share[indices.ravel() == 1] = scales[:, np.newaxis] * levels
    return share


def _message(floats, codes, codes_first=False):
    parts = [np.array(floats, "<f4").tobytes(), bytes(codes)]
    return b"".join(reversed(parts) if codes_first else parts)


_QSGD = tf_gc.QSGD(levels=5, block=8)
_CODES = bytes.fromhex("10325476980a05")
_QSGD_MESSAGE = _message([1, 2], _CODES)

_SAMPLED_TOP_K = tf_gc.SampledTopK()
_SAMPLED_MESSAGE = _message([1, -2, 3], [0b101, 0b10000], codes_first=True)

_TOP_K = tf_gc.TopK(ratio=0.25)  # 3 of 13 values


_TABLE = (6, 3)
_ROWS = tf_gc.EmbeddingRows(bits=4)
# Rows 0 and 4, with the scales 1 and 2.
_ROWS_HEAD = bytes([2, 0, 0, 0, 4, 0b010001])
_ROWS_MESSAGE = _ROWS_HEAD + bytes.fromhex("803f 0040 7e00ad")


@st.composite
def _received(draw, valid):
    """A message of each other worker: a valid one, damaged in some ways, or any bytes."""
    messages = []
    for _ in range(_WORKERS - 1):
        message = bytearray(draw(st.just(valid) | st.binary(max_size=40)))
        for _ in range(draw(st.integers(0, 2)) if message else 0):
            message[draw(st.integers(0, len(message) - 1))] = draw(st.integers(0, 255))
        end = draw(st.just(len(message)) | st.integers(0, len(message)))
        messages.append(bytes(message[:end]) + draw(st.just(b"") | st.binary(max_size=9)))
    return messages


def _corpus(*inputs):
    """Examples that are always tried, before any others."""
    return lambda test: functools.reduce(lambda t, i: hypothesis.example(i)(t), inputs, test)


class GatheredFuzzTest(absltest.TestCase):
    def _check(self, compressor, decode, messages, fields):
        arrays = [np.frombuffer(message, np.uint8).copy() for message in messages]
        shares = [decode(array) for array in arrays]
        try:
            total, own = _reduce(compressor)(*map(tf.constant, arrays))
        except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
            self.assertTrue(any(share is None for share in shares), error)
            lines = error.message.splitlines()
            what = [line for line in lines if not line.startswith("  File")]
            self.assertRegex("\n".join(what), fields)
            return
        self.assertFalse(any(share is None for share in shares))
        expected = decode(own.numpy())
        for share in shares:
            expected += share
        np.testing.assert_array_equal(total, expected)

    @hypothesis.given(_received(_QSGD_MESSAGE))
    @_corpus(
        [_QSGD_MESSAGE, _QSGD_MESSAGE],
        [_QSGD_MESSAGE + b"\0", _QSGD_MESSAGE[:-1]],  # together of the right size
        [_QSGD_MESSAGE, b""],
        [_message([-1, 2], _CODES), _QSGD_MESSAGE],
        [_message([1, np.nan], _CODES), _QSGD_MESSAGE],
        [_message([1, np.inf], _CODES), _QSGD_MESSAGE],
        [_QSGD_MESSAGE, _message([1, 2], b"\x1b" + _CODES[1:])],  # the index 11 of 11
        [_QSGD_MESSAGE, _message([1, 2], _CODES[:-1] + b"\x15")],  # the padding
    )
    def test_qsgd(self, messages):
        self._check(_QSGD, _decode_qsgd, messages, "sizes|scales|packed|indices")

    def test_an_error_tells_the_sizes_of_all_ranks(self):
        messages = [_QSGD_MESSAGE + b"\0", _QSGD_MESSAGE[:-1]]
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"sizes: .*\[15 16 14\]"):
            _reduce(_QSGD)(*(tf.constant(list(message), tf.uint8) for message in messages))

    @hypothesis.given(_received(_SAMPLED_MESSAGE))
    @_corpus(
        [_SAMPLED_MESSAGE, _SAMPLED_MESSAGE],
        [b"\0\0", _SAMPLED_MESSAGE],  # nothing
        [_SAMPLED_MESSAGE, b""],
        [_SAMPLED_MESSAGE[:1], _SAMPLED_MESSAGE],
        [_SAMPLED_MESSAGE[:-1], _SAMPLED_MESSAGE],
        [_SAMPLED_MESSAGE[:-4], _SAMPLED_MESSAGE],
        [_SAMPLED_MESSAGE + b"\0\0\0\0", _SAMPLED_MESSAGE],
        [b"\0\0\0\0\0\0", _SAMPLED_MESSAGE],  # a value, and no bit
        [_message([1], [1, 0b100000], codes_first=True), _SAMPLED_MESSAGE],  # the padding
    )
    def test_sampled_top_k(self, messages):
        self._check(_SAMPLED_TOP_K, _decode_sampled_top_k, messages, "packed|values")

    @hypothesis.given(_received(_SAMPLED_MESSAGE))
    @_corpus(
        [_SAMPLED_MESSAGE, _SAMPLED_MESSAGE],
        [_SAMPLED_MESSAGE, b""],
        [_SAMPLED_MESSAGE + b"\0", _SAMPLED_MESSAGE[:-1]],  # together of the right size
        [_SAMPLED_MESSAGE, b"\1" + _SAMPLED_MESSAGE[1:]],  # fewer indices
        [b"\7" + _SAMPLED_MESSAGE[1:], _SAMPLED_MESSAGE],  # more
        [_message([1, 2, 3], [0b101, 0b100000], codes_first=True), _SAMPLED_MESSAGE],  # the padding
        [_message([1, np.nan, np.inf], [0b101, 0b10000], codes_first=True), _SAMPLED_MESSAGE],
    )
    def test_top_k(self, messages):
        self._check(_TOP_K, _decode_top_k, messages, "sizes|from rank [12]: packed")

    @hypothesis.given(_received(_SAMPLED_MESSAGE[:2]))
    @_corpus([b"\x05\x10"], [b"\x05"], [b"\x01\x10"], [b"\x07\x10"], [b"\x05\x20"])
    def test_broadcast_indices(self, messages):
        message = np.frombuffer(messages[0], np.uint8)
        selected = _unpack(message, 1, _SIZE) if message.size == 2 else None
        is_valid = selected is not None and selected.sum() == 3
        try:
            indices = _broadcast_indices(tf.constant(list(messages[0]), tf.uint8))
        except tf.errors.DataLossError as error:
            self.assertFalse(is_valid, error)
            self.assertIn("from rank 2: packed", error.message)
            return
        self.assertTrue(is_valid)
        np.testing.assert_array_equal(indices, np.flatnonzero(selected))

    @hypothesis.given(_received(_ROWS_MESSAGE))
    @_corpus(
        [_ROWS_MESSAGE, _ROWS_MESSAGE],
        [_ROWS_MESSAGE, b""],
        [_ROWS_MESSAGE[:-1], _ROWS_MESSAGE],
        [_ROWS_MESSAGE + b"\0", _ROWS_MESSAGE],
        [bytes([0, 0, 0, 0, 8]), _ROWS_MESSAGE],  # no row
        [bytes([1, 0, 0, 0, 32, 2]) + bytes(12), _ROWS_MESSAGE],  # exact
        [bytes([1, 0, 0, 0, 7, 2]) + bytes(12), _ROWS_MESSAGE],  # the bits
        [bytes([7, 0, 0, 0, 2]) + bytes(30), _ROWS_MESSAGE],  # more rows than there are
        [_ROWS_MESSAGE, _ROWS_HEAD[:-1] + b"\x91" + _ROWS_MESSAGE[6:]],  # the bitmap's padding
        [_ROWS_MESSAGE, _ROWS_HEAD + bytes.fromhex("80bf 0040 7e00ad")],  # a scale of -1
        [_ROWS_MESSAGE, _ROWS_HEAD + bytes.fromhex("c07f 0040 7e00ad")],  # NaN
        [_ROWS_MESSAGE, _ROWS_HEAD + bytes.fromhex("807f 0040 7e00ad")],  # infinite
        [_ROWS_MESSAGE, _ROWS_HEAD + bytes.fromhex("803f 0040 7f00ad")],  # the code 15 of 14
    )
    def test_embedding_rows(self, messages):
        fields = "rows|bits|indices|scale|code|bytes"
        self._check(_ROWS, _decode_rows, messages, fields)


if __name__ == "__main__":
    absltest.main()
