"""`fit` with the callbacks and options that programs have, all together.

    tf_gc-launch --workers 2 callbacks.py "ThreeLC()" DIRECTORY OPTIMIZER [eagerly]

The data are divided by TensorFlow itself, and the last batch of an epoch is not full.
"""

import os
import sys

import mnist_setup
import report
import tensorflow as tf

import tf_gc

compressor, directory, optimizer_name, *options = sys.argv[1:]
run_eagerly = options == ["eagerly"]
strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.compressors.from_string(compressor))
OPTIMIZERS = {
    "SGD": {"learning_rate": 0.02, "momentum": 0.9, "clipnorm": 1.0},
    "Adam": {"learning_rate": 0.001, "global_clipnorm": 1.0},
    "AdamW": {"learning_rate": 0.001, "weight_decay": 0.004, "clipvalue": 0.5},
    "RMSprop": {"learning_rate": 0.0005, "global_clipnorm": 1.0},
    "Nadam": {"learning_rate": 0.001, "clipnorm": 1.0},
    # With Keras's 1e-30 the product of a row's and a column's underflows where both are zero, as
    # those of pixels at the border, and weights become NaN, without tf_gc too.
    "Adafactor": {"learning_rate": 0.005, "epsilon_1": 1e-12},
}

# 4000 examples are 31 batches of 128, and one of 32.
size, batch_size = (400, 96) if run_eagerly else (4000, 128)
images, labels = mnist_setup.load("train")
training = (
    tf.data.Dataset.from_tensor_slices((images[:size], labels[:size]))
    .shuffle(size, seed=0)
    .batch(batch_size)
)
validation = tf.data.Dataset.from_tensor_slices((images[-1000:], labels[-1000:])).batch(batch_size)

task_id = strategy.cluster_resolver.task_id
with strategy.scope():
    model = mnist_setup.build_cnn_model()
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=getattr(tf.keras.optimizers, optimizer_name)(**OPTIMIZERS[optimizer_name]),
        metrics=["accuracy"],
        run_eagerly=run_eagerly,
    )

logs_dir = os.path.join(directory, "logs")
worker_dir = os.path.join(directory, f"worker_{task_id}")
callbacks = [
    tf_gc.keras.TrafficLogger(logs_dir),
    tf.keras.callbacks.ModelCheckpoint(
        os.path.join(worker_dir, "{epoch}.weights.h5"), save_weights_only=True
    ),
    tf.keras.callbacks.EarlyStopping(monitor="val_loss", patience=2, restore_best_weights=True),
    tf.keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=1),
    tf.keras.callbacks.CSVLogger(os.path.join(directory, f"{task_id}.csv")),
    # A folder for each worker, as its own files have the same names.
    tf.keras.callbacks.TensorBoard(os.path.join(worker_dir, "tensorboard"), histogram_freq=1),
]
history = model.fit(
    training, epochs=4, validation_data=validation, callbacks=callbacks, verbose=2
).history

report.report(
    model,
    epochs=len(history["loss"]),
    history={name: [float(value) for value in values] for name, values in history.items()},
    bits_per_value=strategy.traffic.bits_per_value,
    steps=strategy.traffic.steps,
)
