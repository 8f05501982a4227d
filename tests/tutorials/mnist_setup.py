"""What the tutorials share: data and a small convolutional network."""

import gzip
import os

import numpy as np
import tensorflow as tf

DATA = "/usr/share/datasets/fashion-mnist"  # of Debian's dataset-fashion-mnist
# Of the IDX format, before the values.
_HEADERS = {"images-idx3": 16, "labels-idx1": 8}


def load(part):
    """Returns images, float32 [n, 28, 28] in [0, 1], and labels, int64 [n]."""
    images, labels = (
        np.frombuffer(_read(f"{part}-{kind}-ubyte.gz"), np.uint8, offset=header)
        for kind, header in _HEADERS.items()
    )
    return images.reshape(-1, 28, 28) / np.float32(255), labels.astype(np.int64)


def _read(name):
    with gzip.open(os.path.join(DATA, name)) as file:
        return file.read()


def mnist_dataset(batch_size):
    examples = tf.data.Dataset.from_tensor_slices(load("train"))
    return examples.shuffle(60000, seed=0).repeat().batch(batch_size)


def dataset_fn(global_batch_size, input_context):
    batch_size = input_context.get_per_replica_batch_size(global_batch_size)
    dataset = mnist_dataset(batch_size)
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.prefetch(2)


def build_cnn_model():
    return tf.keras.Sequential(
        [
            tf.keras.Input(shape=(28, 28)),
            tf.keras.layers.Reshape(target_shape=(28, 28, 1)),
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


def build_and_compile_cnn_model():
    model = build_cnn_model()
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.SGD(learning_rate=0.001),
        metrics=["accuracy"],
    )
    return model
