"""A small training that runs on whatever cluster it finds itself in; docs/clusters starts it.

    python examples/clusters/train.py
    tf_gc-launch --workers 2 examples/clusters/train.py

With TF_CONFIG it is a worker of that cluster. Handwritten digits (scikit-learn's), a network with
one hidden layer, 3LC.
"""

import keras
import sklearn.datasets
import tensorflow as tf

import tf_gc

BATCH_SIZE = 64  # of all workers together


def train(
    cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver | None = None, epochs: int = 5
) -> float:
    """Trains on the cluster of the resolver, by default TF_CONFIG's; returns the last accuracy."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(cluster_resolver, compression=tf_gc.ThreeLC())
    keras.utils.set_random_seed(0)
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    dataset = (
        tf.data.Dataset.from_tensor_slices(((images / 16).astype("float32"), labels))
        .shuffle(len(images), seed=0)
        .repeat()
        .batch(BATCH_SIZE)  # which is shared out among the workers
    )
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((64,)), keras.layers.Dense(256, "relu"), keras.layers.Dense(10)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
    history = model.fit(
        dataset, epochs=epochs, steps_per_epoch=len(images) // BATCH_SIZE, verbose=0
    )
    accuracy = history.history["accuracy"][-1]
    worker = strategy.cluster_resolver.task_id or 0
    traffic = strategy.traffic
    print(
        f"worker {worker} of {strategy.num_replicas_in_sync}: accuracy {accuracy:.3f}, "
        f"{traffic.steps} steps, {traffic.bytes_sent} bytes sent, "
        f"{traffic.bits_per_value:.2f} bits a value",
        flush=True,
    )
    return accuracy


if __name__ == "__main__":
    train()
