"""What the workers of link_probe_test.py run, all at the same time; returns plain values."""

import itertools
import time

import numpy as np
import tensorflow as tf
from tf_gc.strategy.link_probe import probe, probe_links

import tf_gc
from tf_gc import ops

_GROUP_KEY = 0x7467_6380  # of these tests alone
_TIMEOUT_SECONDS = 60.0

_numbers = itertools.count()
_strategies = []


def _on_cpu():
    """Returns the number of workers, and the place of this one's ops."""
    if not _strategies:  # it sets up the collective runtime
        _strategies.append(tf_gc.MultiWorkerMirroredStrategy())
    resolver = _strategies[0].cluster_resolver
    workers = len(resolver.cluster_spec().as_dict()["worker"])
    return workers, tf.device(f"/job:worker/task:{resolver.task_id}/device:CPU:0")


def gather(sizes):
    """Gathers so many bytes of each worker, once for each size; returns the samples."""
    workers, place = _on_cpu()
    with place:
        bucket = ops.bucket(f"gather {next(_numbers)}", 1)
        ops.network_samples()
        for size in sizes:
            ops.exchange_all_gather(
                np.zeros(size, np.uint8), bucket, group_key=_GROUP_KEY, group_size=workers
            )
        return ops.network_samples().numpy(), ops.network_samples().numpy()


def measured_steps(steps, size, measures):
    """Gathers so many bytes in each step; returns the samples of each step that has some."""
    workers, place = _on_cpu()
    measured = {}
    with place:
        bucket = ops.bucket(f"steps {next(_numbers)}", 1)
        for step in range(steps):
            ops.begin_step(bucket, step, measures_links=step % 4 == 0, measures=measures)
            ops.network_samples()
            ops.exchange_all_gather(
                np.zeros(size, np.uint8), bucket, group_key=_GROUP_KEY, group_size=workers
            )
            samples = ops.network_samples().numpy()
            if len(samples):
                measured[step] = samples
    return measured


def samples_in_a_function():
    """Calls one traced function before and after an exchange."""
    _, place = _on_cpu()
    with place:
        take = tf.function(ops.network_samples)
        before = take().numpy()
        gather_only(1000)
        return before, take().numpy(), take.get_concrete_function().structured_outputs.shape


def gather_only(size):
    workers, place = _on_cpu()
    with place:
        bucket = ops.bucket(f"gather {next(_numbers)}", 1)
        ops.exchange_all_gather(
            np.zeros(size, np.uint8), bucket, group_key=_GROUP_KEY, group_size=workers
        )


def exchange_probe(sizes, **arguments):
    """Returns the seconds, and how many bytes the bucket has sent."""
    workers, place = _on_cpu()
    with place:
        bucket = ops.bucket(f"pairs {next(_numbers)}", 1)
        rank = _strategies[0].cluster_resolver.task_id
        seconds = ops.exchange_probe(
            sizes[rank],
            bucket,
            group_key=_GROUP_KEY,
            group_size=workers,
            timeout_seconds=_TIMEOUT_SECONDS,
            **arguments,
        )
        return seconds.numpy(), int(ops.bucket_traffic(bucket).bytes_sent)


def estimate():
    """Returns the network that a probe shows, and how long that took."""
    workers, place = _on_cpu()
    with place:
        gather_only(1)  # the first exchange looks for the group, and connects
        begin = time.monotonic()
        samples = probe(workers, _TIMEOUT_SECONDS)
        seconds = time.monotonic() - begin
    estimator = tf_gc.adaptive.LinkEstimator()
    estimator.add(samples)
    return estimator.network, seconds


def links():
    workers, place = _on_cpu()
    with place:
        return probe_links(workers, _TIMEOUT_SECONDS)
