"""What the workers of backup_test.py run, at the same time; every function returns plain values."""

import os
import pathlib
import signal
import threading
import unittest.mock
import zipfile

import numpy as np
import tensorflow as tf
from absl import logging
from tf_gc.strategy import backups
from tf_gc.strategy.variables import unwrap

import tf_gc

EPOCHS = 3
BATCHES = 5


def rank():
    return tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id


def make_model(compression, seed=0, several_optimizers=False):
    """Returns a strategy, and a model in it with all that a layer may keep."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    keras = tf.keras
    keras.backend.clear_session()  # names begin anew, as in a new process
    keras.utils.set_random_seed(seed)
    if "TF_USE_LEGACY_KERAS" in os.environ:
        keras.backend.experimental.enable_tf_random_generator()
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Dense(48, activation="relu"),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.2, seed=7),
                keras.layers.Dense(48, activation="relu"),
                keras.layers.Dense(3),
            ]
        )
        model.build((None, 32))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer = keras.optimizers.Adam(0.01)
        if several_optimizers:
            of_kernels = {".*kernel": optimizer}
            optimizer = keras.optimizers.MultiOptimizer(
                keras.optimizers.OptimizerMap(keras.optimizers.Adam(0.02), of_kernels)
            )
        model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    return strategy, model


def data(is_size_known=True):
    """This worker's batches, the same in every epoch and run."""
    generator = np.random.default_rng(rank())
    x = generator.standard_normal((BATCHES * 16, 32)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    examples = tf.data.Dataset.from_tensor_slices((x, y))
    if not is_size_known:
        examples = examples.filter(lambda x, y: True)
    return examples.batch(16).with_options(options)


def fit_with_tf_keras_imported(directory):
    """tf_keras, where `tf.keras` is Keras 3."""
    import tf_keras

    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    with strategy.scope():
        model = tf_keras.Sequential([tf_keras.layers.Dense(3)])
        model.compile("sgd", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callback = tf_gc.keras.BackupAndRestore(directory, delete_checkpoint=False)
    model.fit(data(), epochs=1, verbose=0, callbacks=[callback])
    return os.listdir(directory)


def fit_with_an_optimizer_of_its_own(directory):
    """Keras 3; the model was compiled without one."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())

    class Model(tf.keras.Sequential):
        def train_step(self, batch):
            x, y = batch
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.own.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss}

    with strategy.scope():
        model = Model([tf.keras.layers.Dense(3)])
        model.build((None, 32))
        model.own = tf.keras.optimizers.SGD()
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=None, loss=loss)
    callback = tf_gc.keras.BackupAndRestore(directory, delete_checkpoint=False)
    model.fit(data(), epochs=1, verbose=0, callbacks=[callback])
    return os.listdir(directory)


def _after_batches(function):
    """A callback that calls a function with (epoch, batch) after each batch.

    Keras is not to be found before the process has its environment, which says which it is.
    """
    epochs = []
    return tf.keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: epochs.append(epoch),
        on_train_batch_end=lambda batch, logs: function((epochs[-1], batch)),
    )


def _interrupt(worker, epoch, batch, number=signal.SIGKILL):
    """A callback that sends this process a signal after a batch, if it is that worker."""

    def interrupt(step):
        if (rank(), *step) == (worker, epoch, batch):
            os.kill(os.getpid(), number)

    return _after_batches(interrupt)


def fit(
    directory,
    compression,
    interrupt=None,
    own_directories=False,
    epochs=EPOCHS,
    delete=True,
    seed=0,
    is_size_known=True,
    evaluates=False,
    several_optimizers=False,
    steps_per_execution=1,
    restored=None,
    **backup_arguments,
):
    """Trains with backups; returns what it ends with.

    Args:
      directory: of the backups; None: without any.
      compression: the strategy's.
      interrupt: arguments of `_interrupt`.
      own_directories: whether each worker has one of its own in the directory.
      epochs: so many.
      delete: whether to delete the backups at the end.
      seed: of the first weights.
      is_size_known: whether the dataset knows how many batches it has.
      evaluates: whether a callback in front of that of the backups evaluates the model.
      several_optimizers: whether parameters have optimizers of their own.
      steps_per_execution: of Keras 3.
      restored: a directory of `checkpoint_of_fit`, to be restored first; None for none.
      **backup_arguments: of the callback.
    """
    strategy, model = make_model(compression, seed, several_optimizers)
    model.steps_per_execution = steps_per_execution
    if restored:
        checkpoint = tf.train.Checkpoint(model=model, residuals=strategy.residuals)
        checkpoint.read(f"{restored}/0/checkpoint")
    steps, logs = [], []
    callback = tf.keras.callbacks.LambdaCallback
    callbacks = [
        _after_batches(steps.append),
        callback(on_epoch_end=lambda epoch, of_epoch: logs.append((epoch, "loss" in of_epoch))),
    ]
    if evaluates:
        callbacks.append(callback(on_train_begin=lambda _: model.evaluate(data(), verbose=0)))
    if directory:
        path = os.path.join(directory, str(rank())) if own_directories else directory
        callbacks.append(
            tf_gc.keras.BackupAndRestore(path, delete_checkpoint=delete, **backup_arguments)
        )
    if interrupt:
        callbacks.append(_interrupt(*interrupt))
    model.fit(data(is_size_known), epochs=epochs, verbose=0, callbacks=callbacks)
    return {"steps": steps, "logs": logs, **_state(strategy, model)}


def _state(strategy, model):
    """What there is at the end, on this worker."""
    variables = [*model.variables, *_variables(model.optimizer)]
    residuals = {
        w.name if not hasattr(w, "path") else w.path.split("/", 1)[-1]: strategy.residuals.of(w)
        for w in model.trainable_variables
        if len(w.shape) > 1 and np.prod(w.shape) >= 1024
    }
    return {
        "variables": [_local(v) for v in variables],
        "residuals": {name: r.values[0].numpy() for name, r in residuals.items()},
        "slots": strategy.residuals.own_values(),
    }


def _variables(optimizer):
    return optimizer.variables() if callable(optimizer.variables) else optimizer.variables


def _local(variable):
    container = unwrap(variable)
    return getattr(container, "values", (container,))[0].numpy()


def _count_watchers(directory):
    """A callback that writes which threads of this process wait for the other workers' signals."""

    def count(logs):
        names = [t.name for t in threading.enumerate() if "TerminationWatcher" in t.name]
        pathlib.Path(directory, f"watchers-{rank()}").write_text(" ".join(names))

    return tf.keras.callbacks.LambdaCallback(on_train_begin=count)


def fit_twice(directory, interrupt):
    """Trains twice with backups; a worker gets a signal in the second training."""
    _, model = make_model(tf_gc.ThreeLC())
    for interrupts in [], [_count_watchers(directory), _interrupt(*interrupt)]:
        backup = tf_gc.keras.BackupAndRestore(
            directory, save_freq=False, delete_checkpoint=False, save_before_preemption=True
        )
        model.fit(data(), epochs=1, verbose=0, callbacks=[backup, *interrupts])


def fit_and_die_while_writing(directory, compression, worker, call):
    """Trains as `fit`; a worker dies at a call of what makes files durable."""
    calls = 0
    flush = backups._flush

    def count(*paths):
        nonlocal calls
        calls += 1
        if (rank(), calls) == (worker, call):
            os.kill(os.getpid(), signal.SIGKILL)
        flush(*paths)

    with unittest.mock.patch.object(backups, "_flush", count):
        return fit(directory, compression, save_freq=2)


def found(directory):
    """The whole parts of backups that there are."""
    return sorted(
        str(path.relative_to(directory)) for path in pathlib.Path(directory).glob("*/backup-*")
    )


def warnings_of(function, *args, **kwargs):
    """What a function logs, and what it returns."""
    with unittest.mock.patch.object(logging, "warning") as warning:
        result = function(*args, **kwargs)
    texts = [call.args[0] % call.args[1:] for call in warning.call_args_list]
    return [text for text in texts if text.startswith("tf_gc")], result


def fit_again(directory):
    """Goes on with a training, and then trains without a backup; returns the steps of both."""
    fit(directory, None, epochs=1, delete=False)
    _, model = make_model(None)
    steps = []
    callbacks = [_after_batches(steps.append), tf_gc.keras.BackupAndRestore(directory)]
    model.fit(data(), epochs=2, verbose=0, callbacks=callbacks)
    model.fit(data(), epochs=1, verbose=0, callbacks=callbacks[:1])
    return steps


def saved_bytes(directory, compression):
    """All bytes of a trained model that is saved and exported, and what a loaded one predicts."""
    _, model = make_model(compression)
    model.fit(data(), verbose=0)
    path = pathlib.Path(directory, str(rank()))
    path.mkdir()
    model.save(path / "model.keras")
    model.export(path / "exported")
    tf.saved_model.load(str(path / "exported"))
    with zipfile.ZipFile(path / "model.keras") as archive:
        contents = [archive.read(name) for name in archive.namelist()]
    contents += [file.read_bytes() for file in path.rglob("*") if file.is_file()]
    inputs = np.ones([2, 32], np.float32)
    loaded = tf.keras.models.load_model(path / "model.keras")
    # Outside of the strategy, which would gather what all workers predict.
    return b"".join(contents), [loaded(inputs).numpy(), model(inputs).numpy()]


def checkpoint_of_fit(directory, compression, has_residuals):
    """Trains for an epoch, and saves with or without residuals."""
    strategy, model = make_model(compression)
    model.fit(data(), verbose=0)
    more = {"residuals": strategy.residuals} if has_residuals else {}
    tf.train.Checkpoint(model=model, **more).write(f"{directory}/{rank()}/checkpoint")


def residuals_saved_after_fit(directory, compression):
    """Trains for an epoch, unless a backup is of its end; returns what a checkpoint then has."""
    strategy, model = make_model(compression)
    callback = tf_gc.keras.BackupAndRestore(directory, delete_checkpoint=False)
    model.fit(data(), verbose=0, callbacks=[callback])
    checkpoint = tf.train.Checkpoint(residuals=strategy.residuals)
    reader = tf.train.load_checkpoint(checkpoint.write(f"{directory}/{rank()}/checkpoint"))
    names = reader.get_variable_to_shape_map()
    return {n: reader.get_tensor(n) for n in names if n.startswith("residuals")}


def warnings_after_restoring(directory, compression):
    """Restores model and residuals, trains for an epoch; returns what was logged of residuals."""
    strategy, model = make_model(compression)
    checkpoint = tf.train.Checkpoint(model=model, residuals=strategy.residuals)

    def restore_and_fit():
        checkpoint.read(f"{directory}/{rank()}/checkpoint").expect_partial()
        model.fit(data(), epochs=2, verbose=0)

    return warnings_of(restore_and_fit)[0]


def warnings_of_fit(*args, **kwargs):
    """What `fit` logs of residuals."""
    return warnings_of(fit, *args, **kwargs)[0]


def gradient(worker, step):
    return np.random.default_rng([worker, step]).standard_normal((48, 64)).astype(np.float32)


def sum_gradients(directory, steps, has_handler, terminated=None):
    """Adds up what is delivered of a gradient in each step; returns the sum and the residual.

    Args:
      directory: of the checkpoints.
      steps: how many there are, with those before the last checkpoint.
      has_handler: whether a `PreemptionCheckpointHandler` saves; if not, a `CheckpointManager`
        does in each step.
      terminated: the worker that terminates itself after its third step.
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    with strategy.scope():
        total = tf.Variable(tf.zeros([48, 64]), name="total")
    step = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(total=total, step=step, residuals=strategy.residuals)
    if has_handler:
        handler = tf.distribute.experimental.PreemptionCheckpointHandler(
            strategy.cluster_resolver, checkpoint, directory
        )
        run = handler.run
    else:
        manager = tf.train.CheckpointManager(checkpoint, f"{directory}/{rank()}", max_to_keep=2)
        manager.restore_or_initialize()

        def run(function, *args):
            function(*args)

    @tf.function
    def train(gradient):
        def replica_step(gradient):
            [(delivered, _)] = strategy.reduce_gradients([(gradient, total)])
            total.assign_add(delivered)

        strategy.run(replica_step, args=(gradient,))

    first = int(step)
    while int(step) < steps:
        run(train, tf.constant(gradient(rank(), int(step))))
        step.assign_add(1)
        if not has_handler:
            manager.save()
        if rank() == terminated and int(step) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
    return first, total.numpy(), strategy.residuals.of(total).values[0].numpy()


def save_in_the_background(directory, has_slots):
    """Saves after each of three steps; returns a residual's sums, as they were and in the files.

    Args:
      directory: of the checkpoints.
      has_slots: whether the first of the saves comes after the first step; or before.
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    with strategy.scope():
        variable = tf.Variable(tf.zeros([48, 64]), name="variable")
    checkpoint = tf.train.Checkpoint(residuals=strategy.residuals)
    options = tf.train.CheckpointOptions(enable_async=True)

    @tf.function
    def step(gradient):
        strategy.run(lambda: strategy.reduce_gradients([(gradient, variable)]))

    if not has_slots:
        checkpoint.save(f"{directory}/{rank()}/checkpoint", options)
    sums, paths = [], []
    for number in range(3):
        step(tf.constant(gradient(rank(), number)))
        sums.append(strategy.residuals.of(variable).read_value().numpy())
        paths.append(checkpoint.save(f"{directory}/{rank()}/checkpoint", options))
    checkpoint.sync()
    name = "residuals/variable/.ATTRIBUTES/VARIABLE_VALUE"
    return sums, [tf.train.load_checkpoint(path).get_tensor(name) for path in paths]


def fit_on_servers(directory, epochs, seed, **backup_arguments):
    """Trains on parameter servers, with tf_keras; returns the state before and after, and epochs.

    The state is weights, the sum of a residual, and the optimizer's step.
    """
    strategy = tf_gc.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver(), compression=tf_gc.ThreeLC()
    )
    keras = tf.keras
    keras.backend.clear_session()  # names begin anew, as in a new process
    keras.utils.set_random_seed(seed)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(48, input_shape=(32,)), keras.layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss)

    def state():
        kernel = model.trainable_variables[0].name.split(":")[0]
        residual = strategy.residuals.total(kernel).numpy()
        return [*model.get_weights(), residual, int(model.optimizer.iterations.numpy())]

    at_begin = []
    callbacks = [
        tf_gc.keras.BackupAndRestore(directory, delete_checkpoint=False, **backup_arguments),
        keras.callbacks.LambdaCallback(on_train_begin=lambda logs: at_begin.append(state())),
    ]
    creator = keras.utils.experimental.DatasetCreator(lambda context: data().repeat())
    history = model.fit(
        creator, epochs=epochs, steps_per_epoch=BATCHES, verbose=0, callbacks=callbacks
    )
    return at_begin[0], state(), history.epoch
