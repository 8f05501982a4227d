"""The links between workers and parameter servers, measured from the chief."""

import dataclasses

import tensorflow as tf
from absl import logging
from tf_gc.strategy.adaptation import check_may_choose

from tf_gc.adaptive.computation import measure_rates
from tf_gc.adaptive.links import LinkEstimator
from tf_gc.adaptive.server_choice import best_for_servers
from tf_gc.compressors import THC, Auto, ThreeLC, Uncompressed

_NAMES = {Uncompressed: "uncompressed", THC: "THC", ThreeLC: "3LC"}
# Of float32, until one takes too long.
_SIZES = (1, 1, 1, 1 << 8, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 18, 1 << 20, 1 << 20)
_LONG_SECONDS = 0.1


def without_auto(policy, cluster_spec):
    """Returns the policy with what is best on this cluster in place of `Auto`."""
    if policy is None:
        return None
    chosen = {}  # by Auto

    def choose(compressor):
        if not isinstance(compressor, Auto):
            return compressor
        if compressor not in chosen:
            chosen[compressor] = _choose(compressor, cluster_spec)
        return chosen[compressor]

    rules = {pattern: choose(compressor) for pattern, compressor in policy.rules.items()}
    return dataclasses.replace(policy, default=choose(policy.default), rules=rules)


def _systems(auto):
    """Returns by name what `Auto` may choose from.

    Raises:
      ValueError: it has something that is not for parameter servers.
    """
    if auto.record is not None:
        raise ValueError(
            "record: nothing is measured while workers train with parameter servers, where Auto "
            f"chooses once; leave it out, got {auto.record!r}"
        )
    if auto.ratios:
        raise ValueError(
            "ratios: parameter servers have no sparse systems to choose from; leave them out, got "
            f"{auto.ratios!r}"
        )
    systems = {}
    for system in auto.candidates(squares=True):
        if type(system) not in _NAMES:
            raise ValueError(
                f"systems: {system} is not for parameter servers to choose from; use tf_gc.THC(), "
                "tf_gc.ThreeLC() and None"
            )
        name = _NAMES[type(system)]
        if name in systems:
            raise ValueError(
                "systems: parameter servers choose by what is predicted, which is the same for all "
                f"of one type; name one {type(system).__name__}, got {systems[name]} and {system}"
            )
        systems[name] = dataclasses.replace(system, start_step=auto.start_step)
    return systems


def _choose(auto, cluster_spec):
    systems = _systems(auto)
    if len(systems) == 1:
        [system] = systems.values()
        return system
    check_may_choose()
    workers, servers = (len(cluster_spec.as_dict().get(job, ())) for job in ("worker", "ps"))
    network = _measure(workers, servers)
    order = [name for name in _NAMES.values() if name in systems]
    name, seconds = best_for_servers(order, network, workers, servers, measure_rates())
    logging.warning(
        "tf_gc.Auto takes %s; links of %.3g Mbit/s to the servers; predicted for a million values: "
        "%s",
        name,
        network.bandwidth / 1e6,
        ", ".join(f"{system} {1e9 * s:.3g} ms" for system, s in seconds.items()),
    )
    return systems[name]


def _measure(workers, servers):
    """Returns the `Network` of the slowest link, of one worker to each server and one server to
    each worker."""
    pairs = {(worker, 0) for worker in range(workers)} | {(0, server) for server in range(servers)}
    return min(
        (_measure_link(*pair) for pair in sorted(pairs)), key=lambda network: network.bandwidth
    )


def _measure_link(worker, server):
    samples = []
    for size in _SIZES:
        seconds = _pull_seconds(worker, server, size)
        samples.append((4 * size, seconds))
        estimator = LinkEstimator()
        estimator.add(samples)
        if estimator.network and seconds - min(s for _, s in samples) > _LONG_SECONDS:
            break
    return estimator.network


def _pull_seconds(worker, server, size):
    """Returns how long a worker waits for float32 [size] that it asks a server for."""
    worker_device, server_device = (
        f"/job:{job}/task:{task}/device:CPU:0" for job, task in (("worker", worker), ("ps", server))
    )

    @tf.function
    def pull():
        with tf.device(worker_device):
            began = tf.timestamp()
        with tf.device(server_device):  # which begins when it is asked
            values = tf.fill([size], tf.cast(began, tf.float32))
        with tf.device(worker_device), tf.control_dependencies([tf.reduce_max(values)]):
            return tf.timestamp() - began

    return float(pull())
