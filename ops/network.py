"""What exchanges tell of the network between the workers."""

from tf_gc.ops.exchange import MAX_BYTES
from tf_gc.ops.library import library

__all__ = ["exchange_probe", "network_samples", "time_waited"]


def network_samples(name=None):
    """Returns how long what came over this worker's link took, and forgets it.

    All exchanges of the process are watched. Transfers that are under way at the
    same time share the link, so a sample is a busy interval: from when a first
    transfer is under way until none is.

    What follows the first transfer of a message is under way from when it is asked
    for: its sender has it ready. Such an interval takes

        seconds = 2 latency + bytes / bandwidth

    The first transfer may have to wait for its sender. It counts only in steps that
    measure bandwidth (see `begin_step`), and is under way from when a few bytes that
    were sent just before have come, so that there is no latency in its seconds. Steps
    that measure latency ask for 32 bytes more, which are a sample of their own.

    An interval ends after 64 transfers where the link is never idle. The latest
    512 samples are kept.

    Args:
      name: Name of the op.

    Returns:
      float64 matrix [n, 4], the oldest sample first: bytes, seconds, the number of
      transfers, and 1 if the seconds begin with a request, else 0.
    """
    return library.tf_gc_network_samples(name=name)


def time_waited(name=None):
    """Returns how long exchanges of this process have waited for other workers.

    Args:
      name: Name of the op.

    Returns:
      A named tuple of float64 scalars: `waited`, the seconds in which at least one
      exchange waited for messages to come, or for its own to be taken; `total`, the
      seconds from the beginning of the first such wait to the end of the last.
    """
    return library.tf_gc_time_waited(name=name)


def exchange_probe(
    sizes,
    bucket,
    group_key,
    group_size,
    max_bytes=MAX_BYTES,
    timeout_seconds=0.0,
    name=None,
):
    """Times a message to each other worker of a group, and its empty answer.

    Pairs of workers take turns, so that no worker sends or gets two messages at
    once. A message of b bytes takes

        2 latency                        for b <= 32
        4 latency + b / bandwidth        for more, which come in two transfers

    where the latency is that of one way.

    Args:
      sizes: int64 vector [group_size], how many bytes this worker sends to each; its
        own does not count, and the others need not send as many.
      bucket: handle from `bucket`.
      group_key: int, the key of the group of devices that take part.
      group_size: int, the number of devices in the group.
      max_bytes: int, the most that any worker sends: the others take no more from
        it.
      timeout_seconds: how long to wait for the peers; 0 waits for ever.
      name: Name of the op.

    Returns:
      float64 vector [group_size] of seconds, 0 for this worker.

    Raises:
      tf.errors.InvalidArgumentError: `sizes` has another shape, or a size is not
        in 0 ... `max_bytes`.
      tf.errors.UnavailableError: a peer has died.
      tf.errors.DeadlineExceededError: the peers did not come in time.
      tf.errors.DataLossError: the workers have lost step with each other.
    """
    return library.tf_gc_exchange_probe(
        sizes,
        bucket,
        group_key=group_key,
        group_size=group_size,
        max_bytes=max_bytes,
        timeout_seconds=timeout_seconds,
        name=name,
    )
