"""Whether all processes of a cluster run this tf_gc."""

import tensorflow as tf

from tf_gc import ops


def check_servers(cluster_spec):
    """Raises RuntimeError unless all workers and servers have loaded the ops of this version.

    Without this check, a process that has not would be noticed in the first
    step, by the name of an op that it does not know.
    """
    own = ops.library_version()
    for job in ("worker", "ps"):
        for index in range(cluster_spec.num_tasks(job) if job in cluster_spec.jobs else 0):
            try:
                with tf.device(f"/job:{job}/task:{index}/device:CPU:0"):
                    version = ops.library_version()
            except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
                raise RuntimeError(
                    f"{job} {index} has not loaded tf_gc: start it with python -m tf_gc.server, or "
                    "import tf_gc.ops before its tf.distribute.Server is made"
                ) from error
            if version.numpy() != own.numpy():
                raise RuntimeError(
                    f"{job} {index} runs another tf_gc ({version.numpy().decode()}) than this "
                    f"process ({own.numpy().decode()}): install the same on all machines"
                )
