"""The exchange of quantised values, added up without decoding (THC: Li et al., NSDI 2024)."""

from tf_gc.ops.library import library

__all__ = ["exchange_lane_sum"]


def exchange_lane_sum(
    packed,
    table,
    size,
    bucket,
    bits,
    lanes,
    group_key,
    group_size,
    topology="sharded",
    rows=1,
    timeout_seconds=0.0,
    name=None,
):
    """Adds up table values of packed indices over the workers of a group.

        sums[i] = sum of table[index i of packed] over the workers

    in integers: no hop decodes to floats (THC, section 4.3). A worker's own
    values travel as `bits` bits each, sums of several as lanes. As integers are
    added, the sums do not depend on the topology.

    Args:
      packed: uint8 vector [ceil(size bits / 8)], from `pack_bits`.
      table: int32 vector [2^bits], values of at least 0, the same on all workers;
        `group_size` times the largest must fit in the lanes.
      size: int32 or int64 scalar, the number of values, the same on all workers.
      bucket: handle from `bucket`.
      bits: 2, 3, 4, 5 or 8, a Python integer.
      lanes: tf.uint8 or tf.uint16, the type of the sums, or its name.
      group_key: int, the key of the group of devices that take part.
      group_size: int, the number of devices in the group.
      topology: "sharded" (every worker adds up its part of the vector, two hops),
        "ring" (2 group_size - 2 hops) or "torus" (rings along its rows and
        columns).
      rows: int, the rows of the torus, which divide `group_size`; 1 for other
        topologies.
      timeout_seconds: how long to wait for the peers; 0 waits for ever.
      name: Name of the op.

    Returns:
      Vector [size] of the type `lanes`, the same on all workers.

    Raises:
      tf.errors.InvalidArgumentError: `table` has another shape, or an entry that
        is negative or too large for the sums to fit; `size` is negative; `bits`
        is another number; `rows` does not make a torus of the workers. In a
        tf.function what is known while tracing is ValueError.
      tf.errors.UnavailableError: a peer has died.
      tf.errors.DeadlineExceededError: the peers did not come in time.
      tf.errors.DataLossError: `packed` has another size, or padding other than
        0; a message is damaged, or the workers have lost step with each other.
    """
    return library.tf_gc_exchange_lane_sum(
        packed,
        table,
        size,
        bucket,
        bits=bits,
        lanes=lanes,
        group_key=group_key,
        group_size=group_size,
        topology=topology,
        rows=rows,
        timeout_seconds=timeout_seconds,
        name=name,
    )
