"""What the workers of second_moments_test.py run.

Every function runs in all workers at the same time, and returns plain values.
"""

import unittest.mock

import numpy as np
import tensorflow as tf
from absl import logging
from tf_gc.strategy import second_moments

import tf_gc
from tests.strategy_programs import gaussian, rank

SHAPES = {"kernel": (6, 8, 64), "bias": (64,), "other": (40, 50)}
NAMES = ("kernel", "bias")
ROWS = 48  # of the kernel


def gradient(name, step, worker, scale=1.0):
    """A gradient whose rows have different sizes."""
    seed = [step, worker, len(name)]
    values = np.random.default_rng(seed).standard_normal(SHAPES[name]).astype(np.float32)
    sizes = np.geomspace(1, 100, SHAPES[name][0], dtype=np.float32)
    return scale * values * sizes.reshape(-1, *[1] * (values.ndim - 1))


def first_moment():
    """Of the kernel, the same for all workers."""
    return gradient("kernel", step=100, worker=0)


def _strategy(compression):
    return tf_gc.MultiWorkerMirroredStrategy(compression=compression)


def _variables(strategy, names=NAMES):
    with strategy.scope():
        return {name: tf.Variable(tf.zeros(SHAPES[name]), name=name) for name in names}


def _slot(strategy, variable):
    """The means of squares, and their weight."""
    size = ROWS + 64 + 1
    return strategy.residuals.shared(variable, "second_moment", (size,)).numpy()


def steps_with_second_moments(
    compression,
    steps,
    reduce_op="SUM",
    dtype="float32",
    names=NAMES,
    compiled=True,
    poisoned=None,
    zero_columns=0,
    without_first=(),
    weight=None,
):
    """Reduces gradients; returns second moments and slots by step, and the traffic.

    The first `zero_columns` of each gradient are 0. In the steps `without_first` the first variable
    has no gradient. With a weight the first one alone has a first moment, `first_moment()`.
    """
    strategy = _strategy(compression)
    variables = _variables(strategy, names)
    first_moments = None
    if weight is not None:
        first_moments = [tf.Variable(first_moment()), *[None] * (len(names) - 1)], weight

    def step(gradients):
        def replica_step(gradients):
            others = list(variables.values())[-len(gradients) :]
            reduced = strategy.reduce_gradients(
                zip(gradients, others, strict=True),
                reduce_op,
                with_second_moments=True,
                first_moments=first_moments,
            )
            moments = [second_moments.of(g) for g, _ in reduced]
            return [g for g, _ in reduced], [m for m in moments if m is not None]

        return strategy.run(replica_step, args=(gradients,))

    step = tf.function(step) if compiled else step
    result = {"moments": [], "slots": [], "reduced": []}
    for number in range(steps):
        gradients = [gradient(name, number, rank()).astype(dtype) for name in names]
        for values in gradients:
            values[..., :zero_columns] = 0
        if number == poisoned and rank() == 1:
            gradients[0].flat[5] = np.inf
        reduced, moments = step([tf.constant(g) for g in gradients[number in without_first :]])
        result["reduced"].append([r.numpy() for r in reduced])
        result["moments"].append([m.numpy() for m in moments])
        result["slots"].append(_slot(strategy, variables["kernel"]))
    return {**result, "traffic": strategy.traffic.as_dict(), "text": str(strategy.traffic)}


def reduced_for_optimizers(compression, steps_before):
    """Reduces gradients of the kernel once for each number of steps that an optimizer has taken.

    Returns the sums, and the sum of the workers' residuals at the end.
    """
    strategy = _strategy(compression)
    variables = _variables(strategy, ["kernel"])

    @tf.function
    def step(gradient, optimizer_steps):
        def replica_step(gradient, optimizer_steps):
            [(reduced, _)] = strategy.reduce_gradients(
                [(gradient, variables["kernel"])],
                with_second_moments=True,
                momentum=0.9,
                optimizer_steps=optimizer_steps,
            )
            return reduced

        return strategy.run(replica_step, args=(gradient, optimizer_steps))

    sums = [
        step(tf.constant(gradient("kernel", number, rank())), tf.constant(before)).numpy()
        for number, before in enumerate(steps_before)
    ]
    return sums, strategy.residuals.of(variables["kernel"]).numpy()


def units_of_steps(steps):
    """Returns the units of a compressor, by step, and the slots before it."""
    seen = []

    class Spy(tf_gc.TopK):
        def reduce(self, values, exchange):
            seen.append([u.numpy() for u in exchange.units])
            return super().reduce(values, exchange)

    strategy = _strategy(Spy(units="second_moment"))
    variables = _variables(strategy)
    slots = [np.zeros(ROWS + 64 + 1, np.float32)]
    for number in range(steps):
        pairs = [(tf.constant(gradient(n, number, rank())), v) for n, v in variables.items()]
        strategy.run(strategy.reduce_gradients, args=(pairs,))
        slots.append(_slot(strategy, variables["kernel"]))
    return {"units": seen, "slots": slots[:-1]}


def reduce_kernel(compression, steps):
    """Reduces gradients of the kernel; returns what was delivered and kept, by step."""
    strategy = _strategy(compression)
    variable = _variables(strategy, ["kernel"])["kernel"]

    @tf.function
    def step(values):
        def replica_step(values):
            return strategy.reduce_gradients([(values, variable)])[0][0]

        return strategy.run(replica_step, args=(values,))

    result = {"reduced": [], "residuals": []}
    for number in range(steps):
        values = tf.constant(gradient("kernel", number, rank()))
        result["reduced"].append(step(values).numpy())
        result["residuals"].append(strategy.residuals.of(variable).values[0].numpy())
    return result


def sum_beside_a_matrix(compression, steps, value):
    """Reduces `value` for each weight of a column, beside a matrix; returns all that it got."""
    strategy = _strategy(compression)
    with strategy.scope():
        matrix = tf.Variable(tf.zeros([64, 200]), name="matrix")
        column = tf.Variable(tf.zeros([1536, 1]), name="column")

    @tf.function
    def step(values):
        def replica_step(values):
            pairs = [(values, matrix), (tf.fill(column.shape, value), column)]
            return strategy.reduce_gradients(pairs)[1][0]

        return strategy.run(replica_step, args=(values,))

    return sum(step(tf.constant(gaussian(i, matrix.shape))).numpy() for i in range(steps))


def train(
    compression,
    steps,
    name="Adam",
    optimizers="keras",
    names=NAMES,
    compiled=True,
    rewrite=False,
    build=True,
    zero_rows=0,
    zero_from=0,
    **arguments,
):
    """An optimizer applies gradients; returns variables and optimizer variables by step.

    Without `build` the optimizer is built when it is first called. With `rewrite` (tf_keras only)
    the program does something to gradients after their reduction. The first `zero_rows` of each
    gradient are 0, from step `zero_from` on.
    """
    keras = tf.keras
    strategy = _strategy(compression)
    make = getattr(keras, "Variable", tf.Variable)  # of Keras 3
    module = {
        "keras": keras.optimizers,
        "tf_gc": tf_gc.optimizers,
        "legacy": getattr(keras.optimizers, "legacy", None),
    }[optimizers]
    with strategy.scope():
        variables = {n: make(tf.ones(SHAPES[n]), name=n) for n in names}
        optimizer = getattr(module, name)(**arguments)
        if build and optimizers != "legacy":
            optimizer.build(list(variables.values()))

    def step(gradients):
        def replica_step(gradients):
            pairs = list(zip(gradients, variables.values(), strict=True))
            if not rewrite:
                optimizer.apply_gradients(pairs)
                return
            reduced = [(2 * g, v) for g, v in optimizer.aggregate_gradients(pairs)]
            optimizer.apply_gradients(reduced, skip_gradients_aggregation=True)

        strategy.run(replica_step, args=(gradients,))

    step = tf.function(step) if compiled else step
    result = {"variables": [], "warnings": []}
    warn = unittest.mock.patch.object(
        logging, "warning", lambda text, *args: result["warnings"].append(text % args)
    )
    with warn, unittest.mock.patch.object(second_moments, "_has_warned", False):
        for number in range(steps):
            gradients = [gradient(n, number, rank()) for n in names]
            for values in gradients if number >= zero_from else ():
                values[:zero_rows] = 0
            step(list(map(tf.constant, gradients)))
            result["variables"].append({n: np.array(v) for n, v in variables.items()})
    saved = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    result["optimizer"] = {getattr(v, "path", v.name): np.array(v) for v in saved}
    result["traffic"] = strategy.traffic.as_dict()
    return result


def apply_unknown(compression):
    """tf_keras: applies gradients of variables that the optimizer was not built for."""
    import tf_keras

    strategy = _strategy(compression)
    kernel, other = _variables(strategy, ("kernel", "other")).values()
    with strategy.scope():
        optimizer = tf_keras.optimizers.Adam()

    @tf.function
    def step():
        def replica_step():
            optimizer.apply_gradients([(tf.ones(kernel.shape), kernel)])
            optimizer.apply_gradients([(tf.ones(other.shape), other)])

        strategy.run(replica_step)

    try:
        step()
    except KeyError as error:
        return str(error)


def names_of_slots(compression):
    """Returns the names in a checkpoint after a step with second moments."""
    strategy, _ = _trained(compression, 1)
    return sorted(strategy.residuals._trackable_children())


def checkpoint(directory, steps):
    """Saves slots after some steps; returns them."""
    strategy, variables = _trained(tf_gc.ThreeLC(units="second_moment"), steps)
    tf.train.Checkpoint(residuals=strategy.residuals).write(f"{directory}/{rank()}/checkpoint")
    return _slot(strategy, variables["kernel"])


def restore(directory, saved_by):
    """Restores before the slots exist, as a restarted program does."""
    strategy = _strategy(tf_gc.ThreeLC(units="second_moment"))
    saved = tf.train.Checkpoint(residuals=strategy.residuals)
    saved.read(f"{directory}/{saved_by}/checkpoint")
    return _slot(strategy, _variables(strategy)["kernel"])


def _trained(compression, steps):
    strategy = _strategy(compression)
    variables = _variables(strategy)
    for number in range(steps):
        pairs = [(tf.constant(gradient(n, number, rank())), v) for n, v in variables.items()]
        strategy.run(
            lambda p: strategy.reduce_gradients(p, with_second_moments=True), args=(pairs,)
        )
    return strategy, variables


def bits_of_a_square_matrix(size, steps=2):
    """Returns the traffic of a square matrix alone."""
    strategy = _strategy(tf_gc.ThreeLC())
    with strategy.scope():
        variable = tf.Variable(tf.zeros([size, size]), name="matrix")
    for number in range(steps):
        values = tf.constant(gaussian(number, (size, size)))
        strategy.run(
            lambda v: strategy.reduce_gradients([(v, variable)], with_second_moments=True),
            args=(values,),
        )
    return strategy.traffic.as_dict()


def around_a_new_optimizer(compression, optimizer="Adam", seed=0):
    """Trains a classifier; returns its loss before and after the first step of a new optimizer.

    And the largest change of a weight in that step, in learning rates.
    """
    keras = tf.keras
    keras.utils.set_random_seed(seed)
    strategy = _strategy(compression)
    random = np.random.default_rng(seed)
    inputs = random.standard_normal((512, 32), np.float32)
    scores = inputs @ random.standard_normal((32, 10)) + random.standard_normal((512, 10))
    labels = scores.argmax(1)
    data = tf.data.Dataset.from_tensor_slices((inputs, labels)).repeat().batch(32)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with strategy.scope():
        hidden = [keras.layers.Dense(128, activation="relu") for _ in range(2)]
        model = keras.Sequential([keras.Input((32,)), *hidden, keras.layers.Dense(10)])
    rate = 0.003
    losses, weights = [], []
    for steps in (90, 1):
        with strategy.scope():
            model.compile(getattr(keras.optimizers, optimizer)(rate), loss)
        model.fit(data, steps_per_epoch=steps, verbose=0)
        losses.append(float(loss(labels, model(inputs))))
        weights.append([v.numpy() for v in model.trainable_variables])
    change = max(np.abs(new - old).max() for old, new in zip(*weights, strict=True))
    return *losses, change / rate


def save_model(paths):
    """Trains a model with one of tf_gc's optimizers, and saves it in each place."""
    keras = tf.keras
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile(tf_gc.optimizers.AdamW(0.25), keras.losses.MeanSquaredError())
    model.fit(np.ones([8, 4]), np.ones([8, 3]), verbose=0)
    for path in paths:
        model.save(path)
