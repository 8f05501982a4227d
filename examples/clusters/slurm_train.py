"""The training of train.py as one task of a Slurm job step; slurm.sbatch starts it."""

import os

import tensorflow as tf
from train import train


def slurm_resolver() -> tf.distribute.cluster_resolver.ClusterResolver:
    """Returns the cluster of this job step: a worker for each task.

    SlurmClusterResolver finds the tasks and their nodes. It also counts GPUs, and fails where there
    are none. Slurm gives each task its own (--gpus-per-task), so the resolver is told of one each,
    which it leaves alone, and the cluster is returned with the GPUs that this task sees.

    Raises:
      ValueError: nodes' names sort in another way than Slurm numbers its tasks.
    """
    port_base = 20000 + 100 * (int(os.environ["SLURM_JOB_ID"]) % 100)  # for 100 tasks of this job
    slurm = tf.distribute.cluster_resolver.SlurmClusterResolver(
        port_base=port_base,
        gpus_per_node=int(os.environ["SLURM_STEP_NUM_TASKS"]),
        gpus_per_task=1,
        auto_set_gpu=False,
    )
    cluster = slurm.cluster_spec()
    task_type, task_id = slurm.get_task_info()
    address, node = cluster.task_address(task_type, task_id), os.environ["SLURMD_NODENAME"]
    if address.rpartition(":")[0] != node:
        raise ValueError(
            f"task {task_id} runs on {node}, not at {address}: SlurmClusterResolver sorts nodes by "
            "the letters of their names, so take nodes with numbers of as many digits (n08, n10)"
        )
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster,
        task_type=task_type,
        task_id=task_id,
        num_accelerators={"GPU": len(tf.config.list_physical_devices("GPU"))},
        rpc_layer="grpc",
    )


if __name__ == "__main__":
    train(slurm_resolver())
