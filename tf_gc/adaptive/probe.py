"""Measures the links between all workers of a cluster, and prints them as a table.

    tf_gc-launch --workers 4 probe
    tf_gc-launch --hosts a,b probe

Where something else starts processes, run it on all machines, each with its TF_CONFIG, as for
tf.distribute's own strategies:

    TF_CONFIG='{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]},
                "task": {"type": "worker", "index": 0}}' python -m tf_gc.adaptive.probe

The chief, or without one worker 0, prints the table. A link is what messages of tf_gc get of it:
latency is half of what a short message and its answer take, gRPC and the processes' own work
included.
"""

import os

from absl import app, flags
from rich.console import Console
from rich.table import Table

from tf_gc import launch

_TIMEOUT_SECONDS = flags.DEFINE_float(
    "timeout_seconds", 60.0, "How long to wait for the other workers.", lower_bound=1.0
)

# In the order of their ranks.
_JOBS = ("chief", "worker")


def print_table(links, names, file=None):
    """Prints the `Network` of each link, None from a worker to itself, to stdout by default.

    Args:
      links: [sender][receiver], in the order of their ranks.
      names: of the workers, likewise.
      file: where to.
    """
    table = Table(title="Links between the workers: latency, bandwidth", show_lines=True)
    table.add_column("from \\ to")
    for receiver in names:
        table.add_column(receiver, justify="right", no_wrap=True)
    for sender, row in zip(names, links, strict=True):
        table.add_row(sender, *map(_cell, row))
    # As wide as it must be, also where it is piped to a file.
    Console(file=file, width=max(80, 16 * (len(links) + 1))).print(table)


def _cell(link):
    if link is None:
        return ""
    unit, name = (1e9, "Gbit/s") if link.bandwidth >= 1e9 else (1e6, "Mbit/s")
    return f"{1e3 * link.latency:.2f} ms\n{link.bandwidth / unit:.3g} {name}"


def _resolver():
    """Returns what TF_CONFIG says of the cluster, and the names of its workers.

    Raises:
      app.UsageError: it does not describe a worker of two or more.
    """
    import tensorflow as tf

    if not os.environ.get("TF_CONFIG"):
        raise app.UsageError("TF_CONFIG is not set: start it with tf_gc-launch --workers 2 probe")
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    try:
        cluster, type_ = resolver.cluster_spec().as_dict(), resolver.task_type
    except ValueError as error:
        raise app.UsageError(f"TF_CONFIG does not describe a cluster: {error}") from error
    if type_ not in _JOBS:
        raise app.UsageError(f'TF_CONFIG: task.type is "{type_}", and links are between workers')
    names = [f"{job} {index}" for job in _JOBS for index in range(len(cluster.get(job, [])))]
    if len(names) < 2:
        raise app.UsageError(
            "links are between two workers or more, and TF_CONFIG has 1: tf_gc-launch --workers 2 "
            "probe"
        )
    return resolver, names


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    launch.remove_proxies(os.environ)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf  # reads the environment

    import tf_gc
    from tf_gc.strategy.link_probe import probe_links

    tf.get_logger().setLevel("WARNING")
    resolver, names = _resolver()
    timeout_seconds = _TIMEOUT_SECONDS.value
    # It starts the collective runtime, in which the workers find each other.
    tf_gc.MultiWorkerMirroredStrategy(
        resolver, tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout_seconds)
    )
    with tf.device(f"/job:{resolver.task_type}/task:{resolver.task_id}/device:CPU:0"):
        links = probe_links(len(names), timeout_seconds)
    if names[0] == f"{resolver.task_type} {resolver.task_id}":
        print_table(links, names)


if __name__ == "__main__":
    app.run(main)
