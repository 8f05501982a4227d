"""All-reduces of gradients, and the state of their buckets."""

from tf_gc.ops.library import library

__all__ = [
    "begin_step",
    "bucket",
    "bucket_traffic",
    "exact_all_reduce",
    "thc_all_reduce",
    "three_lc_all_reduce",
]


def bucket(key, variables, label="", name=None):
    """Makes the state that the exchanges of one bucket of variables share.

    It orders these exchanges, which TensorFlow runs one after the other, and
    counts what they send. It lives as long as its handle.

    Args:
      key: str, the same on all workers, and no other bucket's.
      variables: int, the number of variables in the bucket.
      label: str, what warnings call the bucket; by default its key.
      name: Name of the op.

    Returns:
      A scalar resource handle.
    """
    return library.tf_gc_bucket(key=key, variables=variables, label=label, name=name)


def begin_step(
    bucket,
    step,
    measures_links=False,
    sizes=(),
    group_size=1,
    measures="bandwidth",
    name=None,
):
    """Says which step of the optimizer the next exchanges of a bucket belong to.

    Messages carry it: workers that are not in the same step end with DataLossError.

    Args:
      bucket: handle from `bucket`.
      step: int64 scalar, the same on all workers.
      measures_links: bool scalar, the same on all workers: whether the first messages
        between two workers measure the link, for `network_samples`.
      sizes: list of ints, of each variable how many values the step counts for, if it has
        exchanges and no op that counts them by itself: `exact_all_reduce`,
        `three_lc_all_reduce`, `thc_all_reduce`, `fuse_gradients` or `pack_rows`.
      group_size: int, the number of devices among which these are reduced.
      measures: "bandwidth": a few bytes are sent just before such a message, whose time
        begins when they come. "latency": they are asked for when it has come. No message
        is delayed.
      name: Name of the op.

    Returns:
      The op (None when executing eagerly).
    """
    return library.tf_gc_begin_step(
        bucket,
        step,
        measures_links,
        sizes=sizes,
        group_size=group_size,
        measures=measures,
        name=name,
    )


def bucket_traffic(bucket, name=None):
    """Reads what the exchanges of a bucket have sent since it was made.

    Args:
      bucket: handle from `bucket`.
      name: Name of the op.

    Returns:
      A named tuple of int64 tensors. Scalars: `steps`, in which the bucket's
      gradients were reduced, and `exchanges`, of which a step may take several;
      `bytes_sent` and `bytes_received`, headers and padding included;
      `result_bytes_sent`, those of `bytes_sent` that brought results, the others
      being contributions to them; `shared_bytes_sent`, the payload bytes that
      belong to all variables together; `microseconds_waited`, in which exchanges
      waited for other workers' messages, or for their own to be taken. By
      variable: `values_sent`, counted once per receiver, and the
      `payload_bytes_sent` that are its own.
    """
    return library.tf_gc_bucket_traffic(bucket, name=name)


def exact_all_reduce(
    gradients,
    bucket,
    group_key,
    group_size,
    reduce_op="SUM",
    timeout_seconds=0.0,
    statistics=0,
    companions=(),
    companions_bucket=None,
    statistic_companions=0,
    name=None,
):
    """Adds up a bucket of gradients over the workers of a group, uncompressed.

    Values travel in their own type, are added in float32, and rounded once. Buckets of up to
    2 KiB a worker, and 64 KiB at most, take a tree, unless gradients are of narrower types than
    float32; there statistics are rounded at every hop that sends them.

    Args:
      gradients: list of float32, float16 or bfloat16 tensors, of the same
        dtypes and shapes on all workers.
      bucket: handle from `bucket`.
      group_key: int, the key of the group of devices that take part.
      group_size: int, the number of devices in the group.
      reduce_op: "SUM", or "MEAN" to divide the sums by `group_size`.
      timeout_seconds: how long to wait for the peers; 0 waits for ever.
      statistics: int, how many gradients, the last ones, are none: they are
        summed for "MEAN", too.
      companions: list of such tensors, the gradients of another, small bucket, which travel
        uncompressed in the same messages.
      companions_bucket: handle of that bucket, which counts their values.
      statistic_companions: int, how many companions, the last ones, are no gradients:
        they are summed for "MEAN", too.
      name: Name of the op.

    Returns:
      The list of sums (or means), and then of the companions', the same bits on all workers.

    Raises:
      tf.errors.UnavailableError: a peer has died.
      tf.errors.DeadlineExceededError: the peers did not come in time.
      tf.errors.DataLossError: the workers have lost step with each other.
    """
    sums = library.tf_gc_exact_all_reduce(
        gradients,
        bucket,
        companions,
        bucket if companions_bucket is None else companions_bucket,
        group_key=group_key,
        group_size=group_size,
        reduce_op=reduce_op,
        timeout_seconds=timeout_seconds,
        statistics=statistics,
        statistic_companions=statistic_companions,
        name=name,
    )
    return [*sums.reduced, *sums.companions_reduced]


def three_lc_all_reduce(
    gradients,
    residuals,
    multiplier,
    bucket,
    group_key,
    group_size,
    units=None,
    rows=None,
    scale="max",
    statistics=None,
    reduce_op="SUM",
    timeout_seconds=0.0,
    companions=(),
    companions_bucket=None,
    statistic_companions=0,
    name=None,
):
    """Adds up a bucket of gradients over the workers of a group, with 3LC.

    Each worker's gradients are compressed on the way to the server of their
    shard, and the sums on the way back; what that leaves over stays in the
    residuals. Over the workers,

        gradients + old residuals = reduced + new residuals

    (for "MEAN", `reduced` times `group_size`), in whatever units they are
    quantised. A variable that is not finite on
    some worker becomes NaN on all, and keeps its residual.

    Args:
      gradients: list of float32, float16 or bfloat16 tensors of one dtype, of
        the same shapes on all workers.
      residuals: list of handles of float32 variables of the same shapes, which
        are updated.
      multiplier: float32 scalar m, the same on all workers.
      bucket: handle from `bucket`.
      group_key: int, the key of the group of devices that take part.
      group_size: int, the number of devices in the group.
      units: list of the float32 vectors [rows + columns] in whose units the
        gradients are quantised, the same on all workers, each [0] for none: of
        a gradient as a matrix of `rows` rows, value i, j has the unit a_i b_j,
        and the vector holds a, then b, all above 0. None for none.
      rows: list of ints, the numbers of rows, which do not count without units.
      scale: "max", where what is quantised with is m times the largest
        magnitude, 0 < m < 2: the paper's sparsity multiplier; or, 0 < m < 64, "mean",
        m times the mean magnitude, or "unit", m times the unit, for sums root
        `group_size` times as much, and 3 times the mean for gradients without units.
      statistics: list of the gradients' `mean_squares`, each alone, or [0] where
        they are not known; None for none. Where they are finite, and `scale` is
        "unit", only as many values are looked at as it takes to know the scale.
        The results are the same, if residuals are finite, in units too.
      reduce_op: "SUM", or "MEAN" to divide the sums by `group_size`.
      timeout_seconds: how long to wait for the peers; 0 waits for ever.
      companions: as for `exact_all_reduce`.
      companions_bucket: the same.
      statistic_companions: the same.
      name: Name of the op.

    Returns:
      The list of sums (or means), and then of the companions', the same bits on all workers.

    Raises:
      tf.errors.InvalidArgumentError: a residual has another shape or dtype,
        units or statistics another size, or the multiplier is out of range.
      tf.errors.UnavailableError: a peer has died.
      tf.errors.DeadlineExceededError: the peers did not come in time.
      tf.errors.DataLossError: a message is damaged, or the workers have lost
        step with each other.
    """
    if units is None:
        units, rows = [[]] * len(gradients), [0] * len(gradients)
    sums = library.tf_gc_three_lc_all_reduce(
        gradients,
        residuals,
        units,
        [[]] * len(gradients) if statistics is None else statistics,
        multiplier,
        bucket,
        companions,
        bucket if companions_bucket is None else companions_bucket,
        rows=rows,
        scale=scale,
        group_key=group_key,
        group_size=group_size,
        reduce_op=reduce_op,
        timeout_seconds=timeout_seconds,
        statistic_companions=statistic_companions,
        name=name,
    )
    return [*sums.reduced, *sums.companions_reduced]


def thc_all_reduce(
    gradients,
    residuals,
    table,
    bits,
    truncation,
    signs,
    rounding,
    bucket,
    group_key,
    group_size,
    units=None,
    unit_rows=None,
    nearest=False,
    reduce_op="SUM",
    topology="sharded",
    rows=1,
    timeout_seconds=0.0,
    companions=(),
    companions_bucket=None,
    statistic_companions=0,
    name=None,
):
    """Adds up a bucket of gradients over the workers of a group, with THC.

    (Li et al., NSDI 2024, algorithm 3.) The values x, gradients plus residuals, one
    variable after the other, are cut in blocks of d as by `thc_blocks`, but of at most
    4096 values with up to 8 workers, and 512 for each worker with more. For each block

        l = max over the workers of |x|_2,    limit = truncation l / sqrt(d)

    and `thc_quantize` makes indices of x, whose table values are added up over the
    workers without being decoded (`exchange_lane_sum`), and decoded once. Over the
    workers,

        gradients + old residuals = reduced + new residuals

    (for "MEAN", `reduced` times `group_size`), in whatever units they are
    quantised. A variable that is not finite on some worker becomes NaN on all, and
    keeps its residual; so do all that have values in a block so large that its sum
    might overflow.

    Args:
      gradients: list of float32, float16 or bfloat16 tensors of one dtype, of
        the same shapes on all workers.
      residuals: list of handles of float32 variables of the same shapes, which
        are updated.
      table: int32 [2^bits], ascending from 0; `group_size` times the last one is
        at most 65535. The same on all workers.
      bits: 2, 3, 4, 5 or 8, a Python integer.
      truncation: float t_p, above 0.
      signs: int32 or int64, the seed of the transform's signs, the same on all
        workers: a scalar, the key, or a vector of two, key and stream.
      rounding: the same of the rounding, another one on each worker.
      bucket: handle from `bucket`.
      group_key: int, the key of the group of devices that take part.
      group_size: int, the number of devices in the group.
      units: list of float32 vectors, as for `three_lc_all_reduce`; None for none. Those
        of rows, and of columns, count as at least a tenth of their root mean square.
      unit_rows: list of ints, the numbers of rows, which do not count without units.
      nearest: bool, how values are rounded, as in `thc_quantize`.
      reduce_op: "SUM", or "MEAN" to divide the sums by `group_size`.
      topology: "sharded", "ring" or "torus", the way of the sums.
      rows: int, the rows of the torus, which divide `group_size`; 1 for other
        topologies.
      timeout_seconds: how long to wait for the peers; 0 waits for ever.
      companions: as for `exact_all_reduce`.
      companions_bucket: the same.
      statistic_companions: the same.
      name: Name of the op.

    Returns:
      The list of sums (or means), and then of the companions', the same bits on all workers.

    Raises:
      tf.errors.InvalidArgumentError: a residual has another shape or dtype, units
        another size; `table` does not ascend from 0, or its sums do not fit in 16
        bits; `bits` or `truncation` is out of range.
      tf.errors.UnavailableError: a peer has died.
      tf.errors.DeadlineExceededError: the peers did not come in time.
      tf.errors.DataLossError: a message is damaged, or the workers have lost
        step with each other.
    """
    if units is None:
        units, unit_rows = [[]] * len(gradients), [0] * len(gradients)
    sums = library.tf_gc_thc_all_reduce(
        gradients,
        residuals,
        units,
        table,
        signs,
        rounding,
        bucket,
        companions,
        bucket if companions_bucket is None else companions_bucket,
        unit_rows=unit_rows,
        bits=bits,
        truncation=truncation,
        nearest=nearest,
        group_key=group_key,
        group_size=group_size,
        reduce_op=reduce_op,
        topology=topology,
        rows=rows,
        timeout_seconds=timeout_seconds,
        statistic_companions=statistic_companions,
        name=name,
    )
    return [*sums.reduced, *sums.companions_reduced]
