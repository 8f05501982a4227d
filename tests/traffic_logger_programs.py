"""What the processes of traffic_logger_test.py run."""

import dataclasses
import pathlib
import tempfile
import time

import numpy as np
import parameter_server_programs
import strategy_programs
import tensorflow as tf
from strategy_programs import gaussian, rank

import tf_gc
from tests.waiting import wait_until

_SHAPES = {"kernel": (48, 64), "small": (7,), "second": (40, 30)}


def _gradient(name, step):
    return gaussian([step, list(_SHAPES).index(name)], _SHAPES[name])


def norms_in_steps(compression, requested, steps, dtype="float32", how="graph"):
    """Reduces gradients, and asks for norms before some of the steps.

    Returns:
      By step what was read after it, and what NumPy says of the same step: dicts from name to
      (gradient, handed in, residual).
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    samples = strategy.sample_norms()
    with strategy.scope():
        variables = {n: tf.Variable(tf.zeros(s, dtype), name=n) for n, s in _SHAPES.items()}

    def step(*gradients):
        def replica_step(*gradients):
            pairs = zip(gradients, variables.values(), strict=True)
            return [g for g, _ in strategy.reduce_gradients(pairs)]

        strategy.run(replica_step, args=gradients)

    step = tf.function(step) if how != "eager" else step
    step = _in_a_loop(step) if how == "loop" else step

    def residuals():
        return {n: strategy.residuals.of(variables[n]).values[0].numpy() for n in _SHAPES}

    read, expected = [], []
    for number in range(steps):
        gradients = {n: _gradient(n, number).astype(dtype) for n in _SHAPES}
        before = residuals() if number else dict.fromkeys(_SHAPES, 0.0)
        if number in requested:
            samples.request()
        step(*map(tf.constant, gradients.values()))
        after = residuals()
        read.append({n.name: (n.gradient, n.handed_in, n.residual) for n in samples.read()})
        expected.append(
            {
                n: tuple(
                    float(np.linalg.norm(np.asarray(values, np.float64)))
                    for values in (g, g.astype(np.float32) + before[n], after[n])
                )
                for n, g in gradients.items()
            }
        )
    return read, expected


def norms_after_unfreezing(compression):
    """Reduces gradients of one variable or three; returns what is read after each step."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    samples = strategy.sample_norms()
    with strategy.scope():
        variables = {n: tf.Variable(tf.zeros(s), name=n) for n, s in _SHAPES.items()}

    @tf.function
    def step(*gradients):
        def replica_step(*gradients):
            pairs = zip(gradients, list(variables.values())[: len(gradients)], strict=True)
            return [g for g, _ in strategy.reduce_gradients(pairs)]

        strategy.run(replica_step, args=gradients)

    def reduce(number, scale=1.0):
        gradients = [scale * _gradient(n, 0) for n in _SHAPES][:number]
        step(*map(tf.constant, gradients))
        read = [(n.name, n.gradient / np.linalg.norm(_gradient(n.name, 0))) for n in samples.read()]
        samples.request()
        return read

    return reduce(1), reduce(3, 2.0), reduce(3, 3.0), reduce(1, 4.0), reduce(1, 5.0)


def _in_a_loop(step):
    @tf.function
    def loop(*gradients):
        for _ in tf.range(1):
            step(*gradients)

    return loop


def bits_of_norm_steps(compression, sampled):
    """Returns what is delivered in some steps, with norms taken in each of them or without."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    samples = strategy.sample_norms() if sampled else None
    with strategy.scope():
        variable = tf.Variable(tf.zeros(_SHAPES["kernel"]), name="kernel")

    @tf.function
    def step(gradient):
        def replica_step(gradient):
            return strategy.reduce_gradients([(gradient, variable)])[0][0]

        return strategy.run(replica_step, args=(gradient,))

    delivered = []
    for number in range(4):
        if samples:
            samples.request()
        delivered.append(step(tf.constant(_gradient("kernel", number))).numpy())
    return strategy_programs.fingerprint(delivered)


def _step_of_ones(strategy):
    """Returns a function that reduces ones, as the gradient of a variable that it makes."""
    with strategy.scope():
        variable = tf.Variable(tf.zeros(_SHAPES["kernel"]), name="kernel")

    @tf.function
    def step():
        def replica_step():
            return strategy.reduce_gradients([(tf.ones(_SHAPES["kernel"]), variable)])[0][0]

        return strategy.run(replica_step)

    return step


def wait_for_a_late_worker(directory, seconds):
    """Worker 1 comes to a step so long after worker 0; returns (seconds waited, seconds taken)."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    step = _step_of_ones(strategy)
    step()
    before = strategy.traffic.seconds_waited
    comes = pathlib.Path(directory, "worker 0 comes")
    if rank() == 0:
        comes.touch()
    else:
        wait_until(comes.exists, "worker 0 comes")
        time.sleep(seconds)
    begin = time.monotonic()
    step()
    return strategy.traffic.seconds_waited - before, time.monotonic() - begin


def fit(compression, logger=None, log_dir=None, fits=1, plain_fits=0, tensorboard=False, **kwargs):
    """Trains with a TrafficLogger.

    Args:
      compression: as the strategy has it.
      logger: arguments of the TrafficLogger; None for none.
      log_dir: its `log_dir`.
      fits: how often `fit` is called with it.
      plain_fits: how often `fit` is called without it before.
      tensorboard: whether Keras's TensorBoard writes beside it.
      kwargs: of `strategy_programs.fit_model`.

    Returns:
      A dict of the logs of epochs and batches, the traffic before the fits and after each epoch,
      the events by step, those of TensorBoard's own, and the weights.
    """
    folder = log_dir and pathlib.Path(log_dir, f"worker_{rank()}")
    train = folder and folder / "train"
    recorder = _recorder(tf.keras.callbacks.Callback)
    callbacks = [recorder]
    if logger is not None:
        callbacks.insert(0, tf_gc.keras.TrafficLogger(log_dir, **logger))
    if tensorboard:
        callbacks.append(tf.keras.callbacks.TensorBoard(folder, write_graph=False))
    runs = [()] * plain_fits + [callbacks] * fits
    result, _ = strategy_programs.fit_model(compression, callbacks_of_runs=runs, **kwargs)
    return {
        "epochs": recorder.epochs,
        "batches": recorder.batches,
        "traffic": recorder.traffic,
        "weights": result["weights"],
        "events": events(folder) if folder else None,
        "tensorboard": events(train) if train and train.is_dir() else None,
    }


def losses(compression, logger):
    """Trains with a TrafficLogger as the only callback, or without; returns losses by epoch."""
    callbacks = [] if logger is None else [tf_gc.keras.TrafficLogger(**logger)]
    result, _ = strategy_programs.fit_model(
        compression, epochs=2, batches=6, callbacks_of_runs=[callbacks]
    )
    return result["loss"]


def bits_while_a_ratio_changes():
    """Returns values of the traffic since a ratio was assigned, and those of its variables."""
    ratio = tf_gc.schedules.Adjustable(0.5)
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ARTopK(ratio))
    step = _step_of_ones(strategy)
    step()
    before = strategy.traffic
    ratio.assign(0.01)
    step()
    since = strategy.traffic.since(before)
    return since.values_sent, [variable.values_sent for variable in since.variables]


@dataclasses.dataclass(frozen=True)
class ByItself(tf_gc.compressors.Compressor):
    """Sums in bfloat16, by an `all_reduce` of its own; in two exchanges if asked to."""

    in_halves: bool = False
    uses_residual = False

    def all_reduce(self, gradients, exchange):
        halves = [[tf.cast(g / 2, tf.bfloat16)] * 2 for g in gradients]
        if self.in_halves:
            return [tf.cast(sum(map(exchange.sum, both)), tf.float32) for both in halves]
        return [tf.cast(2 * exchange.sum(half), tf.float32) for half, _ in halves]


@dataclasses.dataclass(frozen=True)
class ByAnother(tf_gc.compressors.Compressor):
    """Leaves all to another compressor, which counts by itself."""

    def all_reduce(self, gradients, exchange):
        return tf_gc.TopK(0.5).all_reduce(gradients, exchange)


@dataclasses.dataclass(frozen=True)
class AfterAGather(tf_gc.compressors.Compressor):
    """Gathers something before another compressor does the rest, and counts by itself."""

    def all_reduce(self, gradients, exchange):
        flags = exchange.all_gather(tf.ones([4]))
        with tf.control_dependencies([flags]):
            return tf_gc.ThreeLC(1.0).all_reduce(gradients, exchange)


def traffic_of_steps(compression, steps):
    """Returns the traffic of some steps of one variable, as a dict."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    step = _step_of_ones(strategy)
    for _ in range(steps):
        step()
    return strategy.traffic.as_dict()


def _recorder(base):
    class Recorder(base):
        """Comes after the logger, and keeps what it finds."""

        def __init__(self):
            super().__init__()
            self.epochs, self.batches, self.traffic = [], [], []

        def on_train_begin(self, logs=None):
            self.traffic = self.traffic or [self.model.distribute_strategy.traffic]

        def on_train_batch_end(self, batch, logs=None):
            self.batches.append(dict(logs))

        def on_epoch_end(self, epoch, logs=None):
            self.epochs.append(dict(logs))
            self.traffic.append(self.model.distribute_strategy.traffic)

    return Recorder()


def events(folder):
    """Returns the scalars of a folder's only event file: a dict from tag to {step: value}."""
    [path] = folder.glob("events.out.tfevents.*")
    found = {}
    for event in tf.compat.v1.train.summary_iterator(str(path)):
        for value in event.summary.value:
            assert value.metadata.plugin_data.plugin_name == "scalars", value
            found.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    return found


def fit_on_servers(update_freq="epoch", **kwargs):
    """tf_keras's fit; returns logs and traffic by epoch, and the events of the chief."""
    import tf_keras

    recorder = _epoch_recorder(tf_keras.callbacks.Callback)
    with tempfile.TemporaryDirectory() as directory:
        parameter_server_programs.fit(
            callbacks=[tf_gc.keras.TrafficLogger(directory, update_freq), recorder], **kwargs
        )
        return recorder.epochs, recorder.traffic, events(pathlib.Path(directory, "chief_0"))


def _epoch_recorder(base):
    class Recorder(base):
        """With parameter servers a callback may have no methods for batches."""

        def __init__(self):
            super().__init__()
            self.epochs, self.traffic = [], []

        def on_epoch_end(self, epoch, logs=None):
            self.epochs.append(dict(logs))
            self.traffic.append(self.model.distribute_strategy.traffic)

    return Recorder()
