"""The exchanges that compressors are made of: each is one collective of all workers."""

import tensorflow as tf
from tf_gc.ops.library import library

__all__ = ["exchange_all_gather", "exchange_broadcast", "exchange_sum"]

MAX_BYTES = (1 << 31) - 1


def with_carried(op, *arguments, carried, **attributes):
    """Calls the op of an exchange that carries a float32 vector, or None for nothing.

    Returns:
      The op's result; a named tuple of it and `carried_sum` where something is carried.
    """
    vector = tf.zeros([0]) if carried is None else carried
    results = op(*arguments, carried=vector, **attributes)
    return results[0] if carried is None else results


def exchange_sum(
    values,
    bucket,
    group_key,
    group_size,
    topology="sharded",
    rows=1,
    timeout_seconds=0.0,
    carried=None,
    name=None,
):
    """Adds up a vector over the workers of a group, uncompressed.

        sum[i] = sum of values[i] over the workers

    Values are added in float32, and rounded at every hop that sends them.

    Args:
      values: float32, float16 or bfloat16 vector [n], n the same on all workers.
      bucket: handle from `bucket`.
      group_key: int, the key of the group of devices that take part.
      group_size: int, the number of devices in the group.
      topology: "sharded" (every worker adds up its part of the vector, two hops),
        "ring" (2 group_size - 2 hops), "torus" (rings along its rows and
        columns) or "tree" (about 2 log2 group_size hops of the whole vector).
      rows: int, the rows of the torus, which divide `group_size`; 1 for other
        topologies.
      timeout_seconds: how long to wait for the peers; 0 waits for ever.
      carried: float32 vector [m], m the same on all workers, whose sums travel in the same
        messages; None for nothing.
      name: Name of the op.

    Returns:
      Vector [n] of the same dtype, the same bits on all workers; with `carried` a named tuple
      of it and `carried_sum`, the sums of `carried`, float32 [m].

    Raises:
      tf.errors.InvalidArgumentError: `values` is no vector, or `rows` does not
        make a torus of the workers.
      tf.errors.UnavailableError: a peer has died.
      tf.errors.DeadlineExceededError: the peers did not come in time.
      tf.errors.DataLossError: the workers have lost step with each other.
    """
    return with_carried(
        library.tf_gc_exchange_sum,
        values,
        bucket,
        carried=carried,
        group_key=group_key,
        group_size=group_size,
        topology=topology,
        rows=rows,
        timeout_seconds=timeout_seconds,
        name=name,
    )


def exchange_all_gather(
    data,
    bucket,
    group_key,
    group_size,
    max_bytes=MAX_BYTES,
    timeout_seconds=0.0,
    name=None,
):
    """Gives every worker of a group the bytes of all.

    Args:
      data: uint8 vector of at most `max_bytes` bytes; its size may differ by worker.
      bucket: handle from `bucket`.
      group_key: int, the key of the group of devices that take part.
      group_size: int, the number of devices in the group.
      max_bytes: int, the most that any worker sends: the others take no more from
        it.
      timeout_seconds: how long to wait for the peers; 0 waits for ever.
      name: Name of the op.

    Returns:
      A named tuple: `gathered`, uint8 vector, the data of all workers one after
      the other, in the order of their ranks; `sizes`, int64 vector [group_size],
      how many bytes are of each.

    Raises:
      tf.errors.InvalidArgumentError: `data` is no vector, or too large.
      tf.errors.UnavailableError: a peer has died.
      tf.errors.DeadlineExceededError: the peers did not come in time.
      tf.errors.DataLossError: the workers have lost step with each other.
    """
    return library.tf_gc_exchange_all_gather(
        data,
        bucket,
        group_key=group_key,
        group_size=group_size,
        max_bytes=max_bytes,
        timeout_seconds=timeout_seconds,
        name=name,
    )


def exchange_broadcast(
    data,
    root,
    bucket,
    group_key,
    group_size,
    max_bytes=MAX_BYTES,
    timeout_seconds=0.0,
    name=None,
):
    """Gives every worker of a group the bytes of one.

    They travel along a binomial tree: about log2 group_size hops. Each worker sends an
    empty message to that which it gets them from, which so learns of its failure.

    Args:
      data: uint8 vector of at most `max_bytes` bytes; that of other workers than the
        root is ignored, and may have any size.
      root: int32 scalar, the rank of the worker whose data is sent, the same on
        all workers.
      bucket: handle from `bucket`.
      group_key: int, the key of the group of devices that take part.
      group_size: int, the number of devices in the group.
      max_bytes: int, the most that any worker sends: the others take no more from
        it.
      timeout_seconds: how long to wait for the peers; 0 waits for ever.
      name: Name of the op.

    Returns:
      uint8 vector, the root's data.

    Raises:
      tf.errors.InvalidArgumentError: `data` is no vector, or too large; `root`
        is not in 0 ... group_size - 1.
      tf.errors.UnavailableError: a peer has died.
      tf.errors.DeadlineExceededError: the peers did not come in time.
      tf.errors.DataLossError: the workers have lost step with each other.
    """
    return library.tf_gc_exchange_broadcast(
        data,
        root,
        bucket,
        group_key=group_key,
        group_size=group_size,
        max_bytes=max_bytes,
        timeout_seconds=timeout_seconds,
        name=name,
    )
