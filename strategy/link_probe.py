"""Exchanges outside of steps that measure the network between the workers."""

import itertools
import threading

import numpy as np
from tf_gc.strategy import agreement

from tf_gc import ops
from tf_gc.adaptive.cost_model import Network
from tf_gc.adaptive.links import FASTEST, LinkEstimator, theil_sen

# Growing until one takes too long; the longest comes three times, as TCP sends more slowly on a
# connection that was idle.
_SIZES = (*(1 << k for k in range(10, 21, 2)), 1 << 20, 1 << 20)
_LINK_SIZES = (*[0] * 4, *(1 << k for k in range(10, 23, 2)), 1 << 22, 1 << 22)
_SHORT = 64  # the shortest that takes a second transfer, which is what samples are of
# Bytes take long that take so many seconds, and so many times what a short message takes: to
# `LinkEstimator` those that take no longer than it do not tell the bandwidth.
_LONG_SECONDS, _LONG_TIMES = 0.05, 2

_numbers = itertools.count()


class MeasuredLinks:
    """A worker's links, as all exchanges of the process measure them.

    `tf_gc.ops.network_samples` returns each sample once, so all who ask for them share what they
    tell.
    """

    def __init__(self):
        self._estimator = LinkEstimator()
        self._lock = threading.Lock()

    def add(self, samples: np.ndarray) -> None:
        """Takes samples; see `LinkEstimator.add`."""
        with self._lock:
            self._estimator.add(samples)

    def update(self) -> Network | None:
        """Takes the samples of the exchanges since it was called last; returns the estimate."""
        self.add(ops.network_samples().numpy())
        return self._estimator.network


def probe(workers: int, timeout_seconds: float) -> np.ndarray:
    """Exchanges messages of 64 bytes up to 1 MiB between all workers, which call it together.

    It ends when those of one size have twice taken 50 ms, and two round trips, more than the
    shortest. It takes about half a second on links of 10 Mbit/s, and less on faster ones, unless
    they are far.

    Args:
      workers: their number.
      timeout_seconds: how long to wait for the others.

    Returns:
      What `tf_gc.ops.network_samples` has of it, for `LinkEstimator.add`.
    """
    exchange = _AllGather(workers, timeout_seconds)
    exchange(np.zeros(_SHORT, np.uint8))
    for size in _SIZES:
        if exchange.takes_long(size) and exchange.takes_long(size):
            break
    return np.concatenate(exchange.samples)


class _AllGather:
    """All-gathers of one bucket, and their samples."""

    def __init__(self, workers, timeout_seconds):
        self.samples = []
        self._bucket = _bucket()
        self._arguments = _arguments(workers, timeout_seconds)

    def __call__(self, data):
        gathered = ops.exchange_all_gather(data, self._bucket, **self._arguments).gathered
        self.samples.append(ops.network_samples().numpy())
        return gathered.numpy()

    def takes_long(self, size):
        """Gathers so many bytes of all; whether that took long on any, as all of them learn."""
        self(np.zeros(size, np.uint8))
        shortest = min(np.concatenate(self.samples)[:, 1], default=0.0)
        own = np.zeros(_SHORT // 8)
        own[0] = _is_long(self.samples[-1][:, 1].max(initial=0) - shortest, shortest)
        return self(own.view(np.uint8)).view(np.float64).max() > 0


def probe_links(workers: int, timeout_seconds: float) -> list[list[Network | None]]:
    """Measures the link between every two workers, which call it together.

    Pairs of workers take turns, so that they do not share links, with messages of up to 4 MiB
    until these take 50 ms, and two round trips, more than short ones.

    Args:
      workers: their number.
      timeout_seconds: how long to wait for the others.

    Returns:
      [from][to], the same on all workers; None for a worker to itself.
    """
    bucket = _bucket()
    arguments = _arguments(workers, timeout_seconds)
    place = np.zeros(workers, np.int64)  # of each peer's next size
    sizes, seconds = [], []
    for _ in _LINK_SIZES:
        sizes.append(np.take(_LINK_SIZES, place))
        seconds.append(ops.exchange_probe(sizes[-1], bucket, **arguments).numpy())
        shortest = np.min(seconds, axis=0)
        # Two round trips are of no bytes.
        place += (sizes[-1] == 0) | ~_is_long(seconds[-1] - 2 * shortest, shortest)
    own = np.zeros([workers, 2])
    for peer in np.flatnonzero(seconds[0]):  # all but this worker
        own[peer] = _estimate(np.array(sizes)[:, peer], np.array(seconds)[:, peer])
    gathered = ops.exchange_all_gather(own.view(np.uint8).reshape(-1), bucket, **arguments).gathered
    links = gathered.numpy().view(np.float64).reshape(workers, workers, 2).tolist()
    return [
        [None if sender == receiver else Network(*link) for receiver, link in enumerate(row)]
        for sender, row in enumerate(links)
    ]


def _is_long(seconds, shortest):
    """Whether bytes took long that took these seconds besides what the shortest message takes."""
    return seconds > np.maximum(_LONG_SECONDS, _LONG_TIMES * shortest)


def _bucket():
    return ops.bucket(f"link probe {next(_numbers)}", 1, "a probe of the links")


def _arguments(workers, timeout_seconds):
    return {
        "group_key": agreement.GROUP_KEY,
        "group_size": workers,
        "max_bytes": max(*_LINK_SIZES, 16 * workers),
        "timeout_seconds": timeout_seconds,
    }


def _estimate(sizes, seconds):
    """Returns latency and bandwidth of messages to one worker, and their empty answers."""
    # Of a long message, what a short one and its answer take is no time of the second transfer.
    round_trip = np.median(seconds[sizes == 0])
    slope = theil_sen(sizes, np.where(sizes == 0, seconds, seconds - round_trip))
    return round_trip / 2, 8 / max(slope, 8 / FASTEST)
