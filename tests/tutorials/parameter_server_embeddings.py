"""The custom training loop of TensorFlow's tutorial "Parameter server training", with its table.

    TF_USE_LEGACY_KERAS=1 tf_gc-launch --workers 2 --ps 2 parameter_server_embeddings.py \
        "EmbeddingRows(8)"

Three of seven words are the features of an example; it is a "yes" if the first word is among them.
A table of 16384 values a word lies in two shards on the servers.
"""

import json
import random
import sys

import tensorflow as tf

import tf_gc

NUM_PS = 2

cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
variable_partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
    min_shard_bytes=(256 << 10), max_shards=NUM_PS
)

# strategy = tf.distribute.ParameterServerStrategy(
#     cluster_resolver, variable_partitioner=variable_partitioner)
strategy = tf_gc.ParameterServerStrategy(
    cluster_resolver,
    variable_partitioner=variable_partitioner,
    compression=tf_gc.Policy(
        rules={"embedding": None}, embeddings=tf_gc.compressors.from_string(sys.argv[1])
    ),
)

feature_vocab = [
    "avenger", "ironman", "batman", "hulk", "spiderman", "kingkong", "wonder_woman",
]  # fmt: skip
label_vocab = ["yes", "no"]

with strategy.scope():
    feature_lookup_layer = tf.keras.layers.StringLookup(vocabulary=feature_vocab, mask_token=None)
    label_lookup_layer = tf.keras.layers.StringLookup(
        vocabulary=label_vocab, num_oov_indices=0, mask_token=None
    )
    raw_feature_input = tf.keras.layers.Input(shape=(3,), dtype=tf.string, name="feature")
    feature_preprocess_stage = tf.keras.Model(
        {"features": raw_feature_input}, feature_lookup_layer(raw_feature_input)
    )
    raw_label_input = tf.keras.layers.Input(shape=(1,), dtype=tf.string, name="label")
    label_preprocess_stage = tf.keras.Model(
        {"label": raw_label_input}, label_lookup_layer(raw_label_input)
    )


def feature_and_label_gen(num_examples=200):
    examples = {"features": [], "label": []}
    for _ in range(num_examples):
        features = random.sample(feature_vocab, 3)
        examples["features"].append(features)
        examples["label"].append(["yes"] if "avenger" in features else ["no"])
    return examples


def dataset_fn(_):
    dataset = tf.data.Dataset.from_tensor_slices(feature_and_label_gen())
    return dataset.map(
        lambda x: (
            {"features": feature_preprocess_stage({"features": x["features"]})},
            label_preprocess_stage({"label": x["label"]}),
        )
    ).shuffle(200).batch(32).repeat()  # fmt: skip


with strategy.scope():
    model_input = tf.keras.layers.Input(shape=(3,), dtype=tf.int64, name="model_input")
    emb_layer = tf.keras.layers.Embedding(
        input_dim=len(feature_lookup_layer.get_vocabulary()), output_dim=16384
    )
    emb_output = tf.reduce_mean(emb_layer(model_input), axis=1)
    dense_output = tf.keras.layers.Dense(units=1, activation="sigmoid")(emb_output)
    model = tf.keras.Model({"features": model_input}, dense_output)
    optimizer = tf.keras.optimizers.legacy.RMSprop(learning_rate=0.1)
    accuracy = tf.keras.metrics.Accuracy()

assert len(emb_layer.weights) == NUM_PS


@tf.function
def step_fn(iterator):
    def replica_fn(batch_data, labels):
        with tf.GradientTape() as tape:
            pred = model(batch_data, training=True)
            per_example_loss = tf.keras.losses.BinaryCrossentropy(
                reduction=tf.keras.losses.Reduction.NONE
            )(labels, pred)
            loss = tf.nn.compute_average_loss(per_example_loss)
            gradients = tape.gradient(loss, model.trainable_variables)

        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

        actual_pred = tf.cast(tf.greater(pred, 0.5), tf.int64)
        accuracy.update_state(labels, actual_pred)
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

num_epochs = 4
steps_per_epoch = 20  # 5 in the tutorial
for i in range(num_epochs):
    accuracy.reset_states()
    for _ in range(steps_per_epoch):
        coordinator.schedule(step_fn, args=(per_worker_iterator,))
    # Wait at epoch boundaries.
    coordinator.join()
    print(f"Finished epoch {i}, accuracy is {accuracy.result().numpy():f}.")

traffic = strategy.traffic
found = {
    "accuracy": float(accuracy.result()),
    "updates": traffic.updates,
    "bytes_pushed": traffic.bytes_pushed,
    "bits_per_value": traffic.bits_per_value_pushed,
}
print("REPORT " + json.dumps(found), flush=True)
