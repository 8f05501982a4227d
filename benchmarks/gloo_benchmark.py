"""Times gloo's ring all-reduce, by PyTorch, as all_reduce_benchmark.py times TensorFlow's.

    pip install torch
    tf_gc-launch --workers 2 benchmarks/gloo_benchmark.py
    sudo tf_gc-launch --workers 2 --bandwidth 100mbit benchmarks/gloo_benchmark.py

gloo reduces in place, so the gradient is copied before the clock starts.
"""

import json
import os
import statistics
import time

import psutil
from absl import app, flags

_MEBIBYTES = flags.DEFINE_float("mebibytes", 16, "Size of the gradient, in MiB.")
_STEPS = flags.DEFINE_integer("steps", 30, "Timed steps.", lower_bound=1)
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")

_WARM_UP_STEPS = 6


def _interface(host):
    """Returns the name of the network interface that has an address."""
    for name, addresses in psutil.net_if_addrs().items():
        if host in (address.address for address in addresses):
            return name
    raise ValueError(f"no network interface has the address {host}")


def _seconds(count, rank):
    """Returns the time of each step."""
    import torch
    from torch import distributed

    generator = torch.Generator().manual_seed(rank)
    gradient = torch.randn(count, generator=generator)
    seconds = []
    for step in range(_WARM_UP_STEPS + _STEPS.value):
        total = gradient.clone()
        begin = time.perf_counter()
        distributed.all_reduce(total)
        if step >= _WARM_UP_STEPS:
            seconds.append(time.perf_counter() - begin)
    return seconds


def main(argv):
    del argv
    try:
        from torch import distributed
    except ImportError as error:
        raise app.UsageError(f"{error}: pip install torch") from error
    config = json.loads(os.environ["TF_CONFIG"])
    workers, rank = config["cluster"]["worker"], config["task"]["index"]
    os.environ["GLOO_SOCKET_IFNAME"] = _interface(workers[rank].rsplit(":", 1)[0])
    distributed.init_process_group(
        "gloo", init_method=f"tcp://{workers[0]}", rank=rank, world_size=len(workers)
    )
    seconds = _seconds(round(_MEBIBYTES.value * 2**20 / 4), rank)
    median = statistics.median(seconds)
    if rank == 0:
        print(f"gloo, {len(workers)} workers, {_MEBIBYTES.value:g} MiB: {1e3 * median:.1f} ms")
        figures = [{"name": "gloo", "median_seconds": median}]
        if _JSON.value:
            with open(_JSON.value, "w", encoding="utf-8") as file:
                json.dump([{"mebibytes": _MEBIBYTES.value, "figures": figures}], file)
    distributed.destroy_process_group()


if __name__ == "__main__":
    app.run(main)
