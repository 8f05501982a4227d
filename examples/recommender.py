"""A recommender: which of the items that they see do users click on?

    tf_gc-launch --workers 2 examples/recommender.py --compressor "EmbeddingRows(8)"
    tf_gc-launch --workers 2 --ps 1 examples/recommender.py --compressor "EmbeddingRows(4)"
    tf_gc-launch --workers 2 examples/recommender.py --compressor none

A table of vectors for users and one for items, and a small network. Reports the area under the
ROC curve (AUC) for impressions that it has not seen. The gradients of the tables are
tf.IndexedSlices, of which --compressor says how they travel; all other gradients are exact.

Impressions come from a generator. A user u and an item i have latent factors, p_u and q_i,
Gaussian vectors of 8 values. Users are as likely as each other; the item of rank r in popularity
is shown with a probability in proportion to r^-1, and its appeal a_i is Gaussian. A click has the
probability 1 / (1 + exp(-(1.2 p_u . q_i / sqrt(8) + a_i - 1))).
"""

import common
import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

import tf_gc

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(common)
flags.DEFINE_integer("users", 4000, "Rows of the users' table.", lower_bound=1)
flags.DEFINE_integer("items", 2000, "Rows of the items' table.", lower_bound=1)
flags.DEFINE_integer("width", 32, "Values of a row.", lower_bound=1)
flags.DEFINE_float("learning_rate", 2e-3, "Adam's, at its highest.")
FLAGS.set_default("compressor", "EmbeddingRows(8)")
FLAGS.set_default("optimizer", "adam")
FLAGS.set_default("batch_size", 512)
FLAGS.set_default("epochs", 4)

_FACTORS = 8
_TRAINING = 200_000
_TEST = 40_000
_TEST_BATCH = 2000


def impressions(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns users and items, int32 [count, 2], and clicks, 0 or 1, float32 [count, 1]."""
    rng = np.random.default_rng(0)  # of the world, whatever the seed
    users = rng.standard_normal((FLAGS.users, _FACTORS))
    items = rng.standard_normal((FLAGS.items, _FACTORS))
    appeal = rng.standard_normal(FLAGS.items)
    popularity = 1 / np.arange(1, FLAGS.items + 1)
    rng = np.random.default_rng(seed)
    user = rng.integers(0, FLAGS.users, count)
    item = rng.choice(FLAGS.items, count, p=popularity / popularity.sum())
    affinity = np.sum(users[user] * items[item], axis=1) / _FACTORS**0.5
    probability = 1 / (1 + np.exp(-(1.2 * affinity + appeal[item] - 1)))
    clicks = rng.random(count) < probability
    return np.stack([user, item], 1).astype("int32"), clicks[:, np.newaxis].astype("float32")


class Table(keras.layers.Layer):
    """Looks up rows of a table.

    keras.layers.Embedding does the same, but reads the whole table, which is far away where there
    are parameter servers; tf.gather of a variable reads rows.
    """

    def __init__(self, rows, name):
        super().__init__(name=name)
        self._rows = rows

    def build(self, input_shape):
        del input_shape
        self.table = self.add_weight(shape=(self._rows, FLAGS.width), initializer="uniform")

    def call(self, inputs):
        return tf.gather(self.table.value, inputs)


def build_model() -> keras.Model:
    """Returns the logit of a click from the product of two embeddings, and both of them."""
    inputs = keras.Input((2,), dtype="int32")
    user = Table(FLAGS.users, name="user_table")(inputs[:, 0])
    item = Table(FLAGS.items, name="item_table")(inputs[:, 1])
    product = keras.layers.Multiply()([user, item])
    x = keras.layers.Concatenate()([product, user, item])
    x = keras.layers.Dense(32, activation="relu")(x)
    return keras.Model(inputs, keras.layers.Dense(1)(x), name="recommender")


def policy(embeddings: tf_gc.EmbeddingRows | None) -> tf_gc.Policy:
    """Returns what compresses the tables' gradients alone.

    With parameter servers, a step reads the rows that it needs, and pulls no copies of tables.
    """
    return tf_gc.Policy(rules={"_table/": None}, embeddings=embeddings)


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    cluster = common.Cluster(policy)
    training = common.training_data(cluster, *impressions(_TRAINING, seed=1))
    test = common.test_data(cluster, *impressions(_TEST, seed=2), _TEST_BATCH)
    with cluster.strategy.scope():
        model = build_model()
        model.compile(
            optimizer=common.make_optimizer(FLAGS.learning_rate, training.steps),
            loss=keras.losses.BinaryCrossentropy(from_logits=True),
            metrics=[keras.metrics.AUC(from_logits=True, name="auc")],
        )
    common.train(cluster, model, training, test, metric="auc")


if __name__ == "__main__":
    app.run(main)
