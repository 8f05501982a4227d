"""Handwritten digits (scikit-learn's, 8x8 pixels) with a residual network of a million weights.

    python examples/digits.py
    tf_gc-launch --workers 4 examples/digits.py --compressor "THC(bits=4)"

Small enough to train in a minute, and large enough that a slow network is what it waits for.
"""

import common
import keras
import sklearn.datasets
import sklearn.model_selection
from absl import app, flags

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(common)
flags.DEFINE_float(
    "learning_rate", 0.02, "For a total batch of 128; in proportion for other sizes."
)

_TEST_SIZE = 360
_CHANNELS = 32
_WIDTH = 16 * _CHANNELS  # 4x4 pixels are left after pooling
_BLOCKS = 2


def build_model() -> keras.Model:
    """Returns the network: a convolutional stem, then residual blocks of dense layers.

    Layer normalisation keeps no running statistics, so all replicas evaluate alike. The last layer
    starts at zero, which keeps the first steps at full rate from diverging.
    """
    inputs = keras.Input((8, 8, 1))
    x = keras.layers.Conv2D(_CHANNELS, 3, padding="same")(inputs)
    x = _residual(x, lambda: keras.layers.Conv2D(_CHANNELS, 3, padding="same"))
    x = keras.layers.ReLU()(keras.layers.LayerNormalization()(x))
    x = keras.layers.Flatten()(keras.layers.MaxPooling2D()(x))
    for _ in range(_BLOCKS):
        x = _residual(x, lambda: keras.layers.Dense(_WIDTH))
    x = keras.layers.LayerNormalization()(x)
    outputs = keras.layers.Dense(10, kernel_initializer="zeros")(x)
    return keras.Model(inputs, outputs, name="digits")


def _residual(x, make_layer):
    y = keras.layers.LayerNormalization()(x)
    y = keras.layers.ReLU()(make_layer()(y))
    return keras.layers.Add()([x, make_layer()(y)])


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    cluster = common.Cluster()
    digits = sklearn.datasets.load_digits()
    images = (digits.images[..., None] / 16).astype("float32")
    x_train, x_test, y_train, y_test = sklearn.model_selection.train_test_split(
        images, digits.target, test_size=_TEST_SIZE, stratify=digits.target, random_state=0
    )
    training = common.training_data(cluster, x_train, keras.utils.to_categorical(y_train))
    test = common.test_data(cluster, x_test, keras.utils.to_categorical(y_test), _TEST_SIZE)
    with cluster.strategy.scope():
        model = build_model()
        model.compile(
            optimizer=common.make_optimizer(
                FLAGS.learning_rate * cluster.batch_size / 128, training.steps
            ),
            loss=keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
            metrics=["accuracy"],
        )
    common.train(cluster, model, training, test, metric="accuracy")


if __name__ == "__main__":
    app.run(main)
