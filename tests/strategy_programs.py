"""What the workers of strategy_test.py run.

Every function runs in all workers at the same time, and returns plain values.
"""

import concurrent.futures
import gc
import hashlib
import importlib
import itertools
import os
import pathlib
import sys
import threading
import time
import unittest.mock

import numpy as np
import tensorflow as tf
from absl import logging
from tf_gc.strategy import multi_worker_mirrored

import tf_gc
from tests.seeds import set_random_seed
from tests.waiting import wait_until

_SHAPE = (48, 64)  # large enough for the default policy to compress


def rank():
    return tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id


def gaussian(step, shape=_SHAPE, worker=None):
    """The gradient that a worker has at a step; the test computes it too."""
    worker = rank() if worker is None else worker
    return np.random.default_rng([step, worker]).standard_normal(shape).astype(np.float32)


def fingerprint(values):
    return hashlib.sha256(b"".join(np.ascontiguousarray(v).tobytes() for v in values)).hexdigest()


def _reducer(strategy, variable, reduce_op="SUM"):
    """A compiled step that reduces one gradient."""

    @tf.function
    def step(gradient):
        def replica_step(gradient):
            return strategy.reduce_gradients([(gradient, variable)], reduce_op)[0][0]

        return strategy.run(replica_step, args=(gradient,))

    def reduce(gradient):
        return strategy.experimental_local_results(step(tf.constant(gradient)))[0].numpy()

    return reduce


def _variable(strategy, shape=_SHAPE, name="variable", dtype=tf.float32):
    with strategy.scope():
        return tf.Variable(tf.zeros(shape, dtype), name=name)


def _residual(strategy, variable):
    return strategy.residuals.of(variable).values[0].numpy()


def reduce_steps(compression, reduce_op, steps, dtype="float32"):
    """Reduces Gaussian gradients; returns what was delivered, and the residual after it."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    variable = _variable(strategy)
    reduce = _reducer(strategy, variable, reduce_op)
    delivered = [reduce(gaussian(step).astype(dtype)) for step in range(steps)]
    residual = _residual(strategy, variable) if len(strategy.residuals) else None
    return np.stack(delivered), residual


def reduce_twice(compression):
    """Two gradients of a variable, as where two losses share it."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    variable = _variable(strategy)
    gradients = [gaussian(0), gaussian(1)]
    pairs = [(tf.constant(gradient), variable) for gradient in gradients]
    return strategy.run(lambda: strategy.reduce_gradients(pairs))


def reduce_unknown_shape(compression):
    """Reduces a gradient whose shape is not known before the step; returns its sum."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    variable = _variable(strategy)

    @tf.function(input_signature=[tf.TensorSpec([None, None])])
    def step(gradient):
        return strategy.run(lambda g: strategy.reduce_gradients([(g, variable)])[0][0], [gradient])

    return step(tf.ones(_SHAPE)).numpy()


def stock_sum(step):
    strategy = tf_gc.MultiWorkerMirroredStrategy()
    reduce = _reducer(strategy, _variable(strategy))
    return reduce(gaussian(step))


def reduce_list(compression):
    """Reduces many variables of many kinds in one step; returns results and traffic."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    shapes = {
        "kernel": (40, 50),
        "bias": (50,),
        "small": (3, 3),
        "excluded": (40, 50),
        "empty": (0, 7),
    }
    variables = [_variable(strategy, shape, name) for name, shape in shapes.items()]
    variables.append(_variable(strategy, (6, 5), "embedding"))
    variables.append(_variable(strategy, (40, 50), "double", tf.float64))
    gradients = [tf.fill(shape, float(rank() + 1)) for shape in shapes.values()]
    gradients.append(tf.IndexedSlices(tf.ones([1, 5]), tf.constant([rank()]), tf.constant([6, 5])))
    gradients.append(tf.fill([40, 50], tf.constant(rank() + 1.0, tf.float64)))
    gradients.append(None)
    variables.append(variables[0])

    @tf.function
    def step():
        def replica_step():
            reduced = strategy.reduce_gradients(zip(gradients, variables, strict=True))
            return [tf.convert_to_tensor(g) for g, _ in reduced if g is not None]

        return strategy.run(replica_step)

    results = [r.numpy() for r in step()]
    return results, strategy.traffic.as_dict()


def reduce_indexed_slices(sparse_as_dense):
    """Every worker has a gradient for its own row of an embedding."""
    policy = tf_gc.Policy(default=tf_gc.ThreeLC(1.0), sparse_as_dense=sparse_as_dense)
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=policy)
    embedding = _variable(strategy, (400, 5), "embedding")

    @tf.function
    def step():
        def replica_step():
            slices = tf.IndexedSlices(tf.ones([1, 5]), tf.constant([rank()]), tf.constant([400, 5]))
            [(reduced, _)] = strategy.reduce_gradients([(slices, embedding)])
            return isinstance(reduced, tf.IndexedSlices), tf.convert_to_tensor(reduced)

        return strategy.run(replica_step)

    is_sparse, reduced = step()
    return bool(is_sparse), reduced.numpy()


EMBEDDINGS = {"users": (300, 8), "items": (50, 2, 3)}


def embedding_rows(step, worker=None):
    """A worker's rows of each table: indices, some more than once, and values; none on worker 1."""
    worker = rank() if worker is None else worker
    count = 0 if worker == 1 and step == 1 else 20
    rng = np.random.default_rng([step, worker])
    return {
        name: (rng.integers(0, shape[0], count), gaussian(step, (count, *shape[1:]), worker))
        for name, shape in EMBEDDINGS.items()
    }


def reduce_embeddings(compressor, reduce_op, dtype="float32", bad_worker=None):
    """Reduces the rows of two tables in two steps, beside a dense gradient.

    Returns:
      By step and table indices and values of what was delivered; and the traffic.
    """
    policy = tf_gc.Policy(default=tf_gc.ThreeLC(), embeddings=compressor)
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=policy)
    tables = [_variable(strategy, shape, name) for name, shape in EMBEDDINGS.items()]
    kernel = _variable(strategy)

    @tf.function(reduce_retracing=True)
    def step(rows):
        def replica_step(rows):
            slices = [
                tf.IndexedSlices(tf.cast(values, dtype), tf.cast(indices, tf.int32), table.shape)
                for (indices, values), table in zip(rows, tables, strict=True)
            ]
            pairs = [(tf.ones(kernel.shape), kernel), *zip(slices, tables, strict=True)]
            _, *reduced = [r for r, _ in strategy.reduce_gradients(pairs, reduce_op)]
            return [(r.indices, tf.cast(r.values, tf.float32)) for r in reduced]

        return strategy.run(replica_step, args=(rows,))

    delivered = []
    for number in range(2):
        rows = list(embedding_rows(number).values())
        if rank() == bad_worker:
            rows[0][1][0] = np.nan
        inputs = [(tf.constant(i), tf.constant(v)) for i, v in rows]
        delivered.append([(i.numpy().tolist(), v.numpy()) for i, v in step(inputs)])
    return delivered, strategy.traffic.as_dict()


def reduce_on_ipv6():
    """Returns what a gradient's sum is on a cluster with addresses of IPv6, and a timeout."""
    os.environ["TF_CONFIG"] = os.environ["TF_CONFIG"].replace("127.0.0.1", "[::1]")
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=60)
    strategy = tf_gc.MultiWorkerMirroredStrategy(
        compression=tf_gc.Policy(), communication_options=options
    )
    return _reducer(strategy, _variable(strategy))(gaussian(0))


def read_traffic_while_tracing(functions):
    """Returns how often another thread has read the traffic meanwhile, and the steps in the end."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    done = threading.Event()

    def read():
        readings = 0
        while not done.is_set():
            readings += strategy.traffic.steps >= 0
        return readings

    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        reading = executor.submit(read)
        variables = [_variable(strategy) for _ in range(functions)]
        for variable in variables:
            _reducer(strategy, variable)(gaussian(0))
        done.set()
        return reading.result(), strategy.traffic.steps


def restorations_while_variables_go(count):
    """A thread looks for restored slots, as `Auto` does, while variables are let go of."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    variables = [_variable(strategy, name=f"variable_{i}") for i in range(count)]
    for variable in variables:
        _residual(strategy, variable)
    del variable
    is_over = threading.Event()

    def look():
        while not is_over.is_set():
            strategy.residuals.restorations  # noqa: B018

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            looking = pool.submit(look)
            while variables and not looking.done():
                variables.pop()
            is_over.set()
            looking.result()
    finally:
        sys.setswitchinterval(interval)
    strategy.residuals.restorations  # noqa: B018 - where no slot is left
    return len(strategy.residuals)


def steps_without_the_first_variable(keras_package, compressor, steps):
    """Steps of Keras's SGD, and one in which its first variable has no gradient.

    Returns the numbers of steps that were counted.
    """
    keras = importlib.import_module(keras_package)
    policy = tf_gc.Policy(default=compressor, min_elements=0)
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=policy)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(16, use_bias=False) for _ in range(2)])
        model.build((None, 16))
        optimizer = keras.optimizers.SGD(1.0)
    first, last = model.trainable_variables

    @tf.function
    def step(has_first):
        def replica_step():
            gradients = [tf.ones([16, 16]) if has_first else None, tf.ones([16, 16])]
            optimizer.apply_gradients(zip(gradients, (first, last), strict=True))

        strategy.run(replica_step)

    for _ in range(steps):
        step(True)
    step(False)
    saved = strategy.residuals.own_values()
    return [int(value) for key, value in sorted(saved.items()) if key.endswith(":steps")]


def steps_after_the_first_variable_is_gone(kept_by=None):
    """Steps of an optimizer with two variables, and one with the second and a new one.

    Before that the first is let go of, but by a worker.

    Returns the numbers of steps that were counted, by name.
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    first, second, third = (_variable(strategy, name=name) for name in ("first", "second", "third"))

    def reduce(*variables):
        strategy.run(lambda: strategy.reduce_gradients([(tf.ones(_SHAPE), v) for v in variables]))

    for _ in range(3):
        reduce(first, second)
    kept = first if rank() == kept_by else None
    del first
    gc.collect()
    reduce(third, second)
    del kept
    saved = strategy.residuals.own_values()
    return {key: int(value) for key, value in saved.items() if key.endswith(":steps")}


def reduce_unnamed_variables_alike():
    """What QSGD makes of equal gradients of two variables without names, each in its own bucket."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(bytes_per_pack=1),
        compression=tf_gc.compressors.QSGD(),
    )
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(_SHAPE)) for _ in range(2)]
    pairs = [(tf.constant(gaussian(0)), variable) for variable in variables]
    reduced = strategy.run(lambda: strategy.reduce_gradients(pairs))
    return [gradient.numpy() for gradient, _ in reduced]


def traffic_of_two_lists(both, one):
    """Steps with gradients of two variables, then of one; the traffic of either kind."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    variables = [_variable(strategy, name=name) for name in ("first", "last")]

    @tf.function
    def step(count):
        def replica_step():
            gradients = [tf.ones(_SHAPE), tf.ones(_SHAPE) if count == 2 else None]
            reduced = strategy.reduce_gradients(zip(gradients, variables, strict=True))
            return [gradient for gradient, _ in reduced if gradient is not None]

        return strategy.run(replica_step)

    seen = [strategy.traffic]
    for count, steps in ((2, both), (1, one)):
        for _ in range(steps):
            step(count)
        seen.append(strategy.traffic)
    return [after.since(before).steps for before, after in itertools.pairwise(seen)]


def traffic_of_a_small_sum(values, steps):
    """Returns the values that were sent, and the bits a value up and down."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    variable = _variable(strategy, (values,))
    reduce = _reducer(strategy, variable)
    for _ in range(steps):
        reduce(tf.ones([values]))
    traffic = strategy.traffic
    return traffic.values_sent, traffic.bits_per_value_up, traffic.bits_per_value_down


def non_finite(compression, bad, bad_rank):
    """Step 0 is normal, in step 1 one worker has a bad value, step 2 is normal."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    variable, other = _variable(strategy), _variable(strategy, name="other")

    @tf.function
    def step(gradient, other_gradient):
        def replica_step(gradient, other_gradient):
            pairs = [(gradient, variable), (other_gradient, other)]
            return [g for g, _ in strategy.reduce_gradients(pairs)]

        return strategy.run(replica_step, args=(gradient, other_gradient))

    gradient = gaussian(0)
    step(tf.constant(gradient), tf.constant(gradient))
    before = _residual(strategy, variable)
    poisoned = gradient.copy()
    if rank() == bad_rank:
        poisoned[5, 7] = bad
    reduced, other_reduced = step(tf.constant(poisoned), tf.constant(gradient))
    after = _residual(strategy, variable)
    again, _ = step(tf.constant(gradient), tf.constant(gradient))
    return {
        "reduced_is_finite": bool(np.isfinite(reduced.numpy()).any()),
        "other_is_finite": bool(np.isfinite(other_reduced.numpy()).all()),
        "residual_is_unchanged": np.array_equal(before, after),
        "next_is_finite": bool(np.isfinite(again.numpy()).all()),
    }


def _model(keras, width=48):
    return keras.Sequential(
        [
            keras.layers.Dense(width, activation="relu"),
            keras.layers.Dense(width, activation="relu"),
            keras.layers.Dense(3),
        ]
    )


def _data(batches=4, batch_size=16, structure="tuple"):
    """This worker's batches of a learnable task with integer labels."""
    generator = np.random.default_rng(rank())
    x = generator.standard_normal((batches * batch_size, 32)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)
    examples = ({"x": x}, y) if structure == "dict" else (x, y)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf.data.Dataset.from_tensor_slices(examples).batch(batch_size).with_options(options)


def fit(*arguments, **kwargs):
    """Trains; evaluates and predicts, too, if it is told to."""
    return fit_model(*arguments, **kwargs)[0]


def fit_model(
    compression,
    epochs=1,
    batches=4,
    optimizer="Adam",
    steps_per_execution=1,
    structure="tuple",
    run_eagerly=False,
    evaluate=False,
    jit_compile=False,
    callbacks_of_runs=((),),
    **optimizer_arguments,
):
    """Does what `fit` does, once for each list of callbacks; returns the model, too."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    model = _compiled(
        strategy,
        optimizer,
        optimizer_arguments,
        structure,
        steps_per_execution,
        run_eagerly,
        jit_compile,
    )
    for callbacks in callbacks_of_runs:
        data = _data(batches, structure=structure)
        history = model.fit(data, epochs=epochs, verbose=0, callbacks=list(callbacks))
    result = {
        "loss": history.history["loss"],
        "weights": fingerprint([w.numpy() for w in model.trainable_variables]),
        "residuals": len(strategy.residuals),
        "traffic": strategy.traffic.as_dict(),
    }
    if evaluate:
        data = _data(batches, structure=structure)
        result["evaluated"] = model.evaluate(data, verbose=0, return_dict=True)
        result["predicted_shape"] = model.predict(data, verbose=0).shape
    return result, model


def fit_batch_normalization(samples, synchronized=False):
    """Moving statistics, and the fingerprint of weights, after an epoch with batches of 32."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    set_random_seed(0)
    with strategy.scope():
        normalization = tf.keras.layers.BatchNormalization(synchronized=synchronized)
        model = tf.keras.Sequential(
            [tf.keras.layers.Dense(48), normalization, tf.keras.layers.Dense(3)]
        )
        model.compile("sgd", "mse")
    x = np.random.default_rng(0).standard_normal((samples, 32)).astype(np.float32)
    model.fit(tf.data.Dataset.from_tensor_slices((x, x[:, :3])).batch(32), verbose=0)
    seen = np.array([normalization.moving_mean.numpy(), normalization.moving_variance.numpy()])
    weights = [w.numpy() for w in model.trainable_variables]
    return seen, all(np.isfinite(w).all() for w in weights), fingerprint(weights)


def fit_with_an_overflow(compression, bad_rank, optimizer="SGD"):
    """Half precision with loss scaling; one worker's gradients overflow in one step."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    keras = tf.keras
    set_random_seed(0)
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        with strategy.scope():
            model = _model(keras)
            optimizer = keras.mixed_precision.LossScaleOptimizer(
                getattr(keras.optimizers, optimizer)(0.05)
            )
            model.compile(optimizer=optimizer, loss="mse")
    finally:
        keras.mixed_precision.set_global_policy("float32")
    x = np.random.default_rng(rank()).standard_normal((96, 32)).astype(np.float32)
    if rank() == bad_rank:
        x[20] = 6e4
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :3])).batch(16).with_options(options)
    model.fit(data, epochs=2, verbose=0)
    weights = [w.numpy() for w in model.trainable_variables]
    return {
        "weights": fingerprint(weights),
        "finite": all(np.isfinite(w).all() for w in weights),
        "compressed_steps": strategy.traffic.steps,
    }


def overflow_of_another_variable(compression, legacy, **scale):
    """tf_keras's loss scaling; worker 1's gradient of the first of two variables overflows.

    Returns the second variable and this worker's residual of it, before that step and after it.
    """
    keras = tf.keras
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    optimizers = keras.optimizers.legacy if legacy else keras.optimizers
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(_SHAPE), name=name) for name in ("a", "b")]
        optimizer = keras.mixed_precision.LossScaleOptimizer(optimizers.SGD(0.1), **scale)

    @tf.function
    def step(gradients):
        def replica_step(gradients):
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

        strategy.run(replica_step, args=(gradients,))

    seen = []
    for number in range(4):
        gradients = [gaussian([number, i], worker=rank()) for i in range(2)]
        if number == 3 and rank() == 1:
            gradients[0][1, 2] = np.inf
        step([tf.constant(gradient) for gradient in gradients])
        if number >= 2:
            seen.append((variables[1].numpy(), _residual(strategy, variables[1])))
    return seen


def stock_fit(epochs):
    """What `fit` gives with TensorFlow's own strategy (tf_keras only)."""
    model = _compiled(tf.distribute.MultiWorkerMirroredStrategy())
    model.fit(_data(), epochs=epochs, verbose=0)
    return fingerprint([w.numpy() for w in model.trainable_variables])


def _compiled(
    strategy,
    optimizer="Adam",
    optimizer_arguments=None,
    structure="tuple",
    steps_per_execution=1,
    run_eagerly=False,
    jit_compile=False,
):
    """A model of whichever Keras `tf.keras` is; its layers are built by `fit`."""
    keras = tf.keras
    set_random_seed(0)
    with strategy.scope():
        model = _dict_model(keras) if structure == "dict" else _model(keras)
        model.compile(
            optimizer=getattr(keras.optimizers, optimizer)(0.01, **(optimizer_arguments or {})),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            steps_per_execution=steps_per_execution,
            run_eagerly=run_eagerly,
            jit_compile=jit_compile,
        )
    return model


def _dict_model(keras):
    """A functional model with a named input."""
    inputs = keras.Input((32,), name="x")
    return keras.Model({"x": inputs}, _model(keras)(inputs))


def loop_with_xla(compression, steps):
    """README's loop in which XLA compiles the forward and backward pass; returns loss and weights.

    Args:
      compression: the strategy's.
      steps: how many, each on the same batch.
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    model = _compiled(strategy)
    optimizer = model.optimizer
    inputs, labels = next(iter(_data()))
    with strategy.scope():
        model.build((None, 32))

    @tf.function(jit_compile=True)
    def gradients_of(inputs, labels):
        with tf.GradientTape() as tape:
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, model(inputs, training=True)
            )
            loss = tf.reduce_mean(loss) / strategy.num_replicas_in_sync
        return loss, tape.gradient(loss, model.trainable_variables)

    @tf.function
    def train_step(inputs, labels):
        def replica_step(inputs, labels):
            loss, gradients = gradients_of(inputs, labels)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        losses = strategy.run(replica_step, args=(inputs, labels))
        return strategy.reduce("SUM", losses, axis=None)

    losses = [float(train_step(inputs, labels)) for _ in range(steps)]
    return losses, fingerprint([w.numpy() for w in model.trainable_variables])


def repeat_half_a_step(compression, shape):
    """Worker 1's step fails when one of its two buckets was exchanged, and is tried again."""
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=120)
    strategy = tf_gc.MultiWorkerMirroredStrategy(
        compression=compression, communication_options=options
    )
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape), name=name) for name in ("first", "second")]

    def first_is_exchanged():
        # Of one bucket or of both: `step` is called by the time this is.
        wait_until(lambda: strategy.traffic.bytes_sent > 0, "a bucket was exchanged")
        return np.float32(0)

    @tf.function
    def step(fails):
        def replica_step():
            first, second = (tf.constant(gaussian(0, shape)) for _ in variables)
            if fails:
                waited = tf.numpy_function(first_is_exchanged, [], tf.float32)
                with tf.control_dependencies([waited]):
                    second += tf.debugging.check_numerics(tf.constant(np.nan), "cancelled")
            pairs = zip([first, second], variables, strict=True)
            gradients = [g for g, _ in strategy.reduce_gradients(pairs)]
            if isinstance(compression, tf_gc.DiLoCo):
                strategy.outer_step(variables)
            return gradients

        return strategy.run(replica_step)

    if rank() == 1:
        try:
            step(True)
        except tf.errors.InvalidArgumentError:
            logging.info("the step was cancelled")
    for _ in range(2):
        step(False)


def build_models_in_turn(models):
    """How many buckets and slots there are after each of some models, and the steps so far."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    seen = []
    for _ in range(models):
        model = _compiled(strategy)
        model.fit(_data(), verbose=0)
        del model
        tf.keras.backend.clear_session()
        gc.collect()
        traffic = strategy.traffic
        buckets = strategy._reducer._buckets
        seen.append((len(buckets), len(strategy.residuals), traffic.steps))
    return seen, sorted({v.name for v in traffic.variables}), len(traffic.variables)


def save_while_one_worker_has_an_old_model(directory):
    """Saves the residuals of a model after another one, which one worker alone has let go of.

    Returns their names in the checkpoint.
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            model = None
            tf.keras.backend.clear_session()
            if rank() == 0:
                gc.collect()
            model = _compiled(strategy)
            model.fit(_data(), verbose=0)
        if rank() == 0:
            gc.collect()
        checkpoint = tf.train.Checkpoint(residuals=strategy.residuals)
        path = checkpoint.write(os.path.join(directory, str(rank()), "checkpoint"))
    finally:
        gc.enable()
    return [name for name, _ in tf.train.list_variables(path) if name.startswith("residuals")]


def save_again_without_a_model(directory):
    """Saves slots of a model, lets go of it, and saves again; returns both checkpoints' names."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    with strategy.scope():
        variable = tf.Variable(tf.zeros([64, 64]))
    strategy.residuals.local(variable, "residual", variable.shape)
    checkpoint = tf.train.Checkpoint(residuals=strategy.residuals)
    gc.disable()
    try:
        paths = [checkpoint.write(os.path.join(directory, "first"))]
        cycle = [variable]
        cycle.append(cycle)
        del variable, cycle
        time.sleep(0.1)
        paths.append(checkpoint.write(os.path.join(directory, "second")))
    finally:
        gc.enable()
    return [
        [name for name, _ in tf.train.list_variables(path) if "residuals" in name] for path in paths
    ]


def fit_twice():
    """Residuals before and after a second `fit`, which traces anew."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    with strategy.scope():
        model = _model(tf.keras)
        model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy")
    model.fit(_data(), verbose=0)
    kernel = model.trainable_variables[0]
    first = strategy.residuals.of(kernel)
    magnitude = float(np.abs(first.values[0].numpy()).sum())
    model.make_train_function(force=True)
    model.fit(_data(), verbose=0)
    return {
        "same": strategy.residuals.of(kernel) is first,
        "count": len(strategy.residuals),
        "was_nonzero": magnitude > 0,
        "steps": strategy.traffic.steps,
    }


def two_models_of_one_shape():
    """A GAN's loop: two models of identical shapes, each with its own optimizer."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    with strategy.scope():
        models = [_model(tf.keras), _model(tf.keras)]
        for model in models:
            model.build((None, 32))
        optimizers = [tf.keras.optimizers.SGD(0.1), tf.keras.optimizers.SGD(0.1)]
    inputs = tf.constant(gaussian(0, (16, 32)))

    @tf.function
    def step():
        def replica_step():
            for sign, model, optimizer in zip((1.0, -1.0), models, optimizers, strict=True):
                with tf.GradientTape() as tape:
                    loss = sign * tf.reduce_mean(tf.square(model(inputs)))
                variables = model.trainable_variables
                gradients = tape.gradient(loss, variables)
                optimizer.apply_gradients(zip(gradients, variables, strict=True))

        strategy.run(replica_step)

    for _ in range(3):
        step()
    residuals = [
        strategy.residuals.of(model.trainable_variables[0]).values[0].numpy() for model in models
    ]
    return {
        "count": len(strategy.residuals),
        "differ": not np.array_equal(*residuals),
        "nonzero": all(np.abs(r).sum() > 0 for r in residuals),
        "steps": strategy.traffic.steps,
        "weights": fingerprint([v.numpy() for m in models for v in m.trainable_variables]),
    }


def run_what_was_called_before(compression, how):
    """A tf.function that was traced outside of the strategy, as a replica's.

    Args:
      compression: the strategy's.
      how: "call", or "get_concrete_function".

    Returns:
      The variable after three steps, and the number of steps that were counted.
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    with strategy.scope():
        variable = tf.Variable(tf.zeros(_SHAPE))
        optimizer = tf.keras.optimizers.SGD(1.0)
        optimizer.build([variable])

    @tf.function
    def step(gradient):
        optimizer.apply_gradients([(gradient, variable)])

    trace = step if how == "call" else step.get_concrete_function
    trace(tf.zeros(_SHAPE))
    for i in range(3):
        strategy.run(step, args=(tf.constant(gaussian(i)),))
    return variable.numpy(), strategy.traffic.steps


def custom_loop(compression, steps):
    """`strategy.run` in a loop in a `tf.function`, and metrics reduced in it.

    Returns:
      The loss, and a fingerprint of each replica's variable.
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    variable = _variable(strategy)
    target = tf.constant(gaussian(0, worker=99))

    @tf.function
    def train():
        loss = 0.0
        for _ in tf.range(steps):

            def replica_step():
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(variable - target))
                gradient = tape.gradient(loss, variable)
                [(gradient, _)] = strategy.reduce_gradients([(gradient, variable)], "MEAN")
                variable.assign_sub(50.0 * gradient)
                return loss

            loss = strategy.reduce("SUM", strategy.run(replica_step), axis=None)
        return loss

    loss = float(train())
    replicas = strategy.experimental_local_results(variable)
    return loss, *(fingerprint([replica.numpy()]) for replica in replicas)


def reduce_ragged():
    strategy = tf_gc.MultiWorkerMirroredStrategy()
    return strategy.reduce("SUM", tf.ragged.constant([[1.0, 2.0], [3.0]]), axis=0).numpy()


def packs_of_tensorflow(bytes_per_pack):
    """How many all-reduces of TensorFlow's own a step has for three tensors of 2 KiB."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=bytes_per_pack
        )
    )
    values = [tf.ones([512])] * 3

    @tf.function
    def step():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", values))

    operations = step.get_concrete_function().graph.get_operations()
    return sum(operation.type.startswith("CollectiveReduce") for operation in operations)


def reduce_values(compression, reduce_op, value, dtype):
    """Reduces `value` times the worker's number from 1 on, in the ways in which programs do.

    Returns:
      What came of it eagerly, twice in one function, and at the end of a loop in a function; and
      the collectives that TensorFlow runs in the function.
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    value = tf.cast(tf.constant(value) * (rank() + 1), dtype)

    @tf.function
    def reduce_twice():
        of_replicas = strategy.run(lambda: value)
        return strategy.reduce(reduce_op, of_replicas, None), strategy.reduce(
            reduce_op, 2 * of_replicas, None
        )

    @tf.function
    def reduce_in_a_loop():
        total = tf.zeros_like(value)
        for number in tf.range(3):
            total = strategy.reduce(reduce_op, value * tf.cast(number, dtype), None)
            total = tf.cast(total, dtype)  # TensorFlow makes a mean of integers float64
        return total

    graph = reduce_twice.get_concrete_function().graph
    collectives = [o.type for o in graph.get_operations() if o.type.startswith("Collective")]
    results = (strategy.reduce(reduce_op, value, None), *reduce_twice(), reduce_in_a_loop())
    return [np.asarray(r, np.float64) for r in results], collectives


def read_on_demand(compression, aggregation, shape):
    """Reads a variable like those of Keras's metrics: each worker's has its number from 1 on.

    Returns:
      What is read eagerly, in a function, and after an assignment of 6; and the collectives that
      TensorFlow runs in the function.
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    with strategy.scope():
        variable = tf.Variable(
            tf.zeros(shape),
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=aggregation,
        )
    strategy.run(lambda: variable.assign_add(tf.fill(shape, rank() + 1.0)))
    read = tf.function(variable.read_value)
    operations = read.get_concrete_function().graph.get_operations()
    collectives = [o.type for o in operations if o.type.startswith("Collective")]
    values = variable.read_value(), read(), variable.assign(tf.fill(shape, 6.0))
    return [value.numpy() for value in values], collectives


def checkpoint(directory, steps, reduce_op="SUM"):
    """Makes residuals, saves them; returns this worker's."""
    strategy, variable, _ = _trained(steps, reduce_op)
    tf.train.Checkpoint(residuals=strategy.residuals).write(f"{directory}/{rank()}/checkpoint")
    return _residual(strategy, variable)


def restore(directory, saved_by):
    """Restores before the residuals exist, as a restarted program does."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    saved = tf.train.Checkpoint(residuals=strategy.residuals)
    saved.read(f"{directory}/{saved_by}/checkpoint")
    variable = _variable(strategy)
    strategy.residuals.of(variable)
    return _residual(strategy, variable)


def restore_and_reduce(directory, saved_by, reduce_op):
    """Reduces zeros after a restart; returns what is delivered, and what is left of the residual.

    One worker alone has no residual then.
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    tf.train.Checkpoint(residuals=strategy.residuals).read(f"{directory}/{saved_by}/checkpoint")
    variable = _variable(strategy)
    delivered = _reducer(strategy, variable, reduce_op)(np.zeros(variable.shape, np.float32))
    return delivered, _residual(strategy, variable)


def restore_unlike_names(directory):
    """Three variables of one name, the first without a gradient, as `None` in the pairs.

    Saves what waits for the others, or, as one worker, reduces zeros after a restart.

    Returns:
      The residuals of the last two, or what is delivered to them.
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    variables = [_variable(strategy) for _ in range(3)]
    saved = tf.train.Checkpoint(residuals=strategy.residuals)
    is_alone = strategy.num_replicas_in_sync == 1
    if is_alone:
        saved.read(f"{directory}/0/checkpoint")

    @tf.function
    def step(*gradients):
        pairs = zip([None, *gradients], variables, strict=True)
        return strategy.run(lambda: [g for g, _ in strategy.reduce_gradients(pairs)][1:])

    scale = 0 if is_alone else 1
    reduced = step(*(tf.constant(scale * gaussian(number)) for number in range(2)))
    if is_alone:
        return [total.numpy() for total in reduced]
    saved.write(f"{directory}/{rank()}/checkpoint")
    return [_residual(strategy, variable) for variable in variables[1:]]


def save_again(directory, saved_by):
    """Restores and saves before any slot is made; returns what both files have."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    saved = tf.train.Checkpoint(residuals=strategy.residuals)
    paths = f"{directory}/{saved_by}/checkpoint", f"{directory}/{rank()}/again"
    status = saved.read(paths[0])
    for _ in range(2):
        saved.write(paths[1])
    status.assert_existing_objects_matched()
    strategy.residuals.of(_variable(strategy))
    status.assert_existing_objects_matched()
    return [
        {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        for reader in map(tf.train.load_checkpoint, paths)
    ]


def save_unused(directory, compression):
    """Restores and saves with another compression; returns the names of what the file has."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    saved = tf.train.Checkpoint(residuals=strategy.residuals)
    saved.read(f"{directory}/0/checkpoint")
    path = saved.write(f"{directory}/{rank()}/again")
    return [name for name, _ in tf.train.list_variables(path)]


def restore_twice(directory, later):
    """Restores two checkpoints before the residuals exist; returns what they become."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    saved = tf.train.Checkpoint(residuals=strategy.residuals)
    for path in directory, later:
        saved.read(f"{path}/0/checkpoint")
        saved.write(f"{path}/{rank()}/again")
    variable = _variable(strategy)
    strategy.residuals.of(variable)
    return _residual(strategy, variable)


def go_back(directory):
    """Takes the same steps three times: at first, from a checkpoint of before, and adopted.

    Returns what is delivered and the residual, for each time, and what is logged.
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC(1.0, start_step=1))
    variable = _variable(strategy)
    reduce = _reducer(strategy, variable)

    saved = tf.train.Checkpoint(residuals=strategy.residuals)
    path = saved.write(f"{directory}/{rank()}/before")

    def train():
        delivered = [reduce(gaussian(step, worker=rank())) for step in range(3)]
        saved.write(f"{directory}/{rank()}/after")
        return [*delivered, _residual(strategy, variable)]

    own = strategy.residuals.own_values()
    trainings = [train()]
    with unittest.mock.patch.object(logging, "warning") as warning:
        saved.read(path)
        trainings.append(train())
        strategy.residuals.adopt(own)
        trainings.append(train())
    return trainings, [call.args[0] % call.args[1:] for call in warning.call_args_list]


def restore_alone(directory, saved_by, values, are_rows=False):
    """Reduces equal values after a restart; returns the sums, the residual, and what is logged."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    saved = tf.train.Checkpoint(residuals=strategy.residuals)
    with unittest.mock.patch.object(logging, "warning") as warning:
        saved.read(f"{directory}/{saved_by}/checkpoint")
        variable = _variable(strategy)

        @tf.function
        def step(value):
            def replica_step():
                gradient = tf.fill(variable.shape, value)
                if are_rows:
                    rows = tf.range(variable.shape[0])
                    gradient = tf.IndexedSlices(gradient, rows, tf.shape(variable))
                return strategy.reduce_gradients([(gradient, variable)])[0][0]

            return strategy.run(replica_step)

        sums = [step(tf.constant(value)).numpy() for value in values]
    return sums, _residual(strategy, variable), [call.args[0] for call in warning.call_args_list]


def residuals_of_equal_names(policy, directory=None):
    """Three variables of one name, of two sizes; returns which has which residual's name.

    With a directory they are saved there, or restored if there is a checkpoint.
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=policy)
    variables = [_variable(strategy, shape) for shape in ((64, 64), (32, 32), (48, 48))]
    saved = tf.train.Checkpoint(residuals=strategy.residuals)
    if directory and tf.train.latest_checkpoint(f"{directory}/{rank()}"):
        saved.read(tf.train.latest_checkpoint(f"{directory}/{rank()}"))

    @tf.function
    def step():
        def replica_step():
            gradients = [tf.ones(v.shape) * (rank() + 1) for v in variables]
            strategy.reduce_gradients(zip(gradients, variables, strict=True))

        strategy.run(replica_step)

    with unittest.mock.patch.object(logging, "warning") as warning:
        step()
    names = {
        name: tuple(child.shape)
        for name, child in strategy.residuals._trackable_children().items()
        if ":" not in name
    }
    if directory:
        saved.save(f"{directory}/{rank()}/checkpoint")
    return names, [call.args[0] % call.args[1:] for call in warning.call_args_list]


def warnings_of_equal_names(lists):
    """Reduces lists of variables, of which the last two have one name; returns what is logged."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    variables = [_variable(strategy, name=name) for name in ("other", "w", "w")]

    def reduce(indices):
        pairs = [(tf.ones(variables[i].shape), variables[i]) for i in indices]
        strategy.run(lambda: strategy.reduce_gradients(pairs))

    with unittest.mock.patch.object(logging, "warning") as warning:
        for indices in lists:
            reduce(indices)
    return [call.args[0] % call.args[1:] for call in warning.call_args_list]


def update_by_an_optimizer_of_tf_1(compression):
    """Applies gradients of 1 and 2 on two workers, twice; returns the value, and what is logged."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    variable = _variable(strategy)
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)

    @tf.function
    def step():
        gradient = tf.fill(variable.shape, rank() + 1.0)
        strategy.run(lambda: optimizer.apply_gradients([(gradient, variable)]))

    with unittest.mock.patch.object(logging, "log_first_n") as warning:
        step()
        step()
    return variable.numpy(), [call.args[1:] for call in warning.call_args_list]


def _trained(steps, reduce_op="SUM"):
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    variable = _variable(strategy)
    reduce = _reducer(strategy, variable, reduce_op)
    for step in range(steps):
        reduce(gaussian(step))
    return strategy, variable, reduce


def reduce_for_ever(directory):
    """Reduces until an error ends it; returns the error's type.

    After each step it touches a file in the directory that is named after its rank.
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    reduce = _reducer(strategy, _variable(strategy))
    try:
        while True:
            reduce(gaussian(0))
            pathlib.Path(directory, str(rank())).touch()
    except tf.errors.OpError as error:
        return type(error).__name__


def start(timeout_seconds, default):
    """Only makes the strategy, with another default for its time."""
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout_seconds)
    with unittest.mock.patch.object(multi_worker_mirrored, "_DEFAULT_TIMEOUT_SECONDS", default):
        tf_gc.MultiWorkerMirroredStrategy(communication_options=options)


def exchanges_of_buckets(compression, shapes, dtypes=None, reduce_op="SUM", steps=3):
    """Reduces variables of these names and shapes.

    Returns:
      By names of a bucket's variables, exchanges a step and the values counted for each variable
      and step; whether this worker has the exact sums of all variables that are no matrices; and
      what the last step has delivered, as a fingerprint.
    """
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    dtypes = dtypes or {}
    variables = {n: _variable(strategy, s, n, dtypes.get(n, "float32")) for n, s in shapes.items()}

    @tf.function
    def step(gradients):
        def replica_step(gradients):
            pairs = zip(gradients, variables.values(), strict=True)
            return [g for g, _ in strategy.reduce_gradients(pairs, reduce_op)]

        return strategy.run(replica_step, args=(gradients,))

    def integers(number, name, worker):
        values = np.round(4 * gaussian([number, len(name)], shapes[name], worker))
        return values.astype(variables[name].dtype.as_numpy_dtype)

    workers = strategy.num_replicas_in_sync
    are_exact = []
    for number in range(steps):
        own = [integers(number, name, rank()) for name in variables]
        reduced = step(list(map(tf.constant, own)))
        for name, total in zip(variables, reduced, strict=True):
            if len(shapes[name]) < 2:
                parts = [integers(number, name, w).astype(np.float32) for w in range(workers)]
                exact = sum(parts) / (workers if reduce_op == "MEAN" else 1)
                are_exact.append(np.array_equal(total, exact.astype(total.dtype.as_numpy_dtype)))
    counts = {}
    for bucket in strategy._reducer._buckets.values():
        traffic = tf_gc.ops.bucket_traffic(bucket.handle)
        values = traffic.values_sent.numpy() * workers / (2 * (workers - 1) * steps)
        names = tuple(name or "statistics" for name in bucket.names)
        counts[names] = int(traffic.exchanges) / steps, np.round(values).tolist()
    return counts, all(are_exact), fingerprint([r.numpy() for r in reduced])


def come_late(timeout_seconds, absent_rank):
    """All make the strategy; one never comes to the reduction."""
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout_seconds)
    strategy = tf_gc.MultiWorkerMirroredStrategy(
        compression=tf_gc.ThreeLC(), communication_options=options
    )
    reduce = _reducer(strategy, _variable(strategy))
    reduce(gaussian(0))
    if rank() != absent_rank:
        reduce(gaussian(1))


def ask_for_a_slot(slot):
    """Asks for a slot of a variable that was never reduced."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    with strategy.scope():
        variable = tf.Variable(tf.zeros(_SHAPE), name="v")
    return strategy.residuals.of(variable, slot).shape


def bad_inputs(
    multiplier=1.0,
    scale="max",
    residual_shape=_SHAPE,
    bucket_rank=0,
    units=(),
    rows=(48,),
    statistics=(),
    variables=1,
):
    """Calls the op itself, with one input that it must refuse."""
    strategy = tf_gc.MultiWorkerMirroredStrategy()
    with tf.device(f"{strategy.extended._worker_device}/device:CPU:0"):
        residual = tf.raw_ops.VarHandleOp(
            dtype=tf.float32, shape=residual_shape, shared_name="residual"
        )
        tf.raw_ops.AssignVariableOp(resource=residual, value=tf.zeros(residual_shape))
        bucket = tf.reshape(tf_gc.ops.bucket(key="bad", variables=variables), [1] * bucket_rank)
        tf_gc.ops.three_lc_all_reduce(
            [tf.zeros(_SHAPE)] * variables,
            [residual] * variables,
            multiplier,
            bucket,
            group_key=77,
            group_size=2,
            scale=scale,
            units=[tf.constant(units, tf.float32)] * variables,
            rows=rows,
            statistics=[tf.constant(statistics, tf.bfloat16)] * variables,
            timeout_seconds=20.0,
        )


def bad_inputs_of_thc(units=(), unit_rows=(48,), variables=1):
    """Does the same with THC's op."""
    strategy = tf_gc.MultiWorkerMirroredStrategy()
    with tf.device(f"{strategy.extended._worker_device}/device:CPU:0"):
        residual = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=_SHAPE, shared_name="residual")
        tf.raw_ops.AssignVariableOp(resource=residual, value=tf.zeros(_SHAPE))
        tf_gc.ops.thc_all_reduce(
            [tf.zeros(_SHAPE)] * variables,
            [residual] * variables,
            table=range(4),
            bits=2,
            truncation=2.0,
            signs=1,
            rounding=rank(),
            bucket=tf_gc.ops.bucket(key="bad", variables=variables),
            group_key=77,
            group_size=2,
            units=[tf.constant(units, tf.float32)] * variables,
            unit_rows=unit_rows,
            timeout_seconds=20.0,
        )


def different_programs(
    compressions,
    names=("v", "v"),
    ops=("SUM", "SUM"),
    dtypes=("float32", "float32"),
    versions=(tf_gc.__version__, tf_gc.__version__),
    tensorflow=(tf.__version__, tf.__version__),
):
    """What each worker does is one of each."""
    own = rank()
    with (
        unittest.mock.patch.object(tf_gc, "__version__", versions[own]),
        unittest.mock.patch.object(tf, "__version__", tensorflow[own]),
    ):
        strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compressions[own])
        variable = _variable(strategy, name=names[own])
        _reducer(strategy, variable, ops[own])(gaussian(0).astype(dtypes[own]))


def reduce_with_a_schedule_without_config():
    class Own(tf.keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.01

    different_programs([tf_gc.Marsit(Own())] * 2)


def _constant(value):
    return lambda step: value


def _beside_no_value(value, has_late=False):
    if has_late:
        late = 1.0
    return lambda step, is_late=False: late if is_late else value


def different_functions(kind):
    """A hyper-parameter is a function, with another number in it on each worker."""
    functions = {
        "constant": (lambda step: 0.25, lambda step: 0.5),
        "default": (lambda step, value=0.25: value, lambda step, value=0.5: value),
        "nonlocal": (_constant(0.25), _constant(0.5)),
        "beside no value": (_beside_no_value(0.25), _beside_no_value(0.5)),
    }
    different_programs(list(map(tf_gc.Marsit, functions[kind])))


def equal_functions():
    """The same function, which lies at another address on each worker."""
    systems = [tf_gc.Marsit(_constant(0.25)) for _ in range(2)]
    different_programs(systems)
    different_programs([tf_gc.Auto(systems=(None, system)) for system in systems])
