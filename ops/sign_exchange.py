"""The exchanges of signs: Marsit, majority vote and cascading SSDM."""

from tf_gc.ops.exchange import with_carried
from tf_gc.ops.library import library

__all__ = ["exchange_cascading_sign", "exchange_sign_majority", "exchange_sign_merge"]


def exchange_sign_merge(
    packed,
    size,
    seed,
    bucket,
    group_key,
    group_size,
    topology="ring",
    rows=1,
    timeout_seconds=0.0,
    carried=None,
    name=None,
):
    """Merges packed signs of all workers of a group into unbiased ones.

    Where all workers have the same bit it stays; in general

        P(bit of the result is 1) = mean of the workers' bits

    but for 2^-20 a hop at most. Every hop merges the aggregate of i workers with
    that of j as `sign_merge` does, so that one bit per value travels at every
    hop. Marsit (Wu et al., DAC 2022), section 4.1.1, where j is 1.

    The random numbers of different hops and workers are independent, though
    `seed` is the same: the workers' ranks are mixed into it. The same arguments
    on all workers give the same bits; exchanges that are to be independent of
    each other need different seeds.

    Args:
      packed: uint8 vector [ceil(size / 8)], from `sign_pack`.
      size: int32 or int64 scalar, the number of values, the same on all workers.
      seed: int32 or int64 scalar, the key of the Philox generator, or a vector of
        two: the key and the stream; the same on all workers.
      bucket: handle from `bucket`.
      group_key: int, the key of the group of devices that take part.
      group_size: int, the number of devices in the group.
      topology: "ring" (2 group_size - 2 hops) or "torus" (rings along its rows
        and columns).
      rows: int, the rows of the torus, which divide `group_size`; 1 for a ring.
      timeout_seconds: how long to wait for the peers; 0 waits for ever.
      carried: as that of `exchange_sum`.
      name: Name of the op.

    Returns:
      uint8 vector [ceil(size / 8)], the same bits on all workers; with `carried` a named
      tuple, as `exchange_sum`.

    Raises:
      tf.errors.InvalidArgumentError: `packed` has not ceil(size / 8) bytes, `size`
        is negative, or `rows` does not make a torus of the workers. In a
        tf.function what is known while tracing is ValueError.
      tf.errors.UnavailableError: a peer has died.
      tf.errors.DeadlineExceededError: the peers did not come in time.
      tf.errors.DataLossError: a padding bit of `packed` is not 0; a message is
        damaged, or the workers have lost step with each other.
    """
    return with_carried(
        library.tf_gc_exchange_sign_merge,
        packed,
        size,
        seed,
        bucket,
        carried=carried,
        group_key=group_key,
        group_size=group_size,
        topology=topology,
        rows=rows,
        timeout_seconds=timeout_seconds,
        name=name,
    )


def exchange_sign_majority(
    packed, size, bucket, group_key, group_size, timeout_seconds=0.0, carried=None, name=None
):
    """Gives every worker of a group the majority of the workers' signs.

        bit of the result = 1 where at least half of the workers' bits are 1

    Every worker is the server of a part of the values, counts their signs, and
    sends the majority to all: one bit per value up, one down (signSGD with
    majority vote: Bernstein et al., ICML 2018). A tie is 1, the sign of 0.

    Args:
      packed: uint8 vector [ceil(size / 8)], from `sign_pack`.
      size: int32 or int64 scalar, the number of values, the same on all workers.
      bucket: handle from `bucket`.
      group_key: int, the key of the group of devices that take part.
      group_size: int, the number of devices in the group, at most 65535.
      timeout_seconds: how long to wait for the peers; 0 waits for ever.
      carried: as that of `exchange_sum`.
      name: Name of the op.

    Returns:
      uint8 vector [ceil(size / 8)], the same bits on all workers; with `carried` a named
      tuple, as `exchange_sum`.

    Raises:
      tf.errors.InvalidArgumentError: `packed` has not ceil(size / 8) bytes,
        `size` is negative, or `group_size` is too large. In a tf.function what is
        known while tracing is ValueError.
      tf.errors.UnavailableError: a peer has died.
      tf.errors.DeadlineExceededError: the peers did not come in time.
      tf.errors.DataLossError: a padding bit of `packed` is not 0; a message is
        damaged, or the workers have lost step with each other.
    """
    return with_carried(
        library.tf_gc_exchange_sign_majority,
        packed,
        size,
        bucket,
        carried=carried,
        group_key=group_key,
        group_size=group_size,
        timeout_seconds=timeout_seconds,
        name=name,
    )


def exchange_cascading_sign(
    values, seed, bucket, group_key, group_size, timeout_seconds=0.0, carried=None, name=None
):
    """Adds up a vector over the workers of a group by cascading SSDM.

    On a ring, every hop decodes what comes, adds its own values, and compresses
    the sum v to its norm and one random sign per value:

        Q(v) = ||v||_2 sign,   P(sign i is +) = 1/2 + v[i] / (2 ||v||_2)
        result = Q(... Q(Q(values of the first) + values of the second) + ...)

    which is the sum of the workers' values on average (but for 2^-16 of the norm
    at most, a hop). Its variance grows with every hop: the method is there to be
    compared with (Marsit: Wu et al., DAC 2022, section 3.2 and appendix A). The
    vector is cut in one part per worker, and these in pieces of at most 2^23
    values, each with a norm of its own.

    Args:
      values: float32 vector [n] of finite values, n the same on all workers.
      seed: int32 or int64 scalar, the key of the Philox generator, or a vector of
        two: the key and the stream; the same on all workers, whose ranks are
        mixed into it.
      bucket: handle from `bucket`.
      group_key: int, the key of the group of devices that take part.
      group_size: int, the number of devices in the group.
      timeout_seconds: how long to wait for the peers; 0 waits for ever.
      carried: as that of `exchange_sum`.
      name: Name of the op.

    Returns:
      float32 vector [n], the same bits on all workers: in each piece plus or
      minus its norm, 0 if that is 0, and NaN if it overflows. With `carried` a named tuple,
      as `exchange_sum`.

    Raises:
      tf.errors.InvalidArgumentError: `values` is no vector, or `seed` has another
        shape. In a tf.function what is known while tracing is ValueError.
      tf.errors.UnavailableError: a peer has died.
      tf.errors.DeadlineExceededError: the peers did not come in time.
      tf.errors.DataLossError: a message is damaged, or the workers have lost
        step with each other.
    """
    return with_carried(
        library.tf_gc_exchange_cascading_sign,
        values,
        seed,
        bucket,
        carried=carried,
        group_key=group_key,
        group_size=group_size,
        timeout_seconds=timeout_seconds,
        name=name,
    )
