"""The Transformer of bytes_lm.py, on workers whose text lies at the far end of slow links.

    sudo python examples/streaming.py
    sudo python examples/streaming.py --workers 4 --bandwidth 2mbit --compressor "THC()"
    tf_gc-launch --hosts machine1,machine2 examples/streaming.py --data http://far.away/text

Each worker fetches its share of the shards in the background, and trains from the first one on.
On TensorFlow 2.17, with tf-gc[io], the shards are Parquet, which tensorflow-io reads; elsewhere
they are TFRecords, which tf.data reads. Without --data, it is the far end itself: it writes the
shards, serves them, and starts the workers, with root behind links of --bandwidth.
docs/streaming.md has more.
"""

import pathlib
import sys
import tempfile

import bytes_lm
import common
import far_end
import shards
import tensorflow as tf
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_string("data", None, "URL of a folder of shards. Default: makes one, and workers.")
flags.DEFINE_integer("workers", 2, "Without --data: how many.", lower_bound=2)
flags.DEFINE_integer("shards", 8, "Without --data: files to write of the text.", lower_bound=1)
flags.DEFINE_string("bandwidth", "10mbit", "Without --data: limit of each worker's link.")
FLAGS.set_default("epochs", 1)
FLAGS.set_default("steps_per_epoch", None)

_SHUFFLED = 4096  # windows


def windows(text: tf.Tensor) -> tf.data.Dataset:
    """Returns what `bytes_lm.windows` returns of one file: its windows, and the bytes that follow.

    Args:
      text: a scalar string.
    """
    values = tf.cast(tf.io.decode_raw(text, tf.uint8), tf.int32)
    count = (tf.size(values) - 1) // bytes_lm.CONTEXT
    values = values[: count * bytes_lm.CONTEXT + 1]
    shape = (-1, bytes_lm.CONTEXT)
    return tf.data.Dataset.from_tensor_slices(
        (tf.reshape(values[:-1], shape), tf.reshape(values[1:], shape))
    )


def read(names: list[str], fetcher: shards.Fetcher, format_: shards.Format) -> tf.data.Dataset:
    """Returns endless batches of the windows of these shards, as they come."""

    def wait(name):
        return fetcher.path(name.decode()).encode()

    def read_shard(name):
        path = tf.numpy_function(wait, [name], tf.string)
        return format_.read(tf.ensure_shape(path, []))

    return (
        tf.data.Dataset.from_tensor_slices(names)
        .repeat()
        .flat_map(read_shard)
        .flat_map(windows)
        .shuffle(_SHUFFLED, seed=FLAGS.seed)
        .batch(FLAGS.batch_size, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def train() -> None:
    """Trains as one worker of several."""
    cluster = common.Cluster()
    if cluster.has_servers:
        raise app.UsageError("each worker reads by itself: leave out parameter servers")
    index = shards.fetch_index(FLAGS.data)
    format_ = shards.choose_format(index.suffixes)
    print(f"reads {format_.title}")
    if len(index.shards) < cluster.workers:
        raise app.UsageError(
            f"--data has {len(index.shards)} shards for {cluster.workers} workers: write more"
        )
    with shards.Fetcher(FLAGS.data, format_.suffix) as fetcher:
        fetcher.begin([shards.HELD_OUT])

        def make_dataset(context: tf.distribute.InputContext):
            share = index.shards[context.input_pipeline_id :: context.num_input_pipelines]
            fetcher.begin(share)
            return read(share, fetcher, format_)

        dataset = cluster.strategy.distribute_datasets_from_function(make_dataset)
        steps = index.text_bytes // bytes_lm.CONTEXT // cluster.batch_size
        held_out = format_.read(tf.constant(fetcher.path(shards.HELD_OUT)))
        bytes_lm.train(
            cluster,
            common.Data(dataset, FLAGS.steps_per_epoch or steps),
            b"".join(held_out.as_numpy_iterator()),
        )
        arrivals = (f"{name} after {seconds:.1f} s" for name, seconds in fetcher.seconds.items())
        print(f"fetched {fetcher.bytes / 1e6:.2f} MB: {', '.join(arrivals)}")


def main(argv):
    bytes_lm.check_arguments(argv)
    if FLAGS.data:
        train()
        return 0
    with tempfile.TemporaryDirectory() as folder:
        shards.write(pathlib.Path(folder), *bytes_lm.load_files(), FLAGS.shards)
        command = (sys.executable, "-u", *sys.argv)
        return far_end.train(command, folder, FLAGS.workers, FLAGS.bandwidth)


if __name__ == "__main__":
    app.run(main)
