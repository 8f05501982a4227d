"""examples/shards.py and examples/streaming.py: what is fetched and read, in one process."""

import functools
import http.server
import itertools
import pathlib
import sys
import threading

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

_EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
sys.path.append(str(_EXAMPLES))

import bytes_lm  # noqa: E402
import shards  # noqa: E402
import streaming  # noqa: E402

_FILES = [b"", b"one", b"\0two\xff", *(b"%d " % i * i for i in range(400))]


class _Handler(http.server.SimpleHTTPRequestHandler):
    requests = []  # noqa: RUF012  # what was asked for, by all

    def log_request(self, code="-", size="-"):
        self.requests.append(self.path)

    def log_error(self, *arguments):
        pass


class ShardsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path, "made", "by write")
        handler = functools.partial(_Handler, directory=self.folder)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}"

    def _formats(self):
        """The one that is chosen here, and TFRecords."""
        index = shards.fetch_index(self.url)
        return shards.choose_format(index.suffixes), shards.choose_format([".tfrecord"])

    def test_all_shards_together_are_the_text(self):
        shards.write(self.folder, _FILES, [b"held", b"out"], 3)
        index = shards.fetch_index(self.url)
        self.assertEqual(index.text_bytes, sum(map(len, _FILES)))
        for format_ in self._formats():
            with shards.Fetcher(self.url, format_.suffix) as fetcher:
                fetcher.begin([*index.shards, shards.HELD_OUT])
                parts = {
                    name: list(format_.read(tf.constant(fetcher.path(name))).as_numpy_iterator())
                    for name in (*index.shards, shards.HELD_OUT)
                }
            self.assertEqual(parts.pop(shards.HELD_OUT), [b"held", b"out"])
            self.assertCountEqual(itertools.chain.from_iterable(parts.values()), _FILES)

    def test_a_file_is_fetched_once_for_many_passes(self):
        shards.write(self.folder, _FILES, [], 2)
        [shard, _] = shards.fetch_index(self.url).shards
        format_, _ = self._formats()
        _Handler.requests.clear()
        with shards.Fetcher(self.url, format_.suffix) as fetcher:
            fetcher.begin([shard])
            batches = streaming.read([shard], fetcher, format_)
            windows = sum(max(len(file) - 1, 0) // bytes_lm.CONTEXT for file in _FILES[::2])
            for inputs, labels in batches.take(3 * windows // streaming.FLAGS.batch_size):
                np.testing.assert_array_equal(inputs[:, 1:], labels[:, :-1])
            size = (self.folder / f"{shard}{format_.suffix}").stat().st_size
            self.assertEqual((fetcher.bytes, [*fetcher.seconds]), (size, [shard]))
        self.assertEqual(_Handler.requests, [f"/{shard}{format_.suffix}"])

    def test_a_missing_file_is_named(self):
        with shards.Fetcher(self.url, ".tfrecord") as fetcher:
            fetcher.begin(["text-9-of-8"])
            with self.assertRaisesRegex(shards.FetchError, r"text-9-of-8\.tfrecord: .*404"):
                fetcher.path("text-9-of-8")

    @parameterized.parameters(
        (ImportError, [".tfrecord", ".parquet"], "not installed"),
        (NotImplementedError, [".tfrecord", ".parquet"], f"for TensorFlow {tf.__version__}"),
        (None, [".tfrecord"], "the far end has no Parquet"),
    )
    def test_the_reason_for_tfrecords_is_told(self, error, suffixes, reason):
        with absltest.mock.patch.object(shards, "_parquet_reader", side_effect=error):
            format_ = shards.choose_format(suffixes)
        self.assertEqual(format_.suffix, ".tfrecord")
        self.assertIn(reason, format_.title)

    @parameterized.parameters(0, 1, 128, 129, 256, 257, 1000)
    def test_windows_are_those_of_bytes_lm(self, size):
        text = bytes(np.random.default_rng(0).integers(0, 256, size, np.uint8))
        read = list(streaming.windows(tf.constant(text)).as_numpy_iterator())
        expected = list(zip(*bytes_lm.windows(text), strict=True)) if size else []
        np.testing.assert_equal(read, expected)


if __name__ == "__main__":
    absltest.main()
