"""What the workers of reliability_test.py and silence_test.py run.

Every function runs in all workers at the same time, and returns plain values.
"""

import os
import pathlib
import resource
import signal
import socket
import time

import numpy as np
import tensorflow as tf

import tf_gc
from tests import parameter_server_programs
from tests.listening import listening
from tests.waiting import wait_until
from tf_gc import server_watch


def rank():
    return tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id


def _reducer(compression, timeout_seconds, size):
    """A step that sums one gradient of size x size."""
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout_seconds)
    strategy = tf_gc.MultiWorkerMirroredStrategy(
        compression=compression, communication_options=options
    )
    with strategy.scope():
        variable = tf.Variable(tf.zeros([size, size]), name="matrix")

    @tf.function
    def step(gradient):
        def replica_step(gradient):
            return strategy.reduce_gradients([(gradient, variable)])[0][0]

        return strategy.run(replica_step, args=(gradient,))

    return strategy, step


def _gradient(size, worker):
    return np.random.default_rng(worker).standard_normal([size, size]).astype(np.float32)


def reduce_until_an_error(directory, timeout_seconds=None, last_step=None, leaves=False):
    """Reduces until an error ends it; or worker 1 until its last step.

    After each step a worker touches a file in the directory that is named after its rank.

    Args:
      directory: where.
      timeout_seconds: of `CommunicationOptions`.
      last_step: after so many steps worker 1 takes no more.
      leaves: whether its process ends then.

    Returns:
      The error's type and message, and when it came by the clock of all processes; or None.
    """
    _, step = _reducer(tf_gc.ThreeLC(), timeout_seconds, 64)
    steps = 0
    try:
        while rank() != 1 or steps != last_step:
            step(_gradient(64, rank()))
            steps += 1
            pathlib.Path(directory, str(rank())).touch()
    except tf.errors.OpError as error:
        return type(error).__name__, error.message, time.monotonic()
    pathlib.Path(directory, "end").write_text(str(time.monotonic()), encoding="ascii")
    if leaves:
        os._exit(0)
    return None


def reduce_once(directory, compression, size, timeout_seconds):
    """Returns how many seconds a sum took when both workers began it, and whether it is right."""
    _, step = _reducer(compression, timeout_seconds, size)
    pathlib.Path(directory, str(rank())).touch()
    # TensorFlow has sent the variable's first value, which the other one may still receive.
    wait_until(pathlib.Path(directory, str(1 - rank())).exists, "the other one has its variable")
    begin = time.monotonic()
    total = step(_gradient(size, rank())).numpy()
    seconds = time.monotonic() - begin
    return seconds, bool(np.array_equal(total, _gradient(size, 0) + _gradient(size, 1)))


def make_variable(size, timeout_seconds):
    """Returns how many seconds it takes until this worker has a variable's first value."""
    begin = time.monotonic()
    _reducer(None, timeout_seconds, size)
    return time.monotonic() - begin


def push_until_an_error(directory, way):
    """Trains on parameter servers till an error ends it, or there is a file "end".

    Touches "started" after the first join, and "joins" after one that has begun when there was a
    file "stopped".

    Args:
      directory: where these files are.
      way: how it waits: "join", for steps; "read", by itself for all variables, from then on.

    Returns:
      The error's type and message, and when it came by the clock of all processes; or None.
    """
    loop = parameter_server_programs.Loop(((64, 64),) * 4, compression=tf_gc.ThreeLC())
    gradients = [_gradient(64, number) for number in range(4)]
    try:
        while not pathlib.Path(directory, "end").exists():
            is_stopped = pathlib.Path(directory, "stopped").exists()
            if is_stopped and way == "read":
                loop.values  # noqa: B018
            for _ in range(8):
                loop.push(gradients)
            loop.coordinator.join()
            pathlib.Path(directory, "started").touch()
            if way == "read":
                wait_until(pathlib.Path(directory, "stopped").exists, "a server is stopped")
            if is_stopped:
                pathlib.Path(directory, "joins").touch()
    except tf.errors.OpError as error:
        return type(error).__name__, error.message, time.monotonic()
    return None


def wait_for_an_answer(directory):
    """Worker 0 waits for an answer of worker 1, which says nothing but settings of HTTP/2.

    Returns:
      When its connection was closed by `server_watch`; None on worker 1.
    """
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()
    address = cluster.task_address("worker", 1)
    if rank() == 1:
        tf.distribute.Server(cluster, job_name="worker", task_index=1)
        pathlib.Path(directory, "1").touch()
        wait_until(pathlib.Path(directory, "end").exists, "the test ends")
        return None
    wait_until(pathlib.Path(directory, "1").exists, "the server is there")
    with socket.create_connection(server_watch.host_and_port(address)) as connection:
        server_watch.watch({"worker 1": address})
        pathlib.Path(directory, "0").touch()
        while connection.recv(1000):
            pass
    return time.monotonic()


def start_late(directory, timeout_seconds):
    """Worker 1 starts when the test says so; returns when each had its first sum."""
    if rank() == 1:
        wait_until(pathlib.Path(directory, "go").exists, "the late worker starts")
    pathlib.Path(directory, str(rank())).touch()
    _, step = _reducer(tf_gc.ThreeLC(), timeout_seconds, 64)
    step(_gradient(64, rank()))
    return time.monotonic()


def save_until_an_error(directory, timeout_seconds):
    """Saves a checkpoint after each step, to a folder of its own.

    Returns:
      The error's type and message, the last step that was saved, and that of the checkpoint that
      a restarted program would take.
    """
    strategy, step = _reducer(tf_gc.ThreeLC(), timeout_seconds, 64)
    steps = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(steps=steps, residuals=strategy.residuals)
    manager = tf.train.CheckpointManager(checkpoint, f"{directory}/{rank()}", max_to_keep=None)
    saved = 0
    try:
        while True:
            step(_gradient(64, rank()))
            steps.assign_add(1)
            manager.save()
            saved = int(steps)
    except tf.errors.OpError as error:
        found = tf.train.load_checkpoint(tf.train.latest_checkpoint(manager.directory))
        restored = found.get_tensor("steps/.ATTRIBUTES/VARIABLE_VALUE")
        return type(error).__name__, error.message, saved, int(restored)


def die_while_saving(directory):
    """Saves twice; the second time the kernel kills worker 1 when a part of a file is written."""
    strategy, step = _reducer(tf_gc.ThreeLC(), None, 256)
    steps = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(steps=steps, residuals=strategy.residuals)
    manager = tf.train.CheckpointManager(checkpoint, f"{directory}/{rank()}", max_to_keep=2)
    for is_last in False, True:
        step(_gradient(256, rank()))
        steps.assign_add(1)
        if is_last and rank() == 1:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))
        manager.save()


def where_it_listens():
    """Returns the port of this worker's address, and where its process listens."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf_gc.MultiWorkerMirroredStrategy(resolver, compression=tf_gc.ThreeLC())
    address = resolver.cluster_spec().task_address("worker", resolver.task_id)
    return int(address.rpartition(":")[2]), listening(os.getpid())
