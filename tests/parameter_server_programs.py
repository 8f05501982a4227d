"""What the chief of parameter_server_test.py runs.

Every function makes a strategy of its own on the same cluster, and returns plain values.
"""

import collections
import concurrent.futures
import functools
import gc
import importlib
import itertools
import os
import pathlib
import sys
import tempfile
import threading
import time
import zipfile
from unittest import mock

import keras
import numpy as np
import psutil
import tensorflow as tf
from absl import logging
from tensorflow.python.autograph.impl import api
from tensorflow.python.framework import op_callbacks
from tf_gc.strategy import (
    message_pieces,
    parameter_server,
    pulled_variable,
    second_moments,
    server_residuals,
)
from tf_gc.strategy import tensorflow_internals as internals
from tf_gc.strategy.server_variables import ServerVariables

import tf_gc
from tests import server_clusters
from tests.seeds import set_random_seed
from tests.waiting import wait_until
from tf_gc import ops

_SHAPE = (48, 64)  # large enough for the default policy to compress
_INPUTS = 64
_CLASSES = 4


def make_strategy(**kwargs):
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf_gc.ParameterServerStrategy(resolver, **kwargs)


def serve_without_tf_gc():
    """A parameter server of TensorFlow alone, which this process has never been."""
    program = (
        "import tensorflow as tf; "
        "config = tf.distribute.cluster_resolver.TFConfigClusterResolver(); "
        "tf.distribute.Server(config.cluster_spec(), 'ps', 0, protocol='grpc').join()"
    )
    os.execv(sys.executable, [sys.executable, "-P", "-c", program])


def serve_with_two_devices():
    """A worker with two processors, which stand for two GPUs."""
    config = functools.partial(tf.compat.v1.ConfigProto, device_count={"CPU": 2})
    with mock.patch.object(tf.compat.v1, "ConfigProto", config):
        server_clusters.serve()


def with_two_replicas(function, *args, **kwargs):
    """Runs a program whose strategies take it that each worker has two such devices."""
    devices = tuple(f"/device:CPU:{i}" for i in range(2))
    with (
        mock.patch.object(internals.ParameterServerStrategyV2Extended, "worker_devices", devices),
        mock.patch.object(
            internals.ParameterServerStrategyV2Extended, "_num_replicas_in_sync", len(devices)
        ),
    ):
        return function(*args, **kwargs)


def gaussian(seed, shape=_SHAPE):
    """A gradient; the test computes it too."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Loop:
    """Pushes given gradients of plain variables; an update subtracts what it gets.

    Args:
      shapes: of the variables, which are zero at first.
      strategy: None for one that is made here.
      coordinator: the strategy's, or None.
      kwargs: of the strategy.
    """

    def __init__(self, shapes=(_SHAPE,), strategy=None, coordinator=None, **kwargs):
        self.strategy = strategy or make_strategy(**kwargs)
        with self.strategy.scope():
            self.variables = [
                tf.Variable(tf.zeros(shape), name=f"variable_{i}") for i, shape in enumerate(shapes)
            ]
        self.coordinator = coordinator or tf.distribute.coordinator.ClusterCoordinator(
            self.strategy
        )
        self._step = tf.function(self._push)

    def push(self, gradients, delay=0.0):
        """One step of some worker; returns its future: the values that the step has read.

        Args:
          gradients: of the variables.
          delay: seconds between reading and pushing; None for no operation there at all.
        """
        gradients = [tf.constant(gradient) for gradient in gradients]
        delay = None if delay is None else tf.constant(delay)
        return self.coordinator.schedule(self._step, args=(gradients, delay))

    def push_all(self, pushes):
        """Steps one after the other; returns what each has read."""
        return [self.push(p).fetch() for p in pushes]

    @property
    def values(self):
        return [variable.numpy() for variable in self.variables]

    def _update(self, grads_and_vars):
        for gradient, variable in grads_and_vars:
            variable.assign_sub(gradient)

    @tf.autograph.experimental.do_not_convert
    def _end(self):
        """What a step does after it has pushed."""

    def _push(self, gradients, delay):
        def step():
            with tf.GradientTape():
                read = [tf.identity(variable) for variable in self.variables]
            with tf.control_dependencies(read):
                waited = [] if delay is None else [_wait(delay)]
            with tf.control_dependencies(waited):
                pairs = zip(gradients, self.variables, strict=True)
                self.strategy.push_gradients(pairs, self._update)
            self._end()
            return read

        read = self.strategy.run(step)
        return [self.strategy.experimental_local_results(value)[0] for value in read]


def _wait(seconds):
    """Waits on the worker, until what is returned has been computed."""
    end = tf.timestamp() + tf.cast(seconds, tf.float64)
    return tf.while_loop(lambda now: now < end, lambda _: [tf.timestamp()], [tf.timestamp()])[0]


def push_in_turn(count, shapes=(_SHAPE,), **kwargs):
    """Pushes gaussian gradients one after the other; returns all there is to see."""
    loop = Loop(shapes, **kwargs)
    pushes = [
        [gaussian([step, i], shape) for i, shape in enumerate(shapes)] for step in range(count)
    ]
    read = loop.push_all(pushes)
    names = [f"variable_{i}" for i in range(len(shapes))]
    residuals = [loop.strategy.residuals.total(name).numpy() for name in names]
    return read, loop.values, residuals, loop.strategy.traffic.as_dict()


class ConvertedUpdateLoop(Loop):
    """Whose update has a condition that AutoGraph makes an operation of."""

    def _update(self, grads_and_vars):
        for gradient, variable in grads_and_vars:
            if tf.reduce_mean(gradient) > 0:
                variable.assign_sub(gradient)
            else:
                variable.assign_add(2 * gradient)


def push_with_a_converted_update(**kwargs):
    """Pushes 1 and -1; returns the value, and the modules whose functions AutoGraph converts."""
    loop = ConvertedUpdateLoop(**kwargs)
    with mock.patch.object(api, "_convert_actual", wraps=api._convert_actual) as convert:
        loop.push_all([[np.full(_SHAPE, gradient, np.float32)] for gradient in (1, -1)])
    return loop.values[0], {call.args[0].__module__ for call in convert.call_args_list}


def push_in_turn_as_a_first_strategy(*args, **kwargs):
    """As `push_in_turn` in a program that has made no variables before, which are numbered."""
    with mock.patch.object(parameter_server, "variable_ids", itertools.count()):
        return push_in_turn(*args, **kwargs)


class TwoRunsLoop(Loop):
    """Whose steps are two calls of `run` in one function."""

    def _push(self, gradients, delay):
        return [*super()._push(gradients, delay), *super()._push(gradients, delay)]


def push_in_two_runs(count, delay, **kwargs):
    """Pushes the same gradient twice in each function; returns what was read and the traffic."""
    loop = TwoRunsLoop(**kwargs)
    read = [loop.push([gaussian(step)], delay).fetch() for step in range(count)]
    return read, loop.strategy.traffic.as_dict()


class InnerFunctionLoop(Loop):
    """Whose steps are one inner function, which is traced once; the outer one is traced twice."""

    @tf.function
    def _inner(self, gradient):
        with tf.GradientTape():
            read = tf.identity(self.variables[0])
        self.strategy.push_gradients([(gradient, self.variables[0])], self._update)
        return read

    def _call(self, gradient):
        return self._inner(gradient)

    def _push(self, gradients, delay):
        del delay  # a number, or None: the function is traced for each
        read = self.strategy.run(self._call, args=gradients)
        return [self.strategy.experimental_local_results(read)[0]]


class InnerFunctionInConditionsLoop(InnerFunctionLoop):
    """Whose steps call the inner function in a condition, in a function, in a condition."""

    @tf.function
    def _call(self, gradient):
        always = tf.reduce_all(tf.equal(gradient, gradient))

        @tf.function
        def call():
            return tf.cond(always, lambda: self._inner(gradient), lambda: tf.zeros(_SHAPE))

        return tf.cond(always, call, lambda: tf.zeros(_SHAPE))


class ClippingInnerFunctionLoop(Loop):
    """Whose steps write what they read after an inner function has pushed, or written.

    The inner function is traced once, and the outer one twice.
    """

    @tf.function
    def _inner(self, gradient):
        @tf.function
        def inmost():
            self.strategy.push_gradients([(gradient, self.variables[0])], self._update)
            self.variables[1].assign_add(gradient)

        inmost()

    def _push(self, gradients, delay):
        del delay  # as above

        def step():
            with tf.GradientTape():
                read = [tf.identity(variable) for variable in self.variables]
            with tf.control_dependencies(read):
                self._inner(gradients[0])
            for variable in self.variables:
                variable.assign(tf.clip_by_value(variable, -100.0, 100.0))
            return read

        return self.strategy.run(step)


def clip_after_an_inner_function(count, **kwargs):
    """Returns the variables after as many steps, of two traces in turn."""
    loop = ClippingInnerFunctionLoop((_SHAPE,) * 2, **kwargs)
    for number in range(count):
        gradients = [np.ones(_SHAPE, np.float32)] * 2
        loop.push(gradients, None if number % 2 else 0.0).fetch()
    return loop.values


def push_in_an_inner_function(count, is_in_turn, loop=InnerFunctionLoop, **kwargs):
    """Pushes ones, from steps of two traces in turn; returns what was read, and the values."""
    loop = loop(**kwargs)
    steps = []
    own = mock.Mock(side_effect=AssertionError("a step has the copy of its worker"))
    with mock.patch.object(ServerVariables, "own_copy", own):
        for number in range(count):
            steps.append(loop.push([np.ones(_SHAPE, np.float32)], None if number % 2 else 0.0))
            if is_in_turn:
                loop.coordinator.join()
        return [float(step.fetch()[0].mean()) for step in steps], loop.values


def reads_of_a_function(count, **kwargs):
    """Takes steps that push ones, and twice add them to another variable.

    Returns for each step the means that a function, traced in a step, reads: in the step before and
    after that, when the chief calls it, and when a worker does outside of a step.
    """
    loop = Loop((_SHAPE,) * 2, **kwargs)
    pushed, written = loop.variables

    @tf.function
    def read():
        first_rows = tf.gather(written, tf.constant([0, 1]))
        return [tf.reduce_mean(value) for value in (pushed, written, first_rows)]

    @tf.function
    def add(ones):
        with tf.GradientTape():
            total = written + ones
        written.assign(total)

    @tf.function
    def take_step(ones):
        def step():
            with tf.GradientTape():
                before = read()
            with tf.control_dependencies(before):
                loop.strategy.push_gradients([(ones, pushed)], loop._update)
                add(ones)
                add(ones)
            return before, read()

        return loop.strategy.run(step)

    @tf.function
    def read_elsewhere():
        return read()

    seen = []
    for _ in range(count):
        before, after = loop.coordinator.schedule(take_step, args=(tf.ones(_SHAPE),)).fetch()
        on_worker = loop.coordinator.schedule(read_elsewhere).fetch()
        reads = (before, after, read(), on_worker)
        seen.append([[float(mean) for mean in means] for means in reads])
    return seen


def devices_of_own_copies(workers):
    """Returns where the copy is that a function reads which the chief, or a worker, calls."""
    loop = Loop(compression=tf_gc.Policy())
    (server,) = loop.strategy.extended.servers.values()
    devices = []
    for caller in (None, *(f"/job:worker/task:{i}" for i in range(workers))):
        with tf.device(caller):
            model, _ = server.own_copy()
        devices.append(tf.DeviceSpec.from_string(model.device))
    return [(device.job, device.task) for device in devices]


class LoopAndRunLoop(Loop):
    """Whose steps are two calls of `run` in a loop, and one after it, in one function."""

    def _push(self, gradients, delay):
        push = super()._push
        zeros = [tf.zeros(_SHAPE)]
        _, first = tf.while_loop(
            lambda i, _: i < 2, lambda i, _: (i + 1, push(gradients, delay)), (0, zeros)
        )
        return [*first, *push(gradients, delay)]


def push_in_a_loop_and_a_run(count, **kwargs):
    """Pushes the same gradient three times in each function; returns what two of them read."""
    loop = LoopAndRunLoop(**kwargs)
    return [loop.push([gaussian(step)], None).fetch() for step in range(count)]


class CountingLoop(Loop):
    """Whose updates add one to all variables."""

    def _update(self, grads_and_vars):
        for _, variable in grads_and_vars:
            variable.assign_add(tf.ones(_SHAPE))


def updates_that_steps_read(delays, **kwargs):
    """Returns of each of two variables how many updates each step has read."""
    loop = CountingLoop((_SHAPE,) * 2, **kwargs)
    steps = [loop.push([gaussian(0)] * 2, delay) for delay in delays]
    return [[float(value.max()) for value in step.fetch()] for step in steps]


class GatheringLoop(Loop):
    """Whose steps read rows in two ways, and push the gradients of the second one."""

    def _push(self, gradients, delay):
        def step():
            [variable], [values] = self.variables, gradients
            indices = tf.range(variable.shape[0])
            with tf.GradientTape() as tape:
                rows = tf.gather(variable, indices)
                same = tf.gather_nd(variable, indices[:, None])
                loss = tf.reduce_sum(values * same)
            self.strategy.push_gradients([(tape.gradient(loss, variable), variable)], self._update)
            return rows, same

        return [self.strategy.experimental_local_results(v)[0] for v in self.strategy.run(step)]


def gather_rows(count, **kwargs):
    """Returns what each step has read, and the variable at the end."""
    loop = GatheringLoop(**kwargs)
    return loop.push_all([[gaussian(step)] for step in range(count)]), loop.values[0]


def run_what_was_called_before():
    """Steps of a tf.function that was traced outside of the strategy; returns the traffic."""
    strategy = make_strategy(compression=tf_gc.Policy())
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variable = tf.Variable(tf.zeros(_SHAPE))
        optimizer = tf.keras.optimizers.SGD(1.0)
        optimizer.build([variable])

    @tf.function
    def step():
        optimizer.apply_gradients([(tf.ones(_SHAPE), variable)])

    step()
    function = tf.function(lambda: strategy.run(step))
    for _ in range(3):
        coordinator.schedule(function).fetch()
    return strategy.traffic.as_dict()


def gradients_in_a_vectorized_map(reads_before):
    """Returns the gradient of the sum of 3 W^T x and of W's rows 1, 2 and 1, and all x.

    Args:
      reads_before: whether the step has read W when the map begins.
    """
    strategy = make_strategy(compression=tf_gc.Policy())
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variable = tf.Variable(gaussian(0))
    vectors = gaussian(1, (5, _SHAPE[0]))

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable) if reads_before else 0.0
            products = tf.vectorized_map(
                lambda vector: 3 * tf.linalg.matvec(variable, vector, transpose_a=True), vectors
            )
            rows = tf.vectorized_map(lambda i: tf.gather(variable, i), tf.constant([1, 2, 1]))
            loss += tf.reduce_sum(products) + tf.reduce_sum(rows)
        return tf.convert_to_tensor(tape.gradient(loss, variable))

    function = tf.function(lambda: strategy.run(step))
    return coordinator.schedule(function).fetch(), vectors


class BranchingLoop(Loop):
    """Whose steps read rows in one branch of a condition."""

    def __init__(self, most, **kwargs):
        super().__init__(**kwargs)
        self._most = most

    def _push(self, gradients, delay):
        del delay

        def step():
            [variable], [values] = self.variables, gradients
            indices = tf.range(variable.shape[0])
            with tf.GradientTape() as tape:
                loss = tf.cond(
                    tf.reduce_max(values) < self._most,
                    lambda: tf.reduce_sum(values * tf.gather(variable, indices)),
                    lambda: 0.0,
                )
            self.strategy.push_gradients([(tape.gradient(loss, variable), variable)], self._update)

        self.strategy.run(step)


def gather_rows_in_a_branch(count, most):
    """Returns the variable after steps that read it where no value is above `most`."""
    loop = BranchingLoop(most, compression=tf_gc.Policy())
    loop.push_all([[gaussian(step)] for step in range(count)])
    return loop.values[0]


class WatchedVariablesLoop(Loop):
    """Whose steps push gradients of what the tape has watched, and then add one to it."""

    def _push(self, gradients, delay):
        del delay

        def step():
            with tf.GradientTape() as tape:
                read = [tf.identity(variable) for variable in self.variables]
                loss = tf.add_n(
                    [tf.reduce_sum(g * r) for g, r in zip(gradients, read, strict=True)]
                )
            variables = tape.watched_variables()
            pairs = zip(tape.gradient(loss, variables), variables, strict=True)
            self.strategy.push_gradients(pairs, self._update)
            for variable in variables:
                variable.assign_add(tf.ones(_SHAPE))
            return read

        return self.strategy.run(step)


def push_watched_variables(count, **kwargs):
    """Returns what each step has read of two variables, of which one is left alone."""
    loop = WatchedVariablesLoop(
        (_SHAPE,) * 2, compression=tf_gc.Policy(rules={"variable_1": None}), **kwargs
    )
    return loop.push_all([[gaussian([step, i]) for i in range(2)] for step in range(count)])


class ClippingLoop(Loop):
    """Whose steps write what they read after they have pushed."""

    def _end(self):
        for variable in self.variables:
            variable.assign(tf.clip_by_value(variable, -100.0, 100.0))


def clip_after_pushes(count, **kwargs):
    loop = ClippingLoop(**kwargs)
    loop.push_all([[gaussian(step)] for step in range(count)])
    return loop.values[0]


class SlowWriteLoop(Loop):
    """Whose updates write what they have read half a second before."""

    def _update(self, grads_and_vars):
        for gradient, variable in reversed(grads_and_vars):
            read = variable.read_value()
            with tf.control_dependencies([read]):
                waited = _wait(0.5)
            with tf.control_dependencies([waited]):
                variable.assign(read - gradient)


def slow_writes_at_once(count, **kwargs):
    """Pushes from all workers at the same time; returns the variable."""
    loop = SlowWriteLoop(**kwargs)
    for step in range(count):
        loop.push([gaussian(step)])
    loop.coordinator.join()
    return loop.values[0]


class LastVariablesLoop(SlowWriteLoop):
    """Whose pushes have gradients of the last variables alone."""

    def _push(self, gradients, delay):
        del delay

        def step():
            with tf.GradientTape():
                read = [tf.identity(variable) for variable in self.variables]
            with tf.control_dependencies(read):
                pairs = zip(gradients, self.variables[-len(gradients) :], strict=True)
                self.strategy.push_gradients(pairs, self._update)

        self.strategy.run(step)


def slow_writes_of_two_and_of_one(count, **kwargs):
    """Pushes ones of two variables, on two servers, and at the same time of the last one alone.

    Returns the last variable's value.
    """
    loop = LastVariablesLoop((_SHAPE,) * 2, **kwargs)
    ones = np.ones(_SHAPE, np.float32)
    for _ in range(count):
        pushes = [loop.push([ones] * variables) for variables in (2, 1)]
        for push in pushes:
            push.fetch()
    return float(loop.values[1].max())


class FollowingLoop(Loop):
    """Of two variables, on two servers, of which the second counts the updates of the first."""

    def _update(self, grads_and_vars):
        super()._update(grads_and_vars)
        self.variables[1].assign_add(tf.ones(_SHAPE))

    def _push(self, gradients, delay):
        del delay

        def step():
            with tf.GradientTape():
                read = tf.identity(self.variables[1])
            with tf.control_dependencies([read]):
                pairs = [(gradients[0], self.variables[0])]
                self.strategy.push_gradients(pairs, self._update)
            return read

        return self.strategy.run(step)


def updates_of_another_server(count, **kwargs):
    """Returns what each step has read of the variable that is not pushed, a number each."""
    loop = FollowingLoop((_SHAPE,) * 2, **kwargs)
    devices = {pulled_variable.find(variable).device for variable in loop.variables}
    read = loop.push_all([[gaussian(step)] * 2 for step in range(count)])
    return len(devices), [float(value.max()) for value in read]


def uncompressed_loop(count):
    """Pushes in turn without compression, as TensorFlow's strategy; returns the variable."""
    loop = Loop()
    loop.push_all([[gaussian(step)] for step in range(count)])
    return loop.values[0]


def push_outside_of_a_step(compression):
    loop = Loop(compression=compression)
    loop.strategy.push_gradients([(tf.ones(_SHAPE), loop.variables[0])], loop._update)


def push_in_pieces(piece_bytes, *args, **kwargs):
    """As `push_in_turn`, with messages in pieces of about so many bytes a piece at most."""
    with mock.patch.object(message_pieces, "PIECE_BYTES", piece_bytes):
        return push_in_turn(*args, **kwargs)


class ReplicaLoop(Loop):
    """Whose replicas, of one worker, push their numbers, counted from one.

    An update also adds what it subtracts to a variable that is not trained.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.strategy.scope():
            self.momentum = tf.Variable(tf.zeros(_SHAPE), trainable=False)

    def _update(self, grads_and_vars):
        super()._update(grads_and_vars)
        ((gradient, _),) = grads_and_vars
        self.momentum.assign_add(gradient)

    def _push(self, gradients, delay):
        def step(gradient):
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            self.strategy.push_gradients(
                [(gradient * tf.cast(replica + 1, tf.float32), self.variables[0])],
                lambda grads_and_vars: self._update(grads_and_vars),  # each has one of its own
            )

        self.strategy.run(step, args=(gradients[0],))


def push_of_replicas(**kwargs):
    """Returns the variable and the other one after a push."""
    loop = ReplicaLoop(**kwargs)
    loop.push([np.ones(_SHAPE, np.float32)]).fetch()
    return loop.values[0], loop.momentum.numpy()


class SlowLoop(Loop):
    """Whose updates take two seconds, and are counted."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.strategy.scope():
            self.updates = tf.Variable(0, trainable=False)

    def _update(self, grads_and_vars):
        with tf.control_dependencies([_wait(2.0)]):
            super()._update(grads_and_vars)
            self.updates.assign_add(1)


def update_that_outlasts_its_lease():
    """Three workers push ones at the same time, each of which would be a round.

    Returns the updates that were made, those that were counted, the leases that were passed on,
    and the variable.
    """
    with mock.patch.object(parameter_server, "_LEASE_SECONDS", 0.0):
        loop = SlowLoop(synchronous=True, replicas_to_aggregate=1)
    for future in [loop.push([np.ones(_SHAPE, np.float32)]) for _ in range(3)]:
        future.fetch()
    (server,) = loop.strategy.extended.servers.values()
    leases = server.counters()["leases_passed_on"]
    return int(loop.updates.numpy()), loop.strategy.traffic.updates, leases, loop.values[0]


class LossyLoop(Loop):
    """Steps with a negative delay fail when the server has taken their push, or before.

    Args:
      has_arrived: which.
      kwargs: of `Loop`.
    """

    def __init__(self, has_arrived, **kwargs):
        super().__init__(**kwargs)
        self._has_arrived = has_arrived

    def _push(self, gradients, delay):
        def accumulate(server, push, master):
            with tf.control_dependencies([] if self._has_arrived else [check(push)]):
                answer = ops_accumulate(server, tf.identity(push), master)
            with tf.control_dependencies([check(answer.accepted)] if self._has_arrived else []):
                return [tf.identity(part) for part in answer]

        def check(after):
            with tf.control_dependencies([after]):
                return tf.debugging.assert_greater_equal(delay, 0.0, "the push is lost")

        ops_accumulate = ops.accumulate_push
        with mock.patch.object(ops, "accumulate_push", accumulate):
            return super()._push(gradients, delay)


def pushes_that_get_no_answer(pushes, has_arrived, **kwargs):
    """Pushes in turn, of which the second and the third fail.

    Args:
      pushes: their number.
      has_arrived: whether the server has taken those.
      kwargs: of the strategy.

    Returns:
      The variable, the residual, and the number of steps that failed.
    """
    loop = LossyLoop(has_arrived, **kwargs)
    failed = 0
    for step in range(pushes):
        loop.push([gaussian(step)], delay=-1.0 if step in (1, 2) else 0.0)
        try:
            loop.coordinator.join()
        except tf.errors.InvalidArgumentError:
            failed += 1
    return loop.values[0], loop.strategy.residuals.total("variable_0").numpy(), failed


def push_to_a_server_without_memory(directory, **kwargs):
    """Pushes when there is a file "limited", and again when there is a file "unlimited".

    After the first push it makes a file "refused".

    Returns:
      The first push's error, and by how much the variable and the residual miss both gradients.
    """
    directory, shape = pathlib.Path(directory), (4096, 4096)
    gradients = [gaussian(step, shape) for step in range(2)]
    loop = Loop((shape,), **kwargs)

    def read():
        with tf.GradientTape():
            return tf.reduce_sum(loop.variables[0])

    # The whole model is pulled now, so that the push is what the server has no memory for.
    loop.coordinator.schedule(tf.function(lambda: loop.strategy.run(read))).fetch()
    (directory / "started").touch()
    wait_until((directory / "limited").exists, "the server has no more memory")
    error = None
    try:
        loop.push(gradients[:1], delay=None)
        loop.coordinator.join()
    except tf.errors.ResourceExhaustedError as refused:
        error = str(refused)
    finally:
        (directory / "refused").touch()
    wait_until((directory / "unlimited").exists, "the server has memory again")
    loop.push_all([gradients[1:]])
    residual = loop.strategy.residuals.total("variable_0").numpy()
    return error, float(np.abs(residual - loop.values[0] - sum(gradients)).max())


def strategies_in_turn():
    """Returns whether what a strategy has had on its server is there when the next one is made."""
    loop = Loop(compression=tf_gc.ThreeLC())
    loop.push_all([[gaussian(0)]])
    (server,) = loop.strategy.extended.servers.values()
    handle, device = server.handle, server.device
    del loop, server
    gc.collect()
    another = Loop(compression=tf_gc.ThreeLC())
    another.push_all([[gaussian(0)]])
    try:
        with tf.device(device):
            ops.server_statistics(handle).counters.numpy()
    except tf.errors.NotFoundError:
        return False
    return True


def models_in_turn(count, shape, directory, compression):
    """Makes a model again and again with one strategy, and drops the one before.

    After each it touches a file, named by its number, and waits until that is gone.

    Returns:
      What was pushed of each name, how many variables the server has in the end, and the names
      that a checkpoint would have.
    """
    strategy = make_strategy(compression=compression)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    previous = None
    for model in range(count):
        loop = Loop((shape,), strategy, coordinator)
        gradients = [gaussian(model, shape)]
        loop.push_all([gradients] * 2)
        if previous is not None:
            # Its functions also pull the model before it, which is gone.
            previous.push_all([gradients])
        previous = loop
        del loop
        gc.collect()
        mark = pathlib.Path(directory, str(model))
        mark.touch()
        wait_until(lambda mark=mark: not mark.exists(), "the test goes on")
    del previous
    gc.collect()
    last = Loop(((30,),), strategy, coordinator)
    last.push_all([[gaussian(0, (30,))]])
    (server,) = strategy.extended.servers.values()
    with tf.device(server.device):
        known = ops.server_statistics(server.handle).ids.numpy().tolist()
    counted = [(v.name, v.compressor, v.values_pushed) for v in strategy.traffic.variables]
    return counted, len(known), sorted(strategy.residuals._trackable_children())


def names_of_models_in_turn(count, kept=0):
    """Returns what names checkpoints have with each of some models, and when all are gone.

    No time passes meanwhile. So many models are made before, and stay.
    """
    strategy = make_strategy(compression=tf_gc.ThreeLC())
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    names = []
    gc.disable()  # it may come late
    with mock.patch.object(server_residuals, "time", monotonic=lambda: 0.0):
        others = [Loop(strategy=strategy, coordinator=coordinator) for _ in range(kept)]
        for _ in range(count):
            loop = Loop(strategy=strategy, coordinator=coordinator)
            loop.push_all([[gaussian(0)]])
            names.append(sorted(strategy.residuals._trackable_children()))
            del loop  # which is in cycles of references, as models are
    gc.enable()
    gc.collect()
    del others
    return [*names, sorted(strategy.residuals._trackable_children())]


def forget_one_of_two_in_a_round():
    """Pushes half a round of two variables; returns what waits of one when the other is gone."""
    loop = Loop(
        (_SHAPE,) * 2, compression=tf_gc.Policy(), synchronous=True, replicas_to_aggregate=2
    )
    loop.push_all([[gaussian(0), gaussian(1)]])
    strategy, kept = loop.strategy, pulled_variable.find(loop.variables[0])
    del loop
    gc.collect()
    with strategy.scope():
        tf.Variable(tf.zeros(_SHAPE), name="third")
    (server,) = strategy.extended.servers.values()
    names = [variable.name for variable in server.variables]
    return names, strategy.residuals.total(kept.tf_gc_entry.name).numpy()


class SecondMomentLoop(Loop):
    """Whose update also keeps what second moment the gradient of the only variable has."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.strategy.scope():
            self.second_moment = tf.Variable(tf.zeros(_SHAPE), trainable=False)

    def _update(self, grads_and_vars):
        super()._update(grads_and_vars)
        ((gradient, _),) = grads_and_vars
        self.second_moment.assign(second_moments.of(gradient))


def second_moments_in_turn(gradients, **kwargs):
    """Pushes gradients in turn.

    Returns the variable and the second moment after each push, the residual, and the traffic.
    """
    loop = SecondMomentLoop(**kwargs)
    seen = []
    for gradient in gradients:
        loop.push_all([[gradient]])
        seen.append((loop.values[0], loop.second_moment.numpy()))
    residual = loop.strategy.residuals.total("variable_0").numpy()
    return seen, residual, loop.strategy.traffic.as_dict()


def adam_in_turn(package, gradients, learning_rate, options=(), **kwargs):
    """Pushes gradients to Adam; returns the variable and the velocity after each push.

    Args:
      package: "keras" or "tf_keras".
      gradients: with a `loss_scale_factor`, before that.
      learning_rate: Adam's.
      options: more of Adam's arguments.
      kwargs: the strategy's.
    """
    optimizers = importlib.import_module(package).optimizers
    strategy = make_strategy(**kwargs)
    with strategy.scope():
        adam = optimizers.Adam(learning_rate, **dict(options))
    factor = getattr(adam, "loss_scale_factor", None) or 1.0
    kernels = _train_a_kernel(package, strategy, adam, [factor * g for g in gradients])
    return [(kernel, adam._velocities[0].numpy()) for kernel in kernels]


def _train_a_kernel(package, strategy, optimizer, gradients):
    """Pushes gradients to an optimizer; yields the variable after each push."""
    layers = importlib.import_module(package).layers
    with strategy.scope():
        layer = layers.Dense(_SHAPE[1], use_bias=False, kernel_initializer="zeros")
        layer.build((None, _SHAPE[0]))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    @tf.function
    def step(gradient):
        strategy.run(lambda: optimizer.apply_gradients([(gradient, layer.kernel)]))

    for gradient in gradients:
        coordinator.schedule(step, args=(tf.constant(gradient),)).fetch()
        yield layer.kernel.numpy()


def warnings_of_an_optimizer(package, name, **kwargs):
    """Pushes twice; returns what is warned of."""
    strategy = make_strategy(**kwargs)
    with strategy.scope():
        optimizer = getattr(importlib.import_module(package).optimizers, name)()
    with (
        mock.patch.object(second_moments, "_has_warned", False),
        mock.patch.object(logging, "warning") as warning,
    ):
        list(_train_a_kernel(package, strategy, optimizer, [gaussian(i) for i in range(2)]))
    return [call.args[0] % call.args[1:] for call in warning.call_args_list]


def loopback_bytes(steps, shape, **kwargs):
    """Takes steps whose gradients are made on the worker.

    Returns the bytes that the loopback interface has sent meanwhile, and those of `traffic`.
    """
    strategy = make_strategy(**kwargs)
    with strategy.scope():
        variable = tf.Variable(tf.zeros(shape))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    def update(grads_and_vars):
        ((gradient, updated),) = grads_and_vars
        updated.assign_sub(gradient)

    def step():
        with tf.GradientTape():
            gradient = tf.random.normal(shape) + 1e-6 * tf.identity(variable)
        strategy.push_gradients([(gradient, variable)], update)

    train_step = tf.function(lambda: strategy.run(step))

    def counts():
        traffic = strategy.traffic
        sent = psutil.net_io_counters(pernic=True)["lo"].bytes_sent
        return sent, traffic.bytes_pushed + traffic.bytes_pulled

    coordinator.schedule(train_step)
    coordinator.join()
    before = counts()
    for _ in range(steps):
        coordinator.schedule(train_step)
    coordinator.join()
    return np.subtract(counts(), before).tolist()


def copies_in_turn(count, **kwargs):
    """Pushes in turn; returns what each step has read, and the variable's value before it."""
    loop = Loop(**kwargs)
    values, read = [], []
    for step in range(count):
        values += loop.values
        read += loop.push_all([[gaussian([step, 0])]])[0]
    return np.stack(read), np.stack(values)


class OwnUpdateLoop(Loop):
    """Updates by an optimizer of TensorFlow's own in the step, as workers must not."""

    def _push(self, gradients, delay):
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        pairs = list(zip(gradients, self.variables, strict=True))
        self.strategy.run(lambda: optimizer.apply_gradients(pairs))


def traffic_while(name):
    """Makes a second variable, and has the first one go, while another thread reads the traffic.

    Args:
      name: of the op after which it reads.

    Returns:
      The names in the traffic then.
    """
    strategy = make_strategy(compression=tf_gc.Policy())
    with strategy.scope():
        gone = tf.Variable(tf.zeros(_SHAPE), name="gone")
        op, read = getattr(ops, name), []

        def and_read(*args, **kwargs):
            result = op(*args, **kwargs)
            read.append(reader.submit(lambda: strategy.traffic.variables))
            # It may have to wait for what comes after the op.
            concurrent.futures.wait(read, timeout=1.0)
            return result

        with (
            concurrent.futures.ThreadPoolExecutor(1) as reader,
            mock.patch.object(ops, name, and_read),
        ):
            del gone
            gc.collect()
            made = tf.Variable(tf.zeros(_SHAPE), name="made")
    del made
    return [[variable.name for variable in future.result()] for future in read]


def traffic_while_a_server_gets_its_first_variable():
    """Returns how many variables are in the traffic that is being read then."""
    strategy = make_strategy(compression=tf_gc.Policy())
    traffic, variables = ServerVariables.traffic, []

    def make_a_variable():
        with strategy.scope():
            variables.append(tf.Variable(tf.zeros(_SHAPE)))

    def traffic_and_a_variable(server):
        make_a_variable()
        return traffic(server)

    make_a_variable()
    with mock.patch.object(ServerVariables, "traffic", traffic_and_a_variable):
        return len(strategy.traffic.variables)


def update_in_a_step(**kwargs):
    loop = OwnUpdateLoop(**kwargs)
    loop.push([gaussian(0)])
    loop.coordinator.join()


def push_of_an_unknown_shape(**kwargs):
    strategy = make_strategy(**kwargs)
    with strategy.scope():
        variable = tf.Variable(tf.zeros([2, 3]), shape=[None, 3], name="variable")

    @tf.function
    def step():
        pairs = [(tf.ones([2, 3]), variable)]
        strategy.run(lambda: strategy.push_gradients(pairs, lambda pairs: None))

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    coordinator.schedule(step)
    coordinator.join()


def apply_without_variables(**kwargs):
    """Gives an optimizer of Keras 3 that is not built yet gradients alone."""
    strategy = make_strategy(**kwargs)
    with strategy.scope():
        tf.Variable(tf.zeros([3]))
        optimizer = keras.optimizers.SGD(0.1)

    @tf.function
    def step():
        strategy.run(lambda: optimizer.apply([tf.ones([3])]))

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    coordinator.schedule(step)
    coordinator.join()


def push_at_once(count, late_every=None, **kwargs):
    """Pushes from all workers at the same time; returns values, residual and traffic.

    Args:
      count: the number of pushes.
      late_every: one of so many waits between reading and pushing, while others push.
      kwargs: of the strategy.
    """
    loop = Loop(**kwargs)
    for step in range(count):
        is_late = late_every and step % late_every == late_every // 2
        loop.push([gaussian([step, 0])], delay=0.3 if is_late else 0.0)
    loop.coordinator.join()
    residual = loop.strategy.residuals.total("variable_0").numpy()
    return loop.values[0], residual, loop.strategy.traffic.as_dict()


def push_of_two_optimizers(order, **kwargs):
    """Pushes the first or the second variable's gradient in turn; returns their values."""
    strategy = make_strategy(**kwargs)
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(_SHAPE), name=f"variable_{i}") for i in range(2)]
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    def make_step(variable):
        def update(grads_and_vars):
            for gradient, updated in grads_and_vars:
                updated.assign_sub(gradient)

        @tf.function
        def step(gradient):
            strategy.run(lambda: strategy.push_gradients([(gradient, variable)], update))

        return step

    steps = [make_step(variable) for variable in variables]
    for number, which in enumerate(order):
        coordinator.schedule(steps[which], args=(tf.constant(gaussian([number, which])),)).fetch()
    return [variable.numpy() for variable in variables]


def push_of_optimizers_of_one_variable(package, order, **kwargs):
    """Pushes gradients to SGD with the learning rate 1 or 10 in turn; returns the variable."""
    sgd = importlib.import_module(package).optimizers.SGD
    strategy = make_strategy(**kwargs)
    with strategy.scope():
        layer = importlib.import_module(package).layers.Dense(
            _SHAPE[1], use_bias=False, kernel_initializer="zeros"
        )
        layer.build((None, _SHAPE[0]))
        optimizers = [sgd(1.0), sgd(10.0)]

    def make_step(optimizer):
        return tf.function(
            lambda gradient: strategy.run(
                lambda: optimizer.apply_gradients([(gradient, layer.kernel)])
            )
        )

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    steps = [make_step(optimizer) for optimizer in optimizers]
    for number, which in enumerate(order):
        coordinator.schedule(steps[which], args=(tf.constant(gaussian(number)),))
        coordinator.join()
    return layer.kernel.numpy()


def replace_an_optimizer_in_a_round(package):
    """Pushes half a round to an optimizer that is dropped then, and a round to another one.

    Returns what waits after each of these three pushes, the pushes in open rounds after the
    second, and the variable.
    """
    sgd = importlib.import_module(package).optimizers.SGD
    strategy = make_strategy(compression=tf_gc.Policy(), synchronous=True, replicas_to_aggregate=2)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        layer = importlib.import_module(package).layers.Dense(
            _SHAPE[1], use_bias=False, kernel_initializer="zeros"
        )
        layer.build((None, _SHAPE[0]))

    def make_step():
        with strategy.scope():
            optimizer = sgd(1.0)

        @tf.function
        def step(gradient):
            strategy.run(lambda: optimizer.apply_gradients([(gradient, layer.kernel)]))

        return step

    def push(step, seed):
        coordinator.schedule(step, args=(tf.constant(gaussian(seed)),))
        coordinator.join()
        waiting.append(strategy.residuals.total(server.variables[0].name).numpy())
        open_pushes.append(server.counters()["open_pushes"])

    (server,) = strategy.extended.servers.values()
    waiting, open_pushes = [], []
    step = make_step()
    push(step, 0)
    step = None
    gc.collect()
    step = make_step()
    push(step, 1)
    push(step, 2)
    return waiting, open_pushes, layer.kernel.numpy()


def push_of_two_forms(order, **kwargs):
    """Pushes ones as a tensor, or of the first row alone as it is, in turn; returns the values."""
    loop = Loop(**kwargs)
    ones = tf.ones(_SHAPE)
    gradients = [ones, tf.IndexedSlices(ones[:1], tf.constant([0]), tf.constant(_SHAPE))]
    for which in order:
        loop.coordinator.schedule(loop._step, args=([gradients[which]], None)).fetch()
    return loop.values[0]


def data(seed=0, count=512):
    """Examples that a small network learns quickly."""
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((count, _INPUTS)).astype(np.float32)
    labels = inputs[:, : 8 * _CLASSES].reshape(count, _CLASSES, 8).sum(2).argmax(1)
    return inputs, labels.astype(np.int64)


def dataset(batch_size=32):
    return tf.data.Dataset.from_tensor_slices(data()).shuffle(512).repeat().batch(batch_size)


def keras3_loop(steps, dtype_policy="float32", **kwargs):
    """Trains a Keras 3 model in a coordinator's loop; returns losses, accuracy, traffic."""
    keras.utils.set_random_seed(0)
    strategy = make_strategy(**kwargs)
    keras.config.set_dtype_policy(dtype_policy)
    try:
        with strategy.scope():
            model = keras.Sequential(
                [
                    keras.layers.Input((_INPUTS,)),
                    keras.layers.Dense(64, activation="relu"),
                    keras.layers.Dense(64, activation="relu"),
                    keras.layers.Dense(_CLASSES, dtype="float32"),
                ]
            )
            optimizer = keras.optimizers.Adam(0.005)
            if dtype_policy == "mixed_float16":
                optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    finally:
        keras.config.set_dtype_policy("float32")
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    iterator = iter(coordinator.create_per_worker_dataset(dataset))
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(iterator):
        def step(inputs, labels):
            with tf.GradientTape() as tape:
                loss = loss_fn(labels, model(inputs, training=True))
                scaled = optimizer.scale_loss(loss)
            gradients = tape.gradient(scaled, model.trainable_variables)
            optimizer.apply(gradients, model.trainable_variables)
            return loss

        losses = strategy.run(step, args=next(iterator))
        return strategy.experimental_local_results(losses)[0]

    losses = [coordinator.schedule(train_step, args=(iterator,)) for _ in range(steps)]
    coordinator.join()
    inputs, labels = data()
    accuracy = float(np.mean(model(inputs).numpy().argmax(1) == labels))
    return {
        "losses": [float(loss.fetch()) for loss in losses],
        "accuracy": accuracy,
        "iterations": int(optimizer.iterations.numpy()),
        "traffic": strategy.traffic.as_dict(),
    }


def metric_of_steps_at_once(package, steps, in_run=True, **kwargs):
    """Takes steps that add ones to a mean, of which all have begun before any has one to add.

    Returns the mean's total and count.
    """
    strategy = make_strategy(**kwargs)
    with strategy.scope():
        metric = importlib.import_module(package).metrics.Mean()

    def update():
        with tf.control_dependencies([_wait(0.5)]):
            values = tf.identity(tf.ones([4]))
        metric.update_state(values)

    step = tf.function((lambda: strategy.run(update)) if in_run else update)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    for _ in range(steps):
        coordinator.schedule(step)
    coordinator.join()
    return [float(variable.numpy()) for variable in metric.variables]


class CountingLayer(keras.layers.Layer):
    """Counts its calls in each of two values."""

    def build(self, input_shape):
        self.calls = self.add_weight(shape=(2,), initializer="zeros", trainable=False)

    def call(self, inputs):
        self.calls.assign_add(1.0)
        return inputs


def counts_of_a_layer(steps, **kwargs):
    """Calls a layer of mixed precision in steps, as it is and then without state; returns both."""
    strategy = make_strategy(**kwargs)
    with strategy.scope():
        layer = CountingLayer(dtype="mixed_bfloat16")
        layer.build((1,))

    @tf.function
    def step():
        def replica_step():
            layer(tf.ones([1]))
            state = layer.non_trainable_variables
            _, [calls] = layer.stateless_call([], [tf.fill([2], 7.0)] * len(state), tf.ones([1]))
            return calls

        return strategy.run(replica_step)

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    without_state = [coordinator.schedule(step).fetch().tolist() for _ in range(steps)]
    return layer.calls.numpy().tolist(), without_state


def saved_model(package, directory):
    """All bytes of a trained model that is saved and exported, and what loaded ones predict."""
    package = importlib.import_module(package)
    strategy = make_strategy(compression=tf_gc.ThreeLC())
    with strategy.scope():
        model = package.Sequential(dense_layers(package.layers))
        optimizer = adam(package.optimizers)
    inputs = tf.constant(data()[0][:8])

    @tf.function
    def train_step():
        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(inputs, training=True)))
            variables = model.trainable_variables
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

        strategy.run(step)

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    for _ in range(3):
        coordinator.schedule(train_step)
    coordinator.join()
    directory = pathlib.Path(directory)
    model.save(directory / "model.keras")
    model.export(str(directory / "exported"))
    with zipfile.ZipFile(directory / "model.keras") as archive:
        contents = [archive.read(name) for name in archive.namelist()]
    contents += [path.read_bytes() for path in directory.rglob("*") if path.is_file()]
    loaded = package.models.load_model(directory / "model.keras")
    exported = tf.saved_model.load(str(directory / "exported"))
    predictions = [function(inputs).numpy() for function in (model, loaded, exported.serve)]
    return b"".join(contents), predictions


class _Subclassed(keras.Model):
    """Its layers' variables are made after the first call of it has gone through all of them."""

    def __init__(self):
        super().__init__(name="net")
        self.body = keras.layers.Dense(64, name="body")
        self.head = keras.layers.Dense(32, name="head")

    def call(self, inputs):
        return self.head(self.body(inputs))


def compressed_variables_of_keras_3(compression):
    """Returns the paths of a model's matrices, the strategy's names, and which it compresses."""
    strategy = make_strategy(compression=compression)
    with strategy.scope():
        sequential = keras.Sequential([keras.layers.Dense(64, name="dense")], name="sequential")
        models = [_Subclassed(), sequential]
        for model in models:
            model(tf.zeros([1, 48]))
    kernels = [v for model in models for v in model.trainable_variables if len(v.shape) == 2]
    entries = [pulled_variable.find(v.value).tf_gc_entry for v in kernels]
    return (
        [v.path for v in kernels],
        [entry.name for entry in entries],
        [entry.name for entry in entries if type(entry.compressor) is tf_gc.ThreeLC],
    )


def keras3_fit():
    strategy = make_strategy(compression=tf_gc.ThreeLC())
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((_INPUTS,)), keras.layers.Dense(_CLASSES)])
        model.compile(loss="mse")
    model.fit(*data())


def _tf_keras_model(strategy, layers, optimizer, **compile_kwargs):
    import tf_keras

    with strategy.scope():
        model = tf_keras.Sequential(layers(tf_keras.layers))
        model.compile(
            optimizer=optimizer(tf_keras.optimizers),
            loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            **compile_kwargs,
        )
    return model


def dense_layers(layers):
    return [
        layers.Input((_INPUTS,)),
        layers.Dense(64, activation="relu"),
        layers.BatchNormalization(),
        layers.Dense(64, activation="relu"),
        layers.Dense(_CLASSES),
    ]


def frozen_layers(layers):
    return [layers.Input((_INPUTS,)), layers.Dense(_CLASSES, trainable=False)]


def lazy_layers(layers):
    return dense_layers(layers)[1:]


def convolution_layers(layers):
    return [
        layers.Reshape((8, 8, 1), input_shape=(_INPUTS,)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Conv2D(16, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(_CLASSES),
    ]


def adam(optimizers):
    return optimizers.Adam(0.01)


def adamw(optimizers):
    return optimizers.AdamW(
        optimizers.schedules.ExponentialDecay(0.01, 100, 0.9),
        weight_decay=1e-3,
        global_clipnorm=1.0,
        use_ema=True,
    )


def legacy_sgd(optimizers):
    return optimizers.legacy.SGD(0.05, momentum=0.9)


def fit(
    layers=dense_layers,
    optimizer=adam,
    epochs=3,
    steps_per_epoch=40,
    steps_per_execution=1,
    shards=None,
    dtype_policy="float32",
    callbacks=(),
    jit_compile=False,
    **kwargs,
):
    """tf_keras's fit; returns its history and more."""
    import tf_keras

    tf_keras.mixed_precision.set_global_policy(dtype_policy)

    if shards:
        kwargs["variable_partitioner"] = (
            tf.distribute.experimental.partitioners.FixedShardsPartitioner(shards)
        )
    set_random_seed(0)
    strategy = make_strategy(**kwargs)
    model = _tf_keras_model(
        strategy,
        layers,
        optimizer,
        steps_per_execution=steps_per_execution,
        jit_compile=jit_compile,
    )
    creator = tf_keras.utils.experimental.DatasetCreator(lambda context: dataset())
    history = model.fit(
        creator,
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
        verbose=0,
        callbacks=list(callbacks),
    )
    return {
        "loss": history.history["loss"],
        "accuracy": history.history["accuracy"],
        "iterations": int(model.optimizer.iterations.numpy()),
        "traffic": strategy.traffic.as_dict(),
    }


def embedding_layers(layers):
    return [
        layers.Input((8,), dtype="int64"),
        layers.Embedding(200, 16),
        layers.Flatten(),
        layers.Dense(2),
    ]


def fit_embedding(embeddings=None, sparse_as_dense=False, shards=None, **kwargs):
    """tf_keras's fit of a model whose embedding has sparse gradients."""
    import tf_keras

    set_random_seed(0)
    policy = tf_gc.Policy(
        tf_gc.ThreeLC(),
        rules={"embedding": None} if embeddings else {},
        embeddings=embeddings,
        sparse_as_dense=sparse_as_dense,
    )
    if shards:
        partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(shards)
        kwargs["variable_partitioner"] = partitioner
    strategy = make_strategy(compression=policy, **kwargs)
    model = _tf_keras_model(strategy, embedding_layers, adam)
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 200, (512, 8))
    labels = (inputs[:, 0] < 100).astype(np.int64)

    def batches(context):
        del context
        return tf.data.Dataset.from_tensor_slices((inputs, labels)).shuffle(512).repeat().batch(32)

    creator = tf_keras.utils.experimental.DatasetCreator(batches)
    history = model.fit(creator, epochs=4, steps_per_epoch=40, verbose=0)
    return {"accuracy": history.history["accuracy"], "traffic": strategy.traffic.as_dict()}


def write_from_outside(write):
    """Pushes, writes a variable on the chief, pushes again; returns what was read and is there."""
    loop = Loop(compression=tf_gc.ThreeLC(1.75))
    before = loop.push_all([[gaussian(step)] for step in range(3)])
    (variable,) = loop.variables
    value = gaussian(99)
    if write == "assign":
        variable.assign(value)
    elif write == "function":
        tf.function(lambda: variable.assign(value))()
    elif write == "scatter":
        variable.scatter_update(tf.IndexedSlices(value, tf.range(_SHAPE[0])))
    elif write == "scatter_nd_max":
        value = np.full(_SHAPE, 99, np.float32)
        # Without a function TensorFlow takes a variable of another process for a scalar here.
        tf.function(lambda: variable.scatter_nd_max(tf.range(_SHAPE[0])[:, tf.newaxis], value))()
    elif write == "restore":
        value = variable.numpy()
        with tempfile.TemporaryDirectory() as directory:
            path = tf.train.Checkpoint(variable=variable).write(os.path.join(directory, "model"))
            loop.push_all([[gaussian(5)]])
            tf.train.Checkpoint(variable=variable).read(path).assert_consumed()
    after = loop.push_all([[gaussian(10 + step)] for step in range(4)])
    return before, value, [read[0] for read in after], loop.values[0]


def write_in_a_round(which):
    """Pushes half a round of two variables, writes to one of them, and pushes a round."""
    loop = Loop(
        (_SHAPE,) * 2, compression=tf_gc.Policy(), synchronous=True, replicas_to_aggregate=2
    )
    for step in range(3):
        loop.push_all([[gaussian([step, 0]), gaussian([step, 1])]])
        if step == 0:
            loop.variables[which].assign(tf.ones(_SHAPE))
    return loop.values


def write_in_steps(steps, **kwargs):
    """Steps that write to a variable, read it, and push the gradient of another.

    Returns what each has read of both, their values, and the numbers of pushes that were dropped
    and of updates.
    """
    strategy = make_strategy(compression=tf_gc.Policy(), **kwargs)
    with strategy.scope():
        variable, written = tf.Variable(tf.zeros(_SHAPE)), tf.Variable(0.0)

    def update(grads_and_vars):
        for gradient, updated in grads_and_vars:
            updated.assign_sub(gradient)

    def replica_step():
        with tf.GradientTape():
            read = tf.identity(variable)
        written.assign_add(1.0)
        seen = tf.identity(written)
        strategy.push_gradients([(tf.ones(_SHAPE), variable)], update)
        return tf.reduce_max(read), seen

    step = tf.function(lambda: strategy.run(replica_step))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    seen = [coordinator.schedule(step).fetch() for _ in range(steps)]
    traffic = strategy.traffic
    values = [float(tf.reduce_max(v)) for v in (variable, written)]
    return seen, values, traffic.dropped_pushes, traffic.updates


def write_on_replicas(steps):
    """Steps whose replicas write to a variable together; returns its value."""
    strategy = make_strategy(compression=tf_gc.Policy())
    with strategy.scope():
        variable = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
    step = tf.function(lambda: strategy.run(lambda: variable.assign_add(tf.ones([]))))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    for _ in range(steps):
        coordinator.schedule(step)
    coordinator.join()
    return float(variable)


def push_of_a_model_from_outside():
    """A push of a Keras variable that was made outside of the strategy's scope."""
    strategy = make_strategy(compression=tf_gc.Policy())
    variable = keras.Variable(np.zeros(_SHAPE, np.float32))
    pairs = [(tf.ones(_SHAPE), variable)]
    step = tf.function(
        lambda: strategy.run(lambda: strategy.push_gradients(pairs, lambda pairs: None))
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    coordinator.schedule(step)
    coordinator.join()


def make_a_variable_within_a_step():
    """Reads a variable in a step, makes another, and reads that; returns the ids of all pulls."""
    strategy = make_strategy(compression=tf_gc.THC())
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(_SHAPE))]

    def replica_step():
        with tf.GradientTape():
            total = tf.reduce_sum(variables[0])
            if len(variables) == 1:
                with tf.init_scope():
                    variables.append(tf.Variable(tf.zeros(_SHAPE)))
            return total + tf.reduce_sum(variables[1])

    with mock.patch.object(ops, "pull", wraps=ops.pull) as pull:
        tf.function(lambda: strategy.run(replica_step)).get_concrete_function()
    return [call.kwargs["ids"] for call in pull.call_args_list]


def push_no_gradient():
    """Pushes nothing, of a variable that is not used."""
    strategy = make_strategy()
    with strategy.scope():
        variable = tf.Variable(tf.zeros(_SHAPE), name="unused")

    def replica_step():
        strategy.push_gradients([(None, variable)], lambda grads_and_vars: None)

    tf.function(lambda: strategy.run(replica_step)).get_concrete_function()


def push_two_gradients_of_a_variable():
    strategy = make_strategy(compression=tf_gc.Policy())
    with strategy.scope():
        variable = tf.Variable(tf.zeros(_SHAPE), name="shared")

    def replica_step():
        pairs = [(tf.ones(_SHAPE), variable)] * 2
        strategy.push_gradients(pairs, lambda grads_and_vars: None)

    tf.function(lambda: strategy.run(replica_step)).get_concrete_function()


def push_a_wrong_shape(wrong, rows, **kwargs):
    """Pushes ones after a gradient of another shape, known when traced or later, or such rows.

    Returns the two errors, and the variable.
    """
    strategy = make_strategy(**kwargs)
    with strategy.scope():
        variable = tf.Variable(tf.zeros(_SHAPE), name="pushed (here)")

    def update(grads_and_vars):
        for gradient, updated in grads_and_vars:
            if isinstance(gradient, tf.IndexedSlices):
                updated.scatter_sub(gradient)
            else:
                updated.assign_sub(gradient)

    def replica_step(gradient):
        if rows:
            gradient = tf.IndexedSlices(gradient, tf.range(len(gradient)), _SHAPE)
        strategy.push_gradients([(gradient, variable)], update)

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    def push(shape, known):
        if known:
            step = tf.function(lambda: strategy.run(replica_step, (tf.ones(shape),)))
            coordinator.schedule(step)
        else:
            signature = [tf.TensorSpec(None)] if not rows else [tf.TensorSpec([2, None])]
            step = tf.function(lambda g: strategy.run(replica_step, (g,)), signature)
            coordinator.schedule(step, (tf.ones(shape),))
        coordinator.join()

    errors = []
    for known in (True, False):
        try:
            push(wrong, known)
        except (ValueError, tf.errors.InvalidArgumentError) as error:
            errors.append(str(error))
    for _ in range(3):
        push([2, _SHAPE[1]] if rows else _SHAPE, False)
    return errors, variable.numpy()


def compressor_of_a_half_variable(compression):
    strategy = make_strategy(compression=compression)
    with strategy.scope():
        variable = tf.Variable(tf.zeros(_SHAPE, tf.bfloat16))
    return str(pulled_variable.find(variable).tf_gc_entry.compressor)


def save_after_a_restart(directory, compression):
    """Trains, saves once the file "restarted" is there, and trains on; returns the updates."""
    directory = pathlib.Path(directory)
    loop = Loop(compression=compression)
    loop.push_all([[gaussian(0)]] * 4)
    (directory / "started").touch()
    wait_until((directory / "restarted").exists, "a worker is there again")
    checkpoint = tf.train.Checkpoint(residuals=loop.strategy.residuals, values=loop.variables)
    checkpoint.write(directory / "checkpoint")
    loop.push_all([[gaussian(0)]] * 4)
    checkpoint.write(directory / "checkpoint")
    return loop.strategy.traffic.updates


def write_what_is_not_pulled(directory):
    """Assigns, then restores, three variables, of which workers have a copy of the last one alone.

    Returns their values after each, and the ids that have been published.
    """
    strategy = make_strategy(compression=tf_gc.Policy(rules={"table": None}))
    with strategy.scope():
        variables = [
            tf.Variable(tf.zeros(_SHAPE, dtype), name=name)
            for name, dtype in (("table", "float32"), ("half", "bfloat16"), ("dense", "float32"))
        ]
    checkpoint = tf.train.Checkpoint(variables=variables)
    path = checkpoint.write(os.path.join(directory, "model"))
    with mock.patch.object(ops, "publish_whole", wraps=ops.publish_whole) as publish:
        for variable in variables:
            variable.assign(tf.ones_like(variable))
        assigned = [float(tf.reduce_max(variable)) for variable in variables]
        checkpoint.read(path).assert_consumed()
    restored = [float(tf.reduce_max(variable)) for variable in variables]
    published = [id_ for call in publish.call_args_list for id_ in call.kwargs["ids"]]
    pulled = pulled_variable.find(variables[-1]).tf_gc_entry.id
    return assigned, restored, [id_ == pulled for id_ in published]


def save_and_restore(directory, workers_saved, compression=None):
    """Saves variables and residuals, pushes more, restores; returns what is there each time."""
    loop = Loop(compression=compression or tf_gc.ThreeLC(1.75))
    loop.push_all([[gaussian(step)] for step in range(5)])

    def state():
        return loop.values[0], loop.strategy.residuals.total("variable_0").numpy()

    saved = state()
    checkpoint = tf.train.Checkpoint(variable=loop.variables[0], residuals=loop.strategy.residuals)
    path = checkpoint.save(os.path.join(directory, "model"))
    loop.push_all([[gaussian(50 + step)] for step in range(3)])
    between = state()
    checkpoint.restore(path).assert_consumed()
    restored = state()
    read = loop.push_all([[np.zeros(_SHAPE, np.float32)]])[0][0]
    return saved, between, restored, read


def shapes_of_saved_residuals(directory):
    """Restores residuals of a variable that is compressed and one that is not.

    Returns their shapes in the checkpoint, by key, and what is there before and after.
    """
    rules = {"variable_1": None}
    loop = Loop((_SHAPE, _SHAPE), compression=tf_gc.Policy(default=tf_gc.ThreeLC(), rules=rules))
    loop.push_all([[gaussian([step, i]) for i in range(2)] for step in range(2)])

    def totals():
        return [loop.strategy.residuals.total(f"variable_{i}").numpy() for i in range(2)]

    before = totals()
    checkpoint = tf.train.Checkpoint(residuals=loop.strategy.residuals)
    path = checkpoint.save(os.path.join(directory, "residuals"))
    checkpoint.restore(path).assert_consumed()
    return tf.train.load_checkpoint(path).get_variable_to_shape_map(), before, totals()


def save_and_restore_without_a_worker(directory):
    """Saves, and restores once there is a file "killed"; returns the residual before and after."""
    loop = Loop(compression=tf_gc.ThreeLC(1.75))
    loop.push_all([[gaussian(step)] for step in range(5)])
    before = loop.strategy.residuals.total("variable_0").numpy()
    checkpoint = tf.train.Checkpoint(residuals=loop.strategy.residuals)
    path = checkpoint.save(os.path.join(directory, "model"))
    loop.push_all([[gaussian(5 + step)] for step in range(3)])
    pathlib.Path(directory, "started").touch()
    wait_until(pathlib.Path(directory, "killed").exists, "a worker is killed")
    checkpoint.save(os.path.join(directory, "without"))
    checkpoint.restore(path).assert_consumed()
    return before, loop.strategy.residuals.total("variable_0").numpy()


def save_without_any_worker(directory):
    """Saves once there is a file "killed"; returns the second moments in the checkpoint."""
    loop = Loop(compression=tf_gc.ThreeLC())
    loop.push_all([[gaussian(step)] for step in range(2)])
    pathlib.Path(directory, "started").touch()
    wait_until(pathlib.Path(directory, "killed").exists, "the worker is killed")
    checkpoint = tf.train.Checkpoint(residuals=loop.strategy.residuals)
    saved = tf.train.load_checkpoint(checkpoint.save(os.path.join(directory, "model")))
    names = [name for name in saved.get_variable_to_shape_map() if "second_moment" in name]
    return [saved.get_tensor(name) for name in names]


def save_of_some(directory, variables, compression, has_residuals):
    """Pushes gradients of so many variables, and saves with or without residuals."""
    loop = Loop((_SHAPE,) * variables, compression=compression)
    loop.push_all([[gaussian(i) for i in range(variables)]])
    more = {"residuals": loop.strategy.residuals} if has_residuals else {}
    checkpoint = tf.train.Checkpoint(variables=loop.variables, **more)
    checkpoint.save(os.path.join(directory, "model"))


def warnings_after_restoring(directory, variables, compression):
    """Returns what is logged of residuals while that is restored, and two functions traced."""
    loop = Loop((_SHAPE,) * variables, compression=compression)
    checkpoint = tf.train.Checkpoint(variables=loop.variables, residuals=loop.strategy.residuals)
    with mock.patch.object(logging, "warning") as warning:
        checkpoint.restore(tf.train.latest_checkpoint(directory)).expect_partial()
        if compression is not None:
            for _ in range(2):
                loop.push_all([[gaussian(i) for i in range(variables)]])
                loop._step = tf.function(loop._push)
    texts = [call.args[0] % call.args[1:] for call in warning.call_args_list]
    return [text for text in texts if text.startswith("tf_gc")]


def push_and_save_second_moments(directory, pushes, workers):
    """Pushes, and saves; returns the statistics of each worker."""
    loop = Loop(compression=tf_gc.ThreeLC(units="second_moment"))
    for step in range(pushes):
        loop.push([gaussian(step)])
    loop.coordinator.join()
    tf.train.Checkpoint(residuals=loop.strategy.residuals).save(os.path.join(directory, "model"))
    return _statistics(loop, workers)


def restore_second_moments(directory, workers):
    """Restores what was saved in a new strategy; returns the same."""
    loop = Loop(compression=tf_gc.ThreeLC(units="second_moment"))
    checkpoint = tf.train.Checkpoint(residuals=loop.strategy.residuals)
    checkpoint.restore(tf.train.latest_checkpoint(directory))
    return _statistics(loop, workers)


def _statistics(loop, workers):
    (server,) = loop.strategy._servers.values()
    (variable,) = server.variables
    statistics = []
    for worker in range(workers):
        with tf.device(f"/job:worker/task:{worker}/device:CPU:0"):
            model = server.local_model()
            shape = [sum(variable.matrix) + 1]
            read = ops.read_second_moment(model, id=variable.id, shape=shape)
        statistics.append(read.numpy())
    return statistics


def calls_of_restore(directory):
    """Returns what this process calls while it restores, a Counter of ops and "function"."""
    loop = Loop((_SHAPE,) * 5, compression=tf_gc.ThreeLC())
    loop.push_all([[gaussian(i) for i in range(5)]])
    checkpoint = tf.train.Checkpoint(residuals=loop.strategy.residuals)
    path = checkpoint.save(os.path.join(directory, "residuals"))
    before = [loop.strategy.residuals.total(f"variable_{i}").numpy() for i in range(5)]
    loop.push_all([[gaussian(5 + i) for i in range(5)]])
    calls = collections.Counter()

    def count(op_type, inputs, attributes, outputs, op_name=None, graph=None):
        del inputs, attributes, outputs, op_name
        name = op_type if isinstance(op_type, str) else op_type.decode()
        name = "function" if name.startswith("__inference") else name
        calls[name] += graph is None and (name == "function" or name.startswith("TfGc>"))

    op_callbacks.add_op_callback(count)
    try:
        checkpoint.restore(path)
    finally:
        op_callbacks.remove_op_callback(count)
    after = [loop.strategy.residuals.total(f"variable_{i}").numpy() for i in range(5)]
    return +calls, before, after


def restore_another_shape(directory):
    """Restores for a variable of another shape, as a shard; returns its residual, and later."""
    loop = Loop(((32, 64),), compression=tf_gc.ThreeLC())
    checkpoint = tf.train.Checkpoint(residuals=loop.strategy.residuals)
    checkpoint.restore(tf.train.latest_checkpoint(directory)).expect_partial()
    residuals = []
    for step in range(2):
        residuals.append(loop.strategy.residuals.total("variable_0").numpy())
        loop.push_all([[gaussian(step)[:32]]])
    return residuals


def steps_after_a_variable_made_late(directory):
    """Restores residuals of two variables, of which one is made after 500 more updates.

    Returns the number of updates then.
    """
    strategy = make_strategy(compression=tf_gc.ThreeLC())
    checkpoint = tf.train.Checkpoint(residuals=strategy.residuals)
    checkpoint.restore(os.path.join(directory, "residuals-1"))
    with strategy.scope():
        first = tf.Variable(tf.zeros(_SHAPE), name="variable_0")
        [server] = strategy.extended.servers.values()
        restored = int(server.step())
        server.set_step(restored + 500)
        second = tf.Variable(tf.zeros(_SHAPE), name="variable_1")
    del first, second
    return restored, int(server.step())


def make_a_variable_in_a_function_after_one_has_gone():
    strategy = make_strategy(compression=tf_gc.ThreeLC())
    made = []

    @tf.function
    def make():
        if not made:
            made.append(tf.Variable(tf.ones(_SHAPE)))
        return made[0].read_value()

    with strategy.scope():
        gone = tf.Variable(tf.zeros(_SHAPE))
        del gone
        gc.collect()
        return make().numpy()


def restore_elsewhere(directory):
    """Restores what `save_and_restore` has saved in a new strategy."""
    loop = Loop(compression=tf_gc.ThreeLC(1.75))
    checkpoint = tf.train.Checkpoint(variable=loop.variables[0], residuals=loop.strategy.residuals)
    checkpoint.restore(tf.train.latest_checkpoint(directory)).assert_consumed()
    return loop.values[0], loop.strategy.residuals.total("variable_0").numpy()


def restore_before_variables(directory):
    """The same, but the variables are made after the checkpoint has been restored."""
    strategy = make_strategy(compression=tf_gc.ThreeLC(1.75))
    checkpoint = tf.train.Checkpoint(residuals=strategy.residuals)
    status = checkpoint.restore(tf.train.latest_checkpoint(directory))
    with strategy.scope():
        checkpoint.variable = tf.Variable(tf.zeros(_SHAPE), name="variable_0")
    status.assert_consumed()
    return checkpoint.variable.numpy(), strategy.residuals.total("variable_0").numpy()


def compressed_steps(directory, count, **kwargs):
    """Goes on from the last checkpoint, with writes between the pushes, and saves.

    Returns which of the steps were compressed: they leave a residual.
    """
    loop = Loop(**kwargs)
    (variable,) = loop.variables
    residuals = loop.strategy.residuals
    checkpoint = tf.train.Checkpoint(variable=variable, residuals=residuals)
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1)
    manager.restore_or_initialize()
    compressed = []
    for step in range(count):
        variable.assign(gaussian(100 + step))
        loop.push_all([[gaussian(step)]])
        compressed.append(bool(np.any(residuals.total("variable_0").numpy())))
    manager.save()
    return compressed


def push_and_save(directory, every, **kwargs):
    """Pushes gaussian gradients of two variables in turn, for ever, saving every so many pushes."""
    loop, checkpoint, manager = _saved_loop(directory, **kwargs)
    while True:
        _push_saved(loop, checkpoint, every)
        manager.save(checkpoint_number=checkpoint.pushes.numpy())
        if checkpoint.pushes.numpy() >= 2 * every:
            pathlib.Path(directory, "started").touch()


def restore_and_push(directory, count, **kwargs):
    """Goes on where `push_and_save` had saved; returns all there is to see before and after."""
    loop, checkpoint, manager = _saved_loop(directory, **kwargs)
    checkpoint.restore(manager.latest_checkpoint).assert_consumed()

    def state():
        residuals = [loop.strategy.residuals.total(f"variable_{i}").numpy() for i in range(2)]
        return int(checkpoint.pushes.numpy()), loop.values, residuals

    restored = state()
    read = _push_saved(loop, checkpoint, count)
    return restored, read, state()


def _saved_loop(directory, **kwargs):
    loop = Loop((_SHAPE, _SHAPE), **kwargs)
    checkpoint = tf.train.Checkpoint(
        variables=loop.variables, residuals=loop.strategy.residuals, pushes=tf.Variable(0)
    )
    return loop, checkpoint, tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1)


def _push_saved(loop, checkpoint, count):
    done = int(checkpoint.pushes.numpy())
    read = loop.push_all([[gaussian([done + n, i]) for i in range(2)] for n in range(count)])
    checkpoint.pushes.assign_add(count)
    return read


def fit_and_save(directory, **kwargs):
    """tf_keras's fit from the last checkpoint on, saving after every epoch, until "stop".

    Returns what the epochs were like, and the number of updates with which it began.
    """
    import tf_keras

    set_random_seed(0)
    strategy = make_strategy(**kwargs)
    model = _tf_keras_model(strategy, dense_layers, adam)
    checkpoint = tf.train.Checkpoint(
        model=model, optimizer=model.optimizer, residuals=strategy.residuals
    )
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1)
    manager.restore_or_initialize()
    begun = int(model.optimizer.iterations.numpy())
    epochs = []

    class Save(tf_keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            del epoch
            epochs.append(dict(logs))
            manager.save()
            pathlib.Path(directory, "started").touch()
            self.model.stop_training = pathlib.Path(directory, "stop").exists()

    creator = tf_keras.utils.experimental.DatasetCreator(lambda context: dataset())
    model.fit(creator, epochs=10_000, steps_per_epoch=40, verbose=0, callbacks=[Save()])
    return epochs, begun


def bytes_of_steps(count, change=None, **kwargs):
    """Pushes in turn; returns the bytes of values that each step has pushed and pulled.

    Args:
      count: the number of steps.
      change: a step, and the value that the compressor's multiplier is assigned before it.
      kwargs: of the strategy.
    """
    loop = Loop(**kwargs)
    totals = []
    for step in range(count):
        if change is not None and step == change[0]:
            kwargs["compression"].sparsity_multiplier.assign(change[1])
        loop.push_all([[gaussian([step])]])
        traffic = loop.strategy.traffic
        of_values = traffic.bytes_pushed - traffic.second_moment_bytes_pushed
        totals.append((of_values, traffic.bytes_pulled))
    return np.diff([(0, 0), *totals], axis=0).tolist()


def fit_until(directory, **kwargs):
    """tf_keras's fit, until there is a file "stop"; makes a file "epoch<n>" after each epoch.

    Returns what the epochs were like, and the traffic.
    """
    import tf_keras

    set_random_seed(0)
    strategy = make_strategy(**kwargs)
    model = _tf_keras_model(strategy, dense_layers, adam)
    creator = tf_keras.utils.experimental.DatasetCreator(lambda context: dataset())
    epochs = []

    class Signals(tf_keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            epochs.append(dict(logs))
            pathlib.Path(directory, f"epoch{epoch}").touch()
            self.model.stop_training = pathlib.Path(directory, "stop").exists()

    model.fit(creator, epochs=10_000, steps_per_epoch=30, verbose=0, callbacks=[Signals()])
    return epochs, strategy.traffic.as_dict()


def updates_beside_a_stopped_worker(directory, intervals, **kwargs):
    """Keeps all workers busy; when there is a file "stopped", counts updates, then ends.

    Returns the number of updates in each half second.
    """
    loop = Loop(**kwargs)
    zeros = [np.zeros(_SHAPE, np.float32)]
    loop.push_all([zeros] * 4)
    counted = threading.Event()

    def feed():
        while not counted.wait(0.02):
            loop.push(zeros)

    feeder = threading.Thread(target=feed)
    feeder.start()
    pathlib.Path(directory, "started").touch()
    wait_until(pathlib.Path(directory, "stopped").exists, "the worker is stopped")
    counts = [loop.strategy.traffic.updates]
    for _ in range(intervals):
        time.sleep(0.5)
        counts.append(loop.strategy.traffic.updates)
    counted.set()
    feeder.join()
    return np.diff(counts).tolist()
