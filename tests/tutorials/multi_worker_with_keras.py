"""Multi-worker training with Keras, after TensorFlow's tutorial of this name.

tf_gc-launch --workers 2 multi_worker_with_keras.py "ThreeLC()" DIRECTORY
"""

import json
import os
import sys

import mnist_setup
import report
import tensorflow as tf

import tf_gc

directory = sys.argv[2]
per_worker_batch_size = 64
tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])

# strategy = tf.distribute.MultiWorkerMirroredStrategy()
strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.compressors.from_string(sys.argv[1]))

global_batch_size = per_worker_batch_size * num_workers
multi_worker_dataset = mnist_setup.mnist_dataset(global_batch_size)

with strategy.scope():
    # Model building and compiling need to be within the scope.
    multi_worker_model = mnist_setup.build_and_compile_cnn_model()

multi_worker_model.fit(multi_worker_dataset, epochs=3, steps_per_epoch=70)


# Saving and loading: all workers save, the chief to the place that is meant.
def is_chief(task_type, task_id):
    return task_type is None or task_type == "chief" or (task_type == "worker" and task_id == 0)


def write_filepath(filepath, task_type, task_id):
    dirpath, base = os.path.split(filepath)
    if not is_chief(task_type, task_id):
        dirpath = os.path.join(dirpath, f"workertemp_{task_id}")
        tf.io.gfile.makedirs(dirpath)
    return os.path.join(dirpath, base)


task_type = strategy.cluster_resolver.task_type
task_id = strategy.cluster_resolver.task_id

model_path = os.path.join(directory, "keras-model.keras")
write_model_path = write_filepath(model_path, task_type, task_id)
multi_worker_model.save(write_model_path)
if not is_chief(task_type, task_id):
    tf.io.gfile.rmtree(os.path.dirname(write_model_path))
else:
    loaded_model = tf.keras.models.load_model(model_path)
    loaded_model.fit(mnist_setup.mnist_dataset(64), epochs=1, steps_per_epoch=5)

# Checkpoints: tf_gc has one more object to save, the residuals.
checkpoint_dir = os.path.join(directory, "ckpt")
checkpoint = tf.train.Checkpoint(model=multi_worker_model, residuals=strategy.residuals)
write_checkpoint_dir = write_filepath(checkpoint_dir, task_type, task_id)
checkpoint_manager = tf.train.CheckpointManager(
    checkpoint, directory=write_checkpoint_dir, max_to_keep=1
)
checkpoint_manager.save()
before = [w.copy() for w in multi_worker_model.get_weights()]
multi_worker_model.fit(multi_worker_dataset, epochs=1, steps_per_epoch=5)
checkpoint.restore(tf.train.latest_checkpoint(write_checkpoint_dir))
restored = all((a == b).all() for a, b in zip(before, multi_worker_model.get_weights()))

# The BackupAndRestore callback, ours in place of `tf.keras.callbacks`.
callbacks = [tf_gc.keras.BackupAndRestore(backup_dir=os.path.join(directory, "backup"))]
with strategy.scope():
    multi_worker_model = mnist_setup.build_and_compile_cnn_model()
multi_worker_model.fit(multi_worker_dataset, epochs=3, steps_per_epoch=70, callbacks=callbacks)

report.report(
    multi_worker_model,
    restored=restored,
    bits_per_value=strategy.traffic.bits_per_value,
    steps=strategy.traffic.steps,
)
