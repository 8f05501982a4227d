"""Which GPUs each process of a launch has."""

import itertools
import os
import subprocess
from collections.abc import Sequence

from tf_gc.launch.processes import Task

VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpus_of_tasks(tasks: Sequence[Task], gpus_per_worker: int) -> dict[Task, str]:
    """Returns CUDA_VISIBLE_DEVICES of each process: no two workers share a GPU, others have none.

    The GPUs are those that this process's own CUDA_VISIBLE_DEVICES names, in its order, or all of
    the machine.

    Raises:
      ValueError: there are fewer GPUs than the workers need.
    """
    workers = [task for task in tasks if task.type == "worker"]
    needed = len(workers) * gpus_per_worker
    gpus, found = _gpus() if needed else ([], "")
    if len(gpus) < needed:
        raise ValueError(
            f"gpus_per_worker is {gpus_per_worker}: {len(workers)} workers need {needed} GPUs, and "
            f"{found}"
        )
    left = iter(gpus)
    return {
        **dict.fromkeys(tasks, ""),
        **{worker: ",".join(itertools.islice(left, gpus_per_worker)) for worker in workers},
    }


def _gpus() -> tuple[list[str], str]:
    """Returns the names of the GPUs there are, and how many that is, in words."""
    visible = os.environ.get(VISIBLE)
    if visible is not None:
        # CUDA ignores what stands behind a name that is none.
        names = map(str.strip, visible.split(","))
        gpus = list(itertools.takewhile(lambda name: name not in ("", "-1"), names))
        return gpus, f"{VISIBLE} ({visible!r}) has {len(gpus)}"
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return [], f"nvidia-smi, which would find them, cannot be run; {VISIBLE} may name them"
    count = sum(line.startswith("GPU ") for line in listed.splitlines())
    return list(map(str, range(count))), f"nvidia-smi finds {count}"
