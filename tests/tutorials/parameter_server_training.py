"""Parameter server training, after TensorFlow's tutorial of this name.

    tf_gc-launch --workers 2 --ps 2 parameter_server_training.py "ThreeLC()"

Its first part, `fit`, is for tf_keras alone: set TF_USE_LEGACY_KERAS=1 for it.
"""

import os
import sys

import mnist_setup
import report
import tensorflow as tf

import tf_gc

NUM_PS = 2
global_batch_size = 64

is_tf_keras = os.environ.get("TF_USE_LEGACY_KERAS") == "1"

cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
variable_partitioner = None
if is_tf_keras:  # Keras 3 knows no sharded variables
    variable_partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
        min_shard_bytes=(256 << 10), max_shards=NUM_PS
    )

# strategy = tf.distribute.ParameterServerStrategy(
#     cluster_resolver, variable_partitioner=variable_partitioner)
strategy = tf_gc.ParameterServerStrategy(
    cluster_resolver,
    variable_partitioner=variable_partitioner,
    compression=tf_gc.compressors.from_string(sys.argv[1]),
)


def dataset_fn(input_context):
    batch_size = input_context.get_per_replica_batch_size(global_batch_size)
    dataset = tf.data.Dataset.from_tensor_slices(mnist_setup.load("train"))
    dataset = dataset.shuffle(60000).repeat()
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.batch(batch_size).prefetch(2)


# Training with Model.fit.
if is_tf_keras:
    with strategy.scope():
        model = mnist_setup.build_cnn_model()
        model.compile(
            tf.keras.optimizers.legacy.SGD(0.05),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            steps_per_execution=10,
            metrics=["accuracy"],
        )
    model.fit(tf.keras.utils.experimental.DatasetCreator(dataset_fn), epochs=3, steps_per_epoch=50)

# Training with a custom training loop.
with strategy.scope():
    model = mnist_setup.build_cnn_model()
    optimizer = tf.keras.optimizers.RMSprop(learning_rate=0.001)
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy()


@tf.function
def step_fn(iterator):
    def replica_fn(batch_data, labels):
        with tf.GradientTape() as tape:
            pred = model(batch_data, training=True)
            per_example_loss = tf.keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction="none"
            )(labels, pred)
            loss = tf.nn.compute_average_loss(per_example_loss)
            gradients = tape.gradient(loss, model.trainable_variables)

        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        accuracy.update_state(labels, pred)
        return loss

    batch_data, labels = next(iterator)
    losses = strategy.run(replica_fn, args=(batch_data, labels))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)


@tf.function
def per_worker_dataset_fn():
    return strategy.distribute_datasets_from_function(dataset_fn)


per_worker_dataset = coordinator.create_per_worker_dataset(per_worker_dataset_fn)
per_worker_iterator = iter(per_worker_dataset)

num_epochs = 3
steps_per_epoch = 100
for i in range(num_epochs):
    accuracy.reset_state()
    for _ in range(steps_per_epoch):
        coordinator.schedule(step_fn, args=(per_worker_iterator,))
    # Wait at epoch boundaries.
    coordinator.join()
    print(f"Finished epoch {i}, accuracy is {accuracy.result().numpy():f}.")

loss = coordinator.schedule(step_fn, args=(per_worker_iterator,))
print(f"Final loss is {loss.fetch():f}")

# Inline, direct evaluation.
eval_accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
for batch_data, labels in tf.data.Dataset.from_tensor_slices(mnist_setup.load("t10k")).batch(500):
    eval_accuracy.update_state(labels, model(batch_data, training=False))
print(f"Evaluation accuracy: {eval_accuracy.result().numpy():f}")

report.report(
    model,
    bits_per_value=strategy.traffic.bits_per_value_pushed,
    steps=strategy.traffic.updates,
)
