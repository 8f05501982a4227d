"""Text in shards, as it lies at the far end of a link: written there, fetched and read by workers.

A folder holds, of N shards and of the held-out files, one file in each format, and `index.json`:

    text-0-of-N.parquet   tensorflow-io reads it, on TensorFlow 2.17
    text-0-of-N.tfrecord  tf.data reads it, on all
"""

import concurrent.futures
import contextlib
import json
import pathlib
import shutil
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

HELD_OUT = "held_out"
_COMPRESSION = "GZIP"  # of both formats, so that they differ in nothing but the format
_TIMEOUT = 60.0  # of a server that sends nothing


class FetchError(RuntimeError):
    """A file cannot be fetched; the message says which."""


class Index(NamedTuple):
    """What there is in a folder."""

    shards: list[str]  # names, without a format's suffix
    suffixes: list[str]  # of the formats
    text_bytes: int  # of all shards


class Format(NamedTuple):
    """How workers read shards.

    Attributes:
      suffix: of the files.
      title: the format and who reads it, to tell people.
      read: function of a path, a string tensor, that returns a data set of files of text, scalar
        strings.
    """

    suffix: str
    title: str
    read: Callable[[tf.Tensor], tf.data.Dataset]


def write(
    folder: pathlib.Path, files: Sequence[bytes], held_out: Sequence[bytes], shards: int
) -> Index:
    """Fills a folder with texts in so many shards, as TFRecords and, with pyarrow, as Parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {f"text-{i}-of-{shards}": files[i::shards] for i in range(shards)}
    writers = _writers()
    for name, part in {**texts, HELD_OUT: held_out}.items():
        for suffix, write_file in writers.items():
            write_file(str(folder / (name + suffix)), part)
    index = Index(list(texts), list(writers), sum(map(len, files)))
    (folder / "index.json").write_text(json.dumps(index._asdict()), encoding="utf-8")
    return index


def _writers():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return {".tfrecord": _write_tfrecords}

    def write_parquet(path, texts):
        table = pyarrow.table({"text": pyarrow.array(texts, pyarrow.binary())})
        pyarrow.parquet.write_table(table, path, compression=_COMPRESSION)

    return {".tfrecord": _write_tfrecords, ".parquet": write_parquet}


def _write_tfrecords(path, texts):
    with tf.io.TFRecordWriter(path, _COMPRESSION) as writer:
        for text in texts:
            writer.write(text)


def choose_format(suffixes: Sequence[str]) -> Format:
    """Returns Parquet where tensorflow-io works and this is one of the formats; else TFRecords."""
    try:
        read_parquet = _parquet_reader()
    except ImportError:
        reason = "tensorflow-io is not installed (docs/installing.md)"
    except NotImplementedError:
        reason = f"tensorflow-io has no code for TensorFlow {tf.__version__}"
    else:
        if ".parquet" in suffixes:
            return Format(".parquet", "Parquet by tensorflow-io", read_parquet)
        reason = "the far end has no Parquet (which pyarrow writes)"
    return Format(".tfrecord", f"TFRecords by tf.data, as {reason}", _read_tfrecords)


def _parquet_reader():
    """Raises NotImplementedError where tensorflow-io cannot load its code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it cannot load
        import tensorflow_io
        from tensorflow_io.python.ops import core_ops
    hasattr(core_ops, "io_parquet_readable_info")  # which loads it

    def read(path):
        columns = {"text": tf.TensorSpec([], tf.string)}
        return tensorflow_io.IODataset.from_parquet(path, columns).map(lambda row: row["text"])

    return read


def _read_tfrecords(path):
    return tf.data.TFRecordDataset(path, _COMPRESSION)


def fetch_index(url: str) -> Index:
    """Returns what the folder at a URL holds.

    Raises:
      FetchError: it is not there, or no such folder.
    """
    with _opened(f"{url}/index.json") as response:
        return Index(**json.load(response))


@contextlib.contextmanager
def _opened(url):
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
            yield response
    except OSError as error:
        raise FetchError(f"{url}: {error}: is the server up, and the file there?") from error


class Fetcher:
    """Fetches files in the background, each once and in the order of `begin`, to a folder.

    So a link carries the bytes of a file once, however often it is read. (tensorflow-io can open a
    URL as a file, but gets all of it twice before it reads, to know its length.)

    A context manager; at its end the files are removed.

    Attributes:
      seconds: after how many each file had come, by name.
      bytes: of these files.
    """

    def __init__(self, url: str, suffix: str):
        self._url = url
        self._suffix = suffix
        self._files: dict[str, concurrent.futures.Future] = {}
        self.seconds: dict[str, float] = {}
        self.bytes = 0

    def __enter__(self) -> "Fetcher":
        self._begin = time.monotonic()
        with contextlib.ExitStack() as cleanup:
            self._folder = cleanup.enter_context(tempfile.TemporaryDirectory())
            self._executor = concurrent.futures.ThreadPoolExecutor(1)
            cleanup.callback(self._executor.shutdown, cancel_futures=True)
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *exc_info) -> None:
        self._cleanup.close()

    def begin(self, names: Sequence[str]) -> None:
        """Has the files of these names fetched, after those that it was told of before."""
        for name in names:
            self._files[name] = self._executor.submit(self._fetch, name)

    def path(self, name: str) -> str:
        """Returns where a file lies, once it has come.

        Raises:
          FetchError: the server does not have it, or does not answer.
        """
        return self._files[name].result()

    def _fetch(self, name):
        path = pathlib.Path(self._folder, name + self._suffix)
        with _opened(f"{self._url}/{path.name}") as response, path.open("wb") as file:
            shutil.copyfileobj(response, file)
        self.bytes += path.stat().st_size
        self.seconds[name] = time.monotonic() - self._begin
        return str(path)
