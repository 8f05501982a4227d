"""What the examples share: flags, compressors by name, a worker's share of the data, the report."""

import dataclasses
import json
import pathlib
import statistics
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

import tf_gc

FLAGS = flags.FLAGS
flags.DEFINE_string(
    "compressor",
    "ThreeLC()",
    'What compresses, for instance "THC(bits=3)", "DiLoCo(50, compression=ThreeLC())", '
    "auto, or none.",
)
flags.DEFINE_integer("batch_size", 32, "Examples in a step of one worker.", lower_bound=1)
flags.DEFINE_integer(
    "epochs", 12, "Passes over the data, or periods of --steps_per_epoch.", lower_bound=1
)
flags.DEFINE_integer("steps_per_epoch", None, "Default: one pass over the data.", lower_bound=1)
flags.DEFINE_enum("optimizer", "sgd", ["sgd", "adam"], "SGD with momentum 0.8, or Adam.")
flags.DEFINE_integer("seed", 0, "Decides the initial model and the order of the data.")
flags.DEFINE_bool(
    "synchronous", False, "With parameter servers: an update takes the mean of all workers' pushes."
)
flags.DEFINE_float(
    "timeout_seconds", None, "Of an exchange that does not go on, and of heartbeats on slow links."
)
flags.DEFINE_string("json", None, "File that the first worker writes its report to.")

# The first steps trace the model and fill caches.
_WARM_UP_STEPS = 3


class Cluster:
    """The strategy that the flags ask for, and this process's place in it.

    Args:
      policy: function of the compressor that --compressor names, or None, that returns what the
        strategy compresses by: that itself by default.
    """

    def __init__(self, policy: Callable = lambda compressor: compressor):
        tf.get_logger().setLevel("WARNING")  # it would tell of every collective that is traced
        keras.utils.set_random_seed(FLAGS.seed)
        self.compressor = tf_gc.compressors.from_string(FLAGS.compressor)
        if not isinstance(self.compressor, tf_gc.Auto):  # which chooses by times
            tf.config.experimental.enable_op_determinism()
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs = resolver.cluster_spec().as_dict()
        self.workers = len(jobs.get("worker", ["this"]))
        self.index = resolver.task_id or 0
        self.is_chief = self.index == 0
        self.servers = len(jobs.get("ps", []))
        self.has_servers = self.servers > 0
        if self.has_servers:
            self.strategy = tf_gc.ParameterServerStrategy(
                resolver, compression=policy(self.compressor), synchronous=FLAGS.synchronous
            )
        else:
            self.strategy = tf_gc.MultiWorkerMirroredStrategy(
                communication_options=tf.distribute.experimental.CommunicationOptions(
                    timeout_seconds=FLAGS.timeout_seconds
                ),
                compression=policy(self.compressor),
            )
        # Of all workers together, for one update.
        self.pushes_per_update = 1 if self.has_servers and not FLAGS.synchronous else self.workers
        self.batch_size = FLAGS.batch_size * self.pushes_per_update


@dataclasses.dataclass(frozen=True)
class Data:
    """Endless batches, or what makes them on a worker, and how many of them are an epoch."""

    dataset: tf.data.Dataset | Callable[[], tf.data.Dataset]
    steps: int


def training_data(cluster: Cluster, inputs: np.ndarray, labels: np.ndarray) -> Data:
    """Returns this worker's share of the examples, shuffled anew in every pass.

    All workers shuffle alike and each takes every n-th example, so together they see the batches
    that one process with the same total batch size would. What is left after the last full batch
    of a pass is dropped: every worker has the same number of steps, and none waits for another.

    With parameter servers workers take steps as they can: each has all examples, and begins at
    another one.
    """
    steps_in_pass = len(inputs) // cluster.batch_size
    is_endless = cluster.has_servers and FLAGS.steps_per_epoch
    if steps_in_pass == 0 and not is_endless:
        raise app.UsageError(
            f"--batch_size={FLAGS.batch_size} on {cluster.workers} workers asks for more than the "
            f"{len(inputs)} examples that there are: use a smaller one"
        )
    if cluster.has_servers:

        def make_dataset():
            examples = tf.data.Dataset.from_tensor_slices((inputs, labels))
            shuffled = examples.shuffle(len(inputs), seed=FLAGS.seed).repeat()
            # Each worker begins somewhere else.
            begin = tf.cast(1e6 * tf.timestamp(), tf.int64) % len(inputs)
            return shuffled.skip(begin).batch(FLAGS.batch_size).prefetch(2)

        return Data(make_dataset, FLAGS.steps_per_epoch or steps_in_pass)
    dataset = (
        tf.data.Dataset.from_tensor_slices((inputs, labels))
        .shuffle(len(inputs), seed=FLAGS.seed)
        .take(steps_in_pass * cluster.batch_size)
        .shard(cluster.workers, cluster.index)
        .repeat()
        .batch(cluster.batch_size, drop_remainder=True)  # see _already_sharded
        .prefetch(2)
    )
    return Data(_already_sharded(dataset), FLAGS.steps_per_epoch or steps_in_pass)


def test_data(cluster: Cluster, inputs: np.ndarray, labels: np.ndarray, batch_size: int) -> Data:
    """Returns the whole set for every worker, so that the metric is exactly that of the set.

    Raises:
      ValueError: `batch_size` does not divide the set; a pass would not be a number of steps.
    """
    if len(inputs) % batch_size:
        raise ValueError(f"batch_size {batch_size} does not divide {len(inputs)} examples")
    dataset = tf.data.Dataset.from_tensor_slices((inputs, labels)).repeat()
    if cluster.has_servers:  # the chief evaluates
        return Data(dataset.batch(batch_size), len(inputs) // batch_size)
    dataset = dataset.batch(batch_size * cluster.workers)  # see _already_sharded
    return Data(_already_sharded(dataset), len(inputs) // batch_size)


def _already_sharded(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Keeps TensorFlow from sharding; it still cuts every batch in one part per worker.

    A worker gets all parts of its own dataset, one a step, so that the dataset's batches must be
    as many times larger as there are workers.
    """
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    # There is nothing to tune, and the end of an iterator may wait for the thread that tunes it,
    # which sleeps for up to a minute.
    options.autotune.enabled = False
    return dataset.with_options(options)


def warm_up_and_decay(
    learning_rate: float, steps_per_epoch: int
) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns a schedule over the whole training: a tenth of it rising, then half a cosine.

    It ends at a tenth of its height, not at 0, or what compression delays would come too late.
    """
    steps = FLAGS.epochs * steps_per_epoch
    warm_up = steps // 10
    return keras.optimizers.schedules.CosineDecay(
        0.0, steps - warm_up, alpha=0.1, warmup_target=learning_rate, warmup_steps=warm_up
    )


def make_optimizer(learning_rate: float, steps_per_epoch: int) -> keras.optimizers.Optimizer:
    """Returns --optimizer, with a learning rate that rises and decays over the whole training."""
    schedule = warm_up_and_decay(learning_rate, steps_per_epoch)
    if FLAGS.optimizer == "adam":
        return keras.optimizers.Adam(schedule)
    return keras.optimizers.SGD(schedule, momentum=0.8)


def train(cluster: Cluster, model: keras.Model, training: Data, test: Data, metric: str) -> None:
    """Fits and evaluates `model`; the first worker prints each epoch and writes the report.

    Args:
      cluster: where the model was built and compiled.
      model: a compiled model.
      training: what it learns from.
      test: what it is measured on after each epoch.
      metric: name of the metric that says how good the model is.
    """
    if cluster.has_servers:
        import on_servers  # which imports this

        on_servers.train(cluster, model, training, test, metric)
        return
    recorder = _Recorder(metric, cluster)
    model.fit(
        training.dataset,
        epochs=FLAGS.epochs,
        steps_per_epoch=training.steps,
        validation_data=test.dataset,
        validation_steps=test.steps,
        callbacks=[recorder],
        shuffle=False,  # done by the dataset
        verbose=0,
    )
    if isinstance(cluster.compressor, tf_gc.DiLoCo):
        cluster.strategy.synchronize(model.trainable_variables)
    final = model.evaluate(test.dataset, steps=test.steps, return_dict=True, verbose=0)
    traffic = _mean_traffic(cluster)
    if not cluster.is_chief:
        return
    print(f"final {metric} {final[metric]:.4f}")
    print(traffic)
    if FLAGS.json:
        measured = {"epochs": recorder.epochs, "seconds_per_step": recorder.seconds_per_step}
        measured["final"] = {metric: final[metric]}
        write_report(cluster, model, measured, traffic)


def _mean_traffic(cluster):
    """Returns what the workers have exchanged in the mean, `variables` being those of this one.

    Each worker sends the results of other values: those that it serves.
    """
    traffic = cluster.strategy.traffic
    own = dataclasses.asdict(dataclasses.replace(traffic, variables=()))
    del own["variables"]
    values = tf.constant(list(own.values()), tf.float64)
    total = cluster.strategy.reduce("SUM", cluster.strategy.run(lambda: values), axis=None)
    means = (total / cluster.strategy.num_replicas_in_sync).numpy()
    types = map(type, own.values())
    mean = {name: to(value) for name, to, value in zip(own, types, means, strict=True)}
    return dataclasses.replace(traffic, **mean)


class _Recorder(keras.callbacks.Callback):
    """Measures the steps, and keeps and prints one line an epoch.

    Attributes:
      epochs: for each epoch its number, loss and metric, and `seconds`: the time spent in
        training since the end of the first step, which traces the model, without evaluation; and
        since the beginning the number of `steps` and the `bytes_sent` by this worker to reduce
        gradients.
    """

    def __init__(self, metric: str, cluster: Cluster):
        super().__init__()
        self.epochs = []
        self._cluster = cluster
        self._metric = metric
        self._verbose = cluster.is_chief
        self._step_seconds = []

    @property
    def seconds_per_step(self) -> float | None:
        """Mean of all kinds of steps, without the first ones; None after too few.

        The slowest step counts as much as the second slowest: one that stalls decides nothing.
        """
        steps = self._step_seconds[_WARM_UP_STEPS:]
        if not steps:
            return None
        second_slowest = sorted(steps)[-2:][0]
        return statistics.fmean(min(seconds, second_slowest) for seconds in steps)

    def _bytes_sent(self):
        if self._cluster.compressor is not None:
            return self._cluster.strategy.traffic.bytes_sent
        return len(self._step_seconds) * ring_bytes(self.model, self._cluster.workers)

    def on_epoch_begin(self, epoch, logs=None):
        self._last = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        self._step_seconds.append(now - self._last)
        self._last = now

    def on_epoch_end(self, epoch, logs=None):
        entry = {
            "epoch": epoch + 1,
            "seconds": sum(self._step_seconds[1:]),
            "loss": logs["loss"],
            self._metric: logs[f"val_{self._metric}"],
            "steps": len(self._step_seconds),
            "bytes_sent": self._bytes_sent(),
        }
        self.epochs.append(entry)
        if self._verbose:
            print(
                f"epoch {entry['epoch']}/{self.params['epochs']}  loss {entry['loss']:.4f}  "
                f"{self._metric} {entry[self._metric]:.4f}  {entry['seconds']:.1f} s"
            )


def ring_bytes(model: keras.Model, workers: int) -> float:
    """Returns what a worker sends in TensorFlow's ring all-reduce of float32 gradients."""
    return 2 * (workers - 1) / workers * 4 * model.count_params()


def write_report(cluster: Cluster, model: keras.Model, measured: dict, traffic) -> None:
    """Writes what was trained, what was measured and what was exchanged to --json."""
    report = {
        "example": model.name,
        "compressor": FLAGS.compressor,
        "workers": cluster.workers,
        "batch_size": FLAGS.batch_size,
        "seed": FLAGS.seed,
        "parameters": model.count_params(),
        **measured,
        "traffic": traffic.as_dict(),
    }
    path = pathlib.Path(FLAGS.json)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
