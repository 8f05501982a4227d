"""The examples' training loop for parameter servers: Keras 3's fit has no mode for them."""

import time

import common
import keras
import numpy as np
import tensorflow as tf
from absl import flags

FLAGS = flags.FLAGS


def train(cluster, model, training, test, metric):
    """Trains and evaluates `model`; prints each epoch and writes the report.

    An epoch is `training.steps` updates of the optimizer, not passes over the data.

    Args:
      cluster: where the model was built and compiled.
      model: a compiled Keras 3 model.
      training: what it learns from.
      test: what it is measured on after each epoch.
      metric: name of the metric that says how good the model is.
    """
    trainer = _Trainer(cluster, model, training)
    epochs = []
    for epoch in range(FLAGS.epochs):
        before = trainer.updates
        start = time.perf_counter()
        loss = trainer.train(training.steps)
        seconds = time.perf_counter() - start
        traffic = cluster.strategy.traffic
        entry = {
            "epoch": epoch + 1,
            "seconds": seconds,
            "loss": loss,
            metric: trainer.evaluate(test)[metric],
            "updates": trainer.updates,
            "seconds_per_update": seconds / (trainer.updates - before),
            "bytes_pushed": traffic.bytes_pushed,
            "bytes_pulled": traffic.bytes_pulled,
        }
        epochs.append(entry)
        print(
            f"epoch {epoch + 1}/{FLAGS.epochs}  loss {loss:.4f}  {metric} {entry[metric]:.4f}  "
            f"{seconds:.1f} s"
        )
    print(f"final {metric} {epochs[-1][metric]:.4f}")
    print(cluster.strategy.traffic)
    if FLAGS.json:
        measured = {
            "servers": cluster.servers,
            "synchronous": FLAGS.synchronous,
            "epochs": epochs,
            "final": {metric: epochs[-1][metric]},
            # The first epoch traces the step on every worker.
            "seconds_per_update": min(entry["seconds_per_update"] for entry in epochs),
        }
        common.write_report(cluster, model, measured, cluster.strategy.traffic)


class _Trainer:
    """Steps that workers take whenever they are free."""

    def __init__(self, cluster, model, training):
        self._cluster = cluster
        self._model = model
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(cluster.strategy)
        self._iterator = iter(self._coordinator.create_per_worker_dataset(training.dataset))
        self._step = tf.function(self._train_step)
        self._test_step = tf.function(model.test_step)
        self._steps = 0

    @property
    def updates(self) -> int:
        """The optimizer's updates so far.

        Asynchronously every step is one. Keras's own count misses some of them with TensorFlow's
        strategy, where two workers may read the same number, and both write the one after it.
        """
        return self._cluster.strategy.traffic.updates if FLAGS.synchronous else self._steps

    def train(self, updates: int) -> float:
        """Takes steps until there are so many more updates; returns the mean of their losses."""
        goal = self.updates + updates
        losses = []
        while (missing := goal - self.updates) > 0:
            steps = missing * self._cluster.pushes_per_update
            losses += [
                self._coordinator.schedule(self._step, args=(self._iterator,)) for _ in range(steps)
            ]
            self._coordinator.join()
            self._steps += steps
        return float(np.mean([loss.fetch() for loss in losses]))

    def evaluate(self, test: common.Data) -> dict[str, float]:
        """Returns the metrics on one pass over the test data, computed by this process."""
        self._model.reset_metrics()
        for batch in test.dataset.take(test.steps):
            metrics = self._test_step(batch)
        return {name: float(value) for name, value in metrics.items()}

    def _train_step(self, iterator):
        model: keras.Model = self._model

        def step(inputs, labels):
            with tf.GradientTape() as tape:
                loss = model.compute_loss(y=labels, y_pred=model(inputs, training=True))
            variables = model.trainable_variables
            model.optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

        return self._cluster.strategy.run(step, args=next(iterator))
