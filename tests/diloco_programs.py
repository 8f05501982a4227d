"""What the workers of diloco_test.py run, all at the same time."""

from unittest import mock

import numpy as np
import strategy_programs
import tensorflow as tf
from absl import logging
from tf_gc.strategy import second_moments

import tf_gc

SHAPES = {"kernel": (48, 64), "bias": (7,), "second": (30, 40)}
INNER_RATE = 0.1

rank = strategy_programs.rank
fingerprint = strategy_programs.fingerprint


def gradient(name, step, worker):
    """What a worker has at a step; the test computes it too."""
    index = list(SHAPES).index(name)
    rng = np.random.default_rng([step, worker, index])
    return rng.standard_normal(SHAPES[name]).astype(np.float32)


class Trainer:
    """Variables that are zero at first, and steps of plain gradient descent."""

    def __init__(self, diloco, reduce_op="SUM", outer_step=True):
        self.strategy = tf_gc.MultiWorkerMirroredStrategy(compression=diloco)
        workers = self.strategy.num_replicas_in_sync
        # With sums a worker has the Nth part of its gradient, as Keras's losses have it.
        self._scale = workers if reduce_op == "SUM" else 1
        with self.strategy.scope():
            self.variables = [tf.Variable(tf.zeros(s), name=n) for n, s in SHAPES.items()]
        self.trained = slice(None)

        def step(*gradients):
            def replica_step(*gradients):
                variables = self.variables[self.trained]
                pairs = zip(gradients[self.trained], variables, strict=True)
                for reduced, variable in self.strategy.reduce_gradients(pairs, reduce_op):
                    variable.assign_sub(INNER_RATE * reduced)
                if outer_step:
                    self.strategy.outer_step(variables)

            self.strategy.run(replica_step, args=gradients)

        self._function = step
        self.retrace()

    def retrace(self):
        self._step = tf.function(self._function)

    def step(self, number, poisoned=None):
        gradients = [gradient(name, number, rank()) / self._scale for name in SHAPES]
        if poisoned is not None:
            gradients[list(SHAPES).index(poisoned)][3] = np.nan
        self._step(*map(tf.constant, gradients))

    def values(self):
        return {n: v.numpy() for n, v in zip(SHAPES, self.variables, strict=True)}

    def slots(self):
        """The residuals, before inner steps too, and outer momenta, of those that there are."""
        residuals = self.strategy.residuals
        return {
            (name, slot): residuals.of(variable, slot).values[0].numpy()
            for name, variable in zip(SHAPES, self.variables, strict=True)
            for slot in ("residual", "outer_gradient_residual", "outer_momentum")
            if slot in residuals._slots[variable._unique_id]
        }

    def checkpoint(self):
        variables = dict(zip(SHAPES, self.variables, strict=True))
        return tf.train.Checkpoint(residuals=self.strategy.residuals, **variables)


def train(diloco, steps, reduce_op="SUM"):
    """Returns the variables and the bytes sent after each step, and the slots after the last."""
    trainer = Trainer(diloco, reduce_op)
    values, sent = [], []
    for number in range(steps):
        trainer.step(number)
        values.append(trainer.values())
        sent.append(trainer.strategy.traffic.bytes_sent)
    return values, sent, trainer.slots()


def train_and_save(diloco, directory, saved_after, steps):
    """Saves, and goes on."""
    trainer = Trainer(diloco)
    for number in range(steps):
        trainer.step(number)
        if number + 1 == saved_after:
            trainer.checkpoint().write(f"{directory}/{rank()}/checkpoint")
    return trainer.values(), trainer.slots()


def restore_and_train(diloco, directory, saved_by, begin, steps):
    """Goes on from what the worker `saved_by` has saved, or from one's own checkpoint if None."""
    trainer = Trainer(diloco)
    saved_by = rank() if saved_by is None else saved_by
    trainer.checkpoint().read(f"{directory}/{saved_by}/checkpoint")
    for number in range(begin, steps):
        trainer.step(number)
    return trainer.values(), trainer.slots()


def synchronize(diloco, steps, more):
    """Ends the period after some steps, then goes on; returns values before, after, and at last."""
    trainer = Trainer(diloco)
    for number in range(steps):
        trainer.step(number)
    before = trainer.values()
    trainer.strategy.synchronize(trainer.variables)
    after = trainer.values()
    trainer.strategy.synchronize(trainer.variables)
    again = trainer.values()
    for number in range(steps, steps + more):
        trainer.step(number)
    return before, after, again, trainer.values()


def unfreeze(diloco, steps, synchronize, trained=slice(-1), directory=None):
    """Trains some variables for some steps, by default all but the last; then all for a period.

    With a directory another program, which restores the first one's checkpoint, trains all.
    """
    trainer = Trainer(diloco)
    trainer.trained = trained
    for number in range(steps):
        trainer.step(number)
    if synchronize:
        trainer.strategy.synchronize(trainer.variables[trained])
    if directory:
        path = f"{directory}/{rank()}/checkpoint"
        trainer.checkpoint().write(path)
        trainer = Trainer(diloco)
        trainer.checkpoint().read(path)
    trainer.trained = slice(None)
    trainer.retrace()
    for number in range(steps, steps + diloco.inner_steps):
        trainer.step(number)
    return trainer.values()


def train_in_turns(diloco, turns, directory=None):
    """Trains lists of variables, each for some steps, all traced when they first have a turn.

    Args:
      turns: pairs of a slice of the variables and a number of steps, of "refused" for a step that
        must be, or of "synchronize"; a `DiLoCo` in place of one saves, and goes on in another
        program, which has that and restores.

    Returns:
      This worker's values after each step that is taken, and after `synchronize`.
    """
    trainer, values = Trainer(diloco), []
    functions = {}
    for turn in turns:
        if isinstance(turn, tf_gc.DiLoCo):
            path = f"{directory}/{rank()}/checkpoint"
            trainer.checkpoint().write(path)
            trainer, functions = Trainer(turn), {}
            trainer.checkpoint().read(path)
            continue
        trainer.trained, steps = turn
        if steps == "synchronize":
            trainer.strategy.synchronize(trainer.variables[trainer.trained])
            values.append(trainer.values())
            continue
        trainer.retrace()
        trainer._step = functions.setdefault(str(trainer.trained), trainer._step)
        if steps == "refused":
            try:
                trainer.step(len(values))
            except tf.errors.InvalidArgumentError:
                continue
            raise AssertionError(f"{trainer.trained} is within no period of others")
        for _ in range(steps):
            trainer.step(len(values))
            values.append(trainer.values())
    return values


def outer_steps_seen(inner_steps, fragments, turns):
    """Trains four variables in turns; returns the steps that a compressor's schedule gets."""
    seen = []

    def ratio(step):
        value = tf.numpy_function(lambda s: seen.append(int(s)) or np.float32(0.5), [step], "float")
        return tf.ensure_shape(value, [])

    diloco = tf_gc.DiLoCo(inner_steps, compression=tf_gc.TopK(ratio), fragments=fragments)
    with mock.patch.dict(SHAPES, {"third": (30, 80)}):
        train_in_turns(diloco, turns)
    return seen


def continue_otherwise(saving, restoring, directory, saved_after, steps, synchronizes=False):
    """Saves with one `tf_gc.DiLoCo`, goes on with another; returns the values after each step.

    With `synchronizes` the period, if any, is ended when it is restored.
    """
    train_and_save(saving, directory, saved_after, saved_after)
    trainer = Trainer(restoring)
    trainer.checkpoint().read(f"{directory}/{rank()}/checkpoint")
    if synchronizes:
        trainer.strategy.synchronize(trainer.variables)
    values = []
    for number in range(saved_after, steps):
        trainer.step(number)
        values.append(trainer.values())
    return values


def start_from_residuals_of_gradients(diloco, rate, directory, steps):
    """Trains slowly, compressed; then with DiLoCo, from a checkpoint with residuals.

    Returns:
      The root mean squares of the kernel before and after its first outer step, and the warnings.
    """

    def make(compression):
        strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
        with strategy.scope():
            kernel = tf.Variable(tf.zeros(SHAPES["kernel"]), name="kernel")

        @tf.function
        def step(gradient):
            def replica_step(gradient):
                for reduced, variable in strategy.reduce_gradients([(gradient, kernel)], "MEAN"):
                    variable.assign_sub(rate * reduced)
                if strategy.trains_locally:
                    strategy.outer_step([kernel])

            strategy.run(replica_step, args=(gradient,))

        return step, kernel, tf.train.Checkpoint(kernel=kernel, residuals=strategy.residuals)

    step, _, checkpoint = make(tf_gc.ThreeLC())
    for number in range(steps):
        step(tf.constant(gradient("kernel", number, rank())))
    path = f"{directory}/{rank()}/checkpoint"
    checkpoint.write(path)
    step, kernel, checkpoint = make(diloco)
    with mock.patch.object(logging, "warning") as warning:
        checkpoint.read(path)
        before = kernel.numpy()
        for number in range(steps, steps + diloco.inner_steps):
            step(tf.constant(gradient("kernel", number, rank())))
        after = kernel.numpy()
    rms = [float(np.sqrt(np.mean(values**2))) for values in (before, after)]
    return rms, [call.args[0] % call.args[1:] for call in warning.call_args_list]


def restore_before_the_start(diloco, directory, saved_after):
    """Saves in steps of all workers; returns the bytes of the step that follows, and of the same
    in a program that restores. The first variable's gradients are not compressed."""

    def make():
        strategy = tf_gc.MultiWorkerMirroredStrategy(compression=diloco)
        with strategy.scope():
            double = tf.Variable(tf.zeros([4], tf.float64), name="double")
            kernel = tf.Variable(tf.zeros(SHAPES["kernel"]), name="kernel")

        @tf.function
        def step(gradient):
            def replica_step(gradient):
                gradients = [tf.ones([4], tf.float64), gradient]
                pairs = zip(gradients, [double, kernel], strict=True)
                for reduced, variable in strategy.reduce_gradients(pairs, "MEAN"):
                    variable.assign_sub(reduced)
                strategy.outer_step([double, kernel])

            strategy.run(replica_step, args=(gradient,))

        variables = {"double": double, "kernel": kernel}
        return strategy, step, tf.train.Checkpoint(residuals=strategy.residuals, **variables)

    def bytes_of_a_step(strategy, step):
        before = strategy.traffic.bytes_sent
        step(tf.constant(gradient("kernel", saved_after, rank())))
        return strategy.traffic.bytes_sent - before

    strategy, step, checkpoint = make()
    for number in range(saved_after):
        step(tf.constant(gradient("kernel", number, rank())))
    path = f"{directory}/{rank()}/checkpoint"
    checkpoint.write(path)
    goes_on = bytes_of_a_step(strategy, step)
    strategy, step, checkpoint = make()
    checkpoint.read(path)
    return goes_on, bytes_of_a_step(strategy, step)


def restore_and_synchronize(diloco, directory):
    """Ends the period within which `train_and_save` has saved."""
    trainer = Trainer(diloco)
    trainer.checkpoint().read(f"{directory}/{rank()}/checkpoint")
    trainer.strategy.synchronize(trainer.variables)
    return trainer.values()


def mixed_lists(diloco, lists, ended):
    """A step that reduces gradients of lists of variables, and ends with others."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=diloco)
    with strategy.scope():
        variables = [tf.Variable(tf.ones([40, 50])) for _ in range(3)]

    def replica_step():
        for indices in lists:
            pairs = [(tf.ones([40, 50]), variables[i]) for i in indices]
            for reduced, variable in strategy.reduce_gradients(pairs, "MEAN"):
                variable.assign_sub(reduced)
        for indices in ended:
            strategy.outer_step([variables[i] for i in indices])

    tf.function(lambda: strategy.run(replica_step))()


def synchronize_others(diloco):
    """Tries to synchronize what no optimizer trains in this order."""
    trainer = Trainer(diloco)
    trainer.step(0)
    for variables in (trainer.variables[::-1], trainer.variables[:1], [tf.Variable(1.0)]):
        try:
            trainer.strategy.synchronize(variables)
        except ValueError as error:
            assert "order" in str(error)
        else:
            return "no error"


def train_other_types(diloco, steps=None):
    """A period with an embedding, each worker with a row of its own, and with doubles."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=diloco)
    with strategy.scope():
        embedding = tf.Variable(tf.zeros([6, 5]))
        double = tf.Variable(tf.zeros([4], tf.float64))

    @tf.function
    def step():
        def replica_step():
            rows = tf.IndexedSlices(tf.ones([1, 5]), tf.constant([rank()]), tf.constant([6, 5]))
            gradients = [rows, tf.fill([4], tf.constant(rank() + 1, tf.float64))]
            pairs = zip(gradients, (embedding, double), strict=True)
            for reduced, variable in strategy.reduce_gradients(pairs, "MEAN"):
                variable.assign_sub(tf.convert_to_tensor(reduced))
            strategy.outer_step([embedding, double])
            return embedding.read_value(), double.read_value()

        return strategy.run(replica_step)

    return [[value.numpy() for value in step()] for _ in range(steps or diloco.inner_steps)]


def synchronize_doubles(diloco):
    """Trains a variable whose gradients TensorFlow sums in each step, then ends the period."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=diloco)
    with strategy.scope():
        double = tf.Variable(tf.zeros([4], tf.float64))

    def replica_step():
        gradient = tf.fill([4], tf.constant(rank() + 1, tf.float64))
        for reduced, variable in strategy.reduce_gradients([(gradient, double)], "MEAN"):
            variable.assign_sub(reduced)
        strategy.outer_step([double])

    tf.function(lambda: strategy.run(replica_step))()
    strategy.synchronize([double])
    return double.numpy()


def assign_between(diloco, value):
    """One period, then all variables are set, then another one."""
    trainer = Trainer(diloco)
    steps = diloco.inner_steps
    for number in range(steps):
        trainer.step(number)
    for variable in trainer.variables:
        variable.assign(tf.fill(variable.shape, value))
    for number in range(steps, 2 * steps):
        trainer.step(number)
    return trainer.values()


def non_finite(diloco, bad_rank):
    """One normal period, and one in which a worker has a bad value in its kernel."""
    trainer = Trainer(diloco)
    steps = diloco.inner_steps
    for number in range(steps):
        trainer.step(number)
    before = trainer.values(), trainer.slots()
    for number in range(steps, 2 * steps):
        poisoned = rank() == bad_rank and number == steps
        trainer.step(number, poisoned="kernel" if poisoned else None)
    return before, (trainer.values(), trainer.slots())


def forget_the_outer_step(diloco):
    Trainer(diloco, outer_step=False).step(0)


def warnings_of_an_eager_loop_without_outer_steps(diloco):
    """Returns what is logged in two steps."""
    trainer = Trainer(diloco, outer_step=False)
    trainer._step = trainer._function
    with mock.patch.object(logging, "warning") as warning:
        for number in range(2):
            trainer.step(number)
    return [call.args[0] % call.args[1:] for call in warning.call_args_list]


def warnings_of_an_eager_step_left_out(diloco):
    """Returns what is logged where tf_keras's loss scaling leaves out a step."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=diloco)
    with strategy.scope():
        variable = tf.Variable(tf.zeros([40, 50]))
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
    infinite = tf.fill([40, 50], np.inf)
    with mock.patch.object(logging, "warning") as warning:
        strategy.run(lambda: optimizer.apply_gradients([(infinite, variable)]))
    assert not variable.numpy().any()
    return [call.args[0] % call.args[1:] for call in warning.call_args_list]


def methods_without_diloco():
    """Returns the errors' texts."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    errors = []
    for method in (strategy.outer_step, strategy.synchronize):
        try:
            method([])
        except ValueError as error:
            errors.append(str(error))
    return errors


def fit_with_an_unused_variable(diloco, batches, synchronize=False, scales_loss=False):
    """Trains a model whose first variable gets no gradient; returns the steps that were reduced."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=diloco)
    keras = tf.keras
    with strategy.scope():
        inputs = keras.Input([4])
        unused = keras.layers.Dense(3)(inputs)
        model = keras.Model(inputs, [unused, keras.layers.Dense(2)(inputs)])
        optimizer = keras.optimizers.Adam(0.01)
        if scales_loss:
            optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
        model.compile(optimizer, loss=[None, "mse"])
    labels = tf.ones([4, 3]), tf.ones([4, 2])
    data = tf.data.Dataset.from_tensors((tf.ones([4, 4]), labels)).repeat(batches)
    model.fit(data, verbose=0)
    if synchronize:
        strategy.synchronize(model.trainable_variables)
    return strategy.traffic.steps


def fit(
    diloco, batches, optimizer="AdamW", synchronize=False, steps_per_execution=1, eager=False, **kw
):
    """Trains with Keras; returns losses, fingerprints of the weights, and traffic."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=diloco)
    model = strategy_programs._compiled(
        strategy, optimizer, kw, steps_per_execution=steps_per_execution, run_eagerly=eager
    )
    history = model.fit(strategy_programs._data(batches), epochs=2, verbose=0)
    weights = [fingerprint([w.numpy() for w in model.trainable_variables])]
    if synchronize:
        strategy.synchronize(model.trainable_variables)
        weights.append(fingerprint([w.numpy() for w in model.trainable_variables]))
    return history.history["loss"], weights, strategy.traffic.as_dict()


def fit_with_a_constraint(diloco, batches):
    """Returns the least value of a kernel that may have none below 0: after `fit`, and at last."""
    keras = tf.keras
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=diloco)
    with strategy.scope():
        layer = keras.layers.Dense(
            3,
            use_bias=False,
            kernel_initializer=keras.initializers.Constant(0.02),
            kernel_constraint=keras.constraints.NonNeg(),
        )
        model = keras.Sequential([layer])
        model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
    x = np.ones([16 * batches, 32], np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, np.zeros([len(x), 3], np.float32))).batch(16)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    model.fit(data.with_options(options), epochs=1, verbose=0)
    fitted = float(np.min(layer.kernel.numpy()))
    strategy.synchronize(model.trainable_variables)
    return fitted, float(np.min(layer.kernel.numpy()))


def outer_momentum_of_a_constraint(diloco, rate, steps):
    """Trains a weight that may not fall below 0 where its gradient is 1; returns its momentum."""
    keras = tf.keras
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=diloco)
    with strategy.scope():
        layer = keras.layers.Dense(
            1,
            use_bias=False,
            kernel_initializer="zeros",
            kernel_constraint=keras.constraints.NonNeg(),
        )
        model = keras.Sequential([layer])
        model.compile(optimizer=keras.optimizers.SGD(rate), loss=lambda _, y: tf.reduce_mean(y))
    data = tf.data.Dataset.from_tensors((np.ones([2, 1], np.float32),) * 2).repeat(steps)
    model.fit(data, verbose=0)
    momentum = strategy.residuals.of(model.trainable_variables[0], "outer_momentum")
    return float(momentum.values[0].numpy()[0, 0])


def freeze_between_fits(diloco, optimizer, batches):
    """Trains two layers, then the second one alone with the same optimizer, then both again.

    Returns:
      The weights of both layers after each `fit`.
    """
    keras = tf.keras
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=diloco)
    strategy_programs.set_random_seed(0)
    with strategy.scope():
        layers = [keras.layers.Dense(40), keras.layers.Dense(3)]
        model = keras.Sequential([keras.Input([32]), *layers])
        optimizer = getattr(keras.optimizers, optimizer)(0.01)
    weights = []
    for trainable in (True, False, True):
        layers[0].trainable = trainable
        with strategy.scope():
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(optimizer, loss)
        model.fit(strategy_programs._data(batches), verbose=0)
        strategy.synchronize(model.trainable_variables)
        weights.append([[w.numpy() for w in layer.weights] for layer in layers])
    return weights


def fit_frozen(diloco):
    """Trains a model of which no layer is trainable; returns the number of epochs."""
    keras = tf.keras
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=diloco)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1, trainable=False)])
        model.build((None, 2))
        model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensors((np.ones([4, 2]), np.ones([4, 1]))).repeat(2)
    return len(model.fit(data, verbose=0).epoch)


def synchronize_nothing(diloco):
    tf_gc.MultiWorkerMirroredStrategy(compression=diloco).synchronize([])


def apply_without_variables():
    """Gives an optimizer of Keras 3 that is not built yet gradients alone."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.DiLoCo(2))
    with strategy.scope():
        tf.Variable(tf.zeros([3]))
        optimizer = tf.keras.optimizers.SGD(0.1)
    strategy.run(tf.function(lambda: optimizer.apply([tf.ones([3])])))


def warnings_of_squares(diloco, name, legacy=False, eager=False, **arguments):
    """Trains a matrix for four steps; returns what was warned of compressed gradients."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=diloco)
    optimizers = tf.keras.optimizers
    make = getattr(tf.keras, "Variable", tf.Variable)  # of Keras 3
    with strategy.scope():
        variable = make(tf.ones([48, 64]), name="kernel")
        optimizer = getattr(optimizers.legacy if legacy else optimizers, name)(**arguments)
        if not legacy:
            optimizer.build([variable])

    def step(values):
        strategy.run(lambda v: optimizer.apply_gradients([(v, variable)]), args=(values,))

    step = step if eager else tf.function(step)
    warn = mock.patch.object(logging, "warning")
    with warn as warning, mock.patch.object(second_moments, "_has_warned", False):
        for number in range(4):
            step(tf.constant(gradient("kernel", number, rank())))
    texts = [call.args[0] % call.args[1:] for call in warning.call_args_list]
    return [text for text in texts if "compressed gradients" in text]
