"""A byte-level Transformer that learns Python from the standard library's own source text.

    python examples/bytes_lm.py
    tf_gc-launch --workers 2 examples/bytes_lm.py --compressor "ThreeLC()"
    tf_gc-launch --workers 4 examples/bytes_lm.py --text manuals --layers 7 --width 256

Reports bits per byte on files that it has not seen. The text differs a little from one version
of Python to the next, and so do the figures. There is more text in the manual pages of Linux, from
Debian's packages manpages and manpages-dev, with which --text manuals trains a larger model.
"""

import gzip
import math
import os
import pathlib
import random
import subprocess

import common
import keras
import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(common)
flags.DEFINE_integer("layers", 2, "Transformer blocks.", lower_bound=1)
flags.DEFINE_integer("width", 128, "Values in a layer, a multiple of 32.", lower_bound=32)
flags.DEFINE_enum("text", "python", ["python", "manuals"], "What to learn.")
flags.DEFINE_float("learning_rate", 2e-3, "The optimizer's, at its highest.")
FLAGS.set_default("optimizer", "adam")
FLAGS.set_default("batch_size", 16)
FLAGS.set_default("epochs", 10)
FLAGS.set_default("steps_per_epoch", 50)

_VOCABULARY = 256
CONTEXT = 128
_HEAD_WIDTH = 32
_TRAINING_BYTES = {"python": 4_000_000, "manuals": 16_000_000}
_MANUALS = ("manpages", "manpages-dev")  # packages of Debian
_HELD_OUT_EVERY = 16  # files
_TEST_WINDOWS = 256
_TEST_BATCH = 64


def load_files() -> tuple[list[bytes], list[bytes]]:
    """Returns the files to learn from, and those that are held out."""
    texts = _manuals() if FLAGS.text == "manuals" else _python()
    held_out = texts[::_HELD_OUT_EVERY]
    del texts[::_HELD_OUT_EVERY]
    return texts, held_out


def load_text() -> tuple[bytes, bytes]:
    """Returns the text to learn from and that of the held-out files."""
    texts, held_out = load_files()
    return b"".join(texts)[: _TRAINING_BYTES[FLAGS.text]], b"".join(held_out)


def _python() -> list[bytes]:
    files = sorted(pathlib.Path(os.__file__).parent.glob("*.py"))
    return [file.read_bytes() for file in files]


def _manuals() -> list[bytes]:
    try:
        listed = subprocess.run(
            ["dpkg", "--listfiles", *_MANUALS], check=True, capture_output=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        packages = " ".join(_MANUALS)
        raise app.UsageError(
            f"--text manuals needs Debian's packages {packages}: apt-get install {packages}"
        ) from error
    # Shuffled, as sections differ, and links to other pages left out.
    pages = {file for file in listed.split() if file.endswith(".gz")}
    files = [pathlib.Path(page) for page in sorted(pages) if not pathlib.Path(page).is_symlink()]
    random.Random(0).shuffle(files)
    return [gzip.decompress(file.read_bytes()) for file in files]


def windows(text: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Cuts a text in windows; returns their bytes, and for each byte the one that follows."""
    count = (len(text) - 1) // CONTEXT
    values = np.frombuffer(text, np.uint8)[: count * CONTEXT + 1].astype("int32")
    return values[:-1].reshape(count, CONTEXT), values[1:].reshape(count, CONTEXT)


class Embedding(keras.layers.Layer):
    """Embeds bytes and their positions.

    A product with one-hot vectors, not a look-up: there are fewer bytes than places in a batch,
    so a dense gradient is smaller than one row for each place.
    """

    def __init__(self, width):
        super().__init__()
        self._width = width

    def build(self, input_shape):
        self.bytes = self.add_weight(shape=(_VOCABULARY, self._width), initializer="normal")
        self.positions = self.add_weight(shape=(CONTEXT, self._width), initializer="normal")

    def call(self, inputs):
        return keras.ops.one_hot(inputs, _VOCABULARY) @ self.bytes + self.positions


def build_model(layers: int, width: int) -> keras.Model:
    """Returns a decoder-only Transformer with normalisation before each part."""
    inputs = keras.Input((CONTEXT,), dtype="int32")
    x = Embedding(width)(inputs)
    for _ in range(layers):
        y = keras.layers.LayerNormalization()(x)
        attention = keras.layers.MultiHeadAttention(width // _HEAD_WIDTH, _HEAD_WIDTH)
        x = keras.layers.Add()([x, attention(y, y, use_causal_mask=True)])
        y = keras.layers.LayerNormalization()(x)
        y = keras.layers.Dense(4 * width, activation="gelu")(y)
        x = keras.layers.Add()([x, keras.layers.Dense(width)(y)])
    x = keras.layers.LayerNormalization()(x)
    return keras.Model(inputs, keras.layers.Dense(_VOCABULARY)(x), name="bytes_lm")


def bits_per_byte(labels, logits):
    """Returns the cross-entropy of each byte in bits."""
    nats = keras.ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    return nats / math.log(2)


def train(cluster: common.Cluster, training: common.Data, held_out: bytes) -> None:
    """Trains the model on windows of text, and measures it on some of `held_out`."""
    inputs, labels = windows(held_out)
    spread = np.linspace(0, len(inputs) - 1, _TEST_WINDOWS).astype(int)
    test = common.test_data(cluster, inputs[spread], labels[spread], _TEST_BATCH)
    with cluster.strategy.scope():
        model = build_model(FLAGS.layers, FLAGS.width)
        model.compile(
            optimizer=common.make_optimizer(FLAGS.learning_rate, training.steps),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[bits_per_byte],
        )
    common.train(cluster, model, training, test, metric="bits_per_byte")


def check_arguments(argv: list[str]) -> None:
    """Raises UsageError where an argument is no flag, or --width is not what the model takes."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    if FLAGS.width % _HEAD_WIDTH:
        raise app.UsageError(f"--width must be a multiple of {_HEAD_WIDTH}, got {FLAGS.width}")


def main(argv):
    check_arguments(argv)
    cluster = common.Cluster()
    text, held_out = load_text()
    train(cluster, common.training_data(cluster, *windows(text)), held_out)


if __name__ == "__main__":
    app.run(main)
