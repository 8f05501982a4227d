"""Runs one worker or parameter server of a cluster, until it is stopped.

TF_CONFIG says which, as everywhere in tf.distribute:

    TF_CONFIG='{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"],
                            "ps": ["10.0.0.3:2222"], "chief": ["10.0.0.4:2222"]},
                "task": {"type": "ps", "index": 0}}' python -m tf_gc.server

It is a tf.distribute.Server that has tf_gc's ops. It does what the chief asks it to, which is the
process that runs the training program. `tf_gc-launch --ps` starts a whole cluster on one machine.
With an address of the loopback interface it listens there alone, else on all of the machine's.
"""

import importlib
import json
import os
import signal
import sys
from typing import NamedTuple

from absl import app

from tf_gc import launch, server_watch

# Steps wait in these threads for one another: with fewer, servers on two cores came to a halt.
_MIN_INTER_OP_THREADS = 4
_JSON_NAMES = {dict: "an object", list: "a list", str: "a string", int: "an integer"}


class _Task(NamedTuple):
    """What TF_CONFIG says of this process."""

    cluster: dict[str, list[str]]
    type: str
    index: int


def _task(text: str) -> _Task:
    """Returns what TF_CONFIG means.

    Raises:
      app.UsageError: it does not describe a cluster and a server in it.
    """
    if not text:
        raise app.UsageError("TF_CONFIG is not set")
    try:
        config = json.loads(text)
    except ValueError as error:
        raise app.UsageError(f"TF_CONFIG is not JSON: {error}") from error
    type_ = _field(config, "task.type", str)
    if type_ not in ("worker", "ps"):
        raise app.UsageError(
            f'TF_CONFIG: task.type is "{type_}", and a server is a "worker" or a "ps"'
        )
    addresses = _field(config, f"cluster.{type_}", list)
    index = _field(config, "task.index", int)
    if not 0 <= index < len(addresses):
        raise app.UsageError(
            f"TF_CONFIG: task.index is {index}, and cluster.{type_} has {len(addresses)} entries"
        )
    address = addresses[index]
    port = str(address).rpartition(":")[2]
    if port == address or not (port.isdecimal() and 0 < int(port) < 1 << 16):
        raise app.UsageError(
            f"TF_CONFIG: cluster.{type_} has {address!r}, which is no host:port with a port from 1 "
            "to 65535"
        )
    return _Task(config["cluster"], type_, index)


def _field(config, path, kind):
    for name in path.split("."):
        if not isinstance(config, dict) or name not in config:
            raise app.UsageError(f"TF_CONFIG has no {path}")
        config = config[name]
    if not isinstance(config, kind):
        raise app.UsageError(f"TF_CONFIG: {path} is {config!r}, not {_JSON_NAMES[kind]}")
    return config


def _set_environment(type_: str) -> None:
    """Sets the variables that TensorFlow reads when it is imported or makes a connection."""
    launch.remove_proxies(os.environ)
    # Makes a lost process an error for those that call it; otherwise they might wait for it.
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if type_ == "ps":
        # Variables are in the host's memory, and that of the GPUs is for the workers.
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


def _serve(task: _Task) -> None:
    """Starts the server; never returns unless it cannot start."""
    import tensorflow as tf  # reads the environment

    importlib.import_module("tf_gc.ops")
    name, address = f"{task.type} {task.index}", task.cluster[task.type][task.index]
    threads = max(_MIN_INTER_OP_THREADS, len(os.sched_getaffinity(0)))
    try:
        server = tf.distribute.Server(
            task.cluster,
            job_name=task.type,
            task_index=task.index,
            protocol="grpc",
            config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=threads),
        )
    except tf.errors.OpError as error:
        sys.exit(f"tf_gc.server: {name} cannot listen at {address}: {error.message}")
    print(f"{name} listens at {address}", flush=True)
    if task.type == "worker":
        server_watch.watch({f"ps {i}": a for i, a in enumerate(task.cluster.get("ps", []))})
    server.join()


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    # Python would only handle Ctrl-C after the end of join, which never comes.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    task = _task(os.environ.get("TF_CONFIG", ""))
    _set_environment(task.type)
    _serve(task)


def _program(argv):
    task = _task(os.environ.get("TF_CONFIG", ""))
    try:
        has_changed = launch.keep_to_loopback(os.environ, task.cluster[task.type][task.index])
    except launch.LaunchError as error:
        sys.exit(f"tf_gc.server: {error}")
    if has_changed:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # with what is preloaded
    main(argv)


if __name__ == "__main__":
    app.run(_program)
