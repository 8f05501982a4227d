"""A byte-level Transformer that learns Python from the standard library's own source text.

    python examples/bytes_lm.py
    tf_gc-launch --workers 2 examples/bytes_lm.py --compressor "ThreeLC()"

Reports bits per byte on files that it has not seen. The text differs a little from one version
of Python to the next, and so do the figures.
"""

import math
import os
import pathlib

import common
import keras
import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_integer("layers", 2, "Transformer blocks.", lower_bound=1)
flags.DEFINE_float("learning_rate", 2e-3, "Adam's, at its highest.")
FLAGS.set_default("batch_size", 16)
FLAGS.set_default("epochs", 10)
FLAGS.set_default("steps_per_epoch", 50)

_VOCABULARY = 256
_CONTEXT = 128
_WIDTH = 128
_HEADS = 4
_TRAINING_BYTES = 4_000_000
_HELD_OUT_EVERY = 16  # files
_TEST_WINDOWS = 256
_TEST_BATCH = 64


def load_text() -> tuple[bytes, bytes]:
    """Returns the text to learn from and that of the held-out files."""
    files = sorted(pathlib.Path(os.__file__).parent.glob("*.py"))
    held_out = files[::_HELD_OUT_EVERY]
    training = b"".join(file.read_bytes() for file in files if file not in held_out)
    return training[:_TRAINING_BYTES], b"".join(file.read_bytes() for file in held_out)


def windows(text: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Cuts a text in windows; returns their bytes, and for each byte the one that follows."""
    count = (len(text) - 1) // _CONTEXT
    values = np.frombuffer(text, np.uint8)[: count * _CONTEXT + 1].astype("int32")
    return values[:-1].reshape(count, _CONTEXT), values[1:].reshape(count, _CONTEXT)


class Embedding(keras.layers.Layer):
    """Embeds bytes and their positions.

    A product with one-hot vectors, not a look-up: there are fewer bytes than places in a batch,
    so a dense gradient is smaller than one row for each place.
    """

    def build(self, input_shape):
        self.bytes = self.add_weight(shape=(_VOCABULARY, _WIDTH), initializer="normal")
        self.positions = self.add_weight(shape=(_CONTEXT, _WIDTH), initializer="normal")

    def call(self, inputs):
        return keras.ops.one_hot(inputs, _VOCABULARY) @ self.bytes + self.positions


def build_model(layers: int) -> keras.Model:
    """Returns a decoder-only Transformer with normalisation before each part."""
    inputs = keras.Input((_CONTEXT,), dtype="int32")
    x = Embedding()(inputs)
    for _ in range(layers):
        y = keras.layers.LayerNormalization()(x)
        attention = keras.layers.MultiHeadAttention(_HEADS, _WIDTH // _HEADS)
        x = keras.layers.Add()([x, attention(y, y, use_causal_mask=True)])
        y = keras.layers.LayerNormalization()(x)
        y = keras.layers.Dense(4 * _WIDTH, activation="gelu")(y)
        x = keras.layers.Add()([x, keras.layers.Dense(_WIDTH)(y)])
    x = keras.layers.LayerNormalization()(x)
    return keras.Model(inputs, keras.layers.Dense(_VOCABULARY)(x), name="bytes_lm")


def bits_per_byte(labels, logits):
    """Returns the cross-entropy of each byte in bits."""
    nats = keras.ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    return nats / math.log(2)


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    cluster = common.Cluster()
    training_text, test_text = load_text()
    training = common.training_data(cluster, *windows(training_text))
    inputs, labels = windows(test_text)
    spread = np.linspace(0, len(inputs) - 1, _TEST_WINDOWS).astype(int)
    test = common.test_data(cluster, inputs[spread], labels[spread], _TEST_BATCH)
    with cluster.strategy.scope():
        model = build_model(FLAGS.layers)
        model.compile(
            optimizer=keras.optimizers.Adam(
                common.warm_up_and_decay(FLAGS.learning_rate, training.steps)
            ),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[bits_per_byte],
        )
    common.train(cluster, model, training, test, metric="bits_per_byte")


if __name__ == "__main__":
    app.run(main)
