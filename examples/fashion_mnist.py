"""Fashion-MNIST (10 kinds of clothes, 28x28 pixels) with a convolutional network.

    apt-get install dataset-fashion-mnist
    python examples/fashion_mnist.py
    tf_gc-launch --workers 4 examples/fashion_mnist.py --optimizer adam --learning_rate 0.001

The images are those of Debian's package; nothing is downloaded.
"""

import gzip
import pathlib

import common
import keras
import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(common)
flags.DEFINE_float(
    "learning_rate", 0.02, "For a total batch of 128; in proportion for other sizes."
)
flags.DEFINE_string(
    "data", "/usr/share/datasets/fashion-mnist", "Directory of the package's files."
)
FLAGS.set_default("epochs", 4)

_TEST_BATCH = 500
# Of the IDX format, before the values: of files of labels, and of images.
_LABELS_HEADER = 8
_IMAGES_HEADER = 16


def load(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the images, float32 [n, 28, 28, 1] in [0, 1], and labels, [n, 10], of a part."""
    images = _read(f"{part}-images-idx3-ubyte.gz", _IMAGES_HEADER).reshape(-1, 28, 28, 1)
    labels = _read(f"{part}-labels-idx1-ubyte.gz", _LABELS_HEADER)
    return (images / 255).astype("float32"), keras.utils.to_categorical(labels)


def _read(name, header):
    path = pathlib.Path(FLAGS.data, name)
    if not path.exists():
        raise app.UsageError(f"no {path}: apt-get install dataset-fashion-mnist, or pass --data")
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header)


def build_model() -> keras.Model:
    """Returns two convolutions and two dense layers, about 430 000 weights."""
    inputs = keras.Input((28, 28, 1))
    x = keras.layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(inputs)
    x = keras.layers.Conv2D(64, 3, strides=2, padding="same", activation="relu")(x)
    x = keras.layers.LayerNormalization()(keras.layers.Flatten()(x))
    x = keras.layers.Dense(128, activation="relu")(x)
    return keras.Model(inputs, keras.layers.Dense(10)(x), name="fashion_mnist")


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    cluster = common.Cluster()
    training = common.training_data(cluster, *load("train"))
    test = common.test_data(cluster, *load("t10k"), _TEST_BATCH)
    with cluster.strategy.scope():
        model = build_model()
        model.compile(
            optimizer=common.make_optimizer(
                FLAGS.learning_rate * cluster.batch_size / 128, training.steps
            ),
            loss=keras.losses.CategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    common.train(cluster, model, training, test, metric="accuracy")


if __name__ == "__main__":
    app.run(main)
