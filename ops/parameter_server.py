"""Parameter servers: compressed pushes, compressed pulls that all workers share, and rounds.

A parameter server has one resource (`parameter_server`), a worker one for each
server (`local_model`). One step of a worker, with each server:

    request = pull_request(model, ids)                      worker
    message = pull(server, request, ids)                    server
    version, step = apply_pull(model, message, ids, shapes) worker
    ... = read_model(model, id, shape)                      worker, computes gradients
    push = encode_push(model, gradients, ...)               worker
    answer = accumulate_push(server, push, ...)             server
    settle_push(model, push, answer.accepted, answer.counted)  worker

and the worker that is `ready` makes an update of the variables:

    is_open = begin_update(server, answer.round)            server, in rounds; if it is:
    gradients = take_gradients(server, push, ...)           server
    end_update(server, answer.round, updated, ...)          server, after the optimizer

The messages are uint8 tensors; docs/wire_format.md has their bytes. Pulls are
3LC's shared compressed model pulls (Lim et al., MLSys 2019, section 3, figure
2b): the server compresses what has changed once per version, and applies it to
its own copy too, so that all workers have the same bits.

A variable has an id, a number less than 2^32 that is the same in all processes,
and codecs, strings:

    "float32", "float16", "bfloat16", "int8", "three_lc", "three_lc scale=mean"
    "three_lc scale=mean rows=128 decay=0.99 units=1"                   of pushes only
    "thc bits=4 truncation=2.15 headroom=1.2 seed=7 table=0,1,3,..."    of pushes only

THC rounds to the nearest level with `rounding=nearest`. "feedback=0" may follow each: then a
push's rounding error is dropped, and not part of the next push. The scale of 3LC is a multiple of
the largest value, or of the mean magnitude with `scale=mean`, or of the unit with `scale=unit` (3
times the mean where there are no units). With `rows` a push has the statistics of the worker's
gradients, the decayed means of squares of the rows and columns of a matrix that the variable is
seen as; 3LC quantises in units of the second moments that they stand for
(`tf_gc.ops.second_moments`), but with `units=0`, and the server knows them of the mean.

Several optimizers may share a server: each has a channel, a number, of its own,
and so rounds of its own.

All of these ops are for CPUs.
"""

from tensorflow.python.framework import auto_control_deps_utils  # of TensorFlow 2.17 to 2.21
from tf_gc.ops.library import library

__all__ = [
    "accumulate_push",
    "add_variable",
    "apply_pull",
    "begin_update",
    "clean_up",
    "counted_pushes",
    "encode_push",
    "end_update",
    "forget_copies",
    "forget_variables",
    "library_version",
    "local_model",
    "parameter_server",
    "publish_whole",
    "pull",
    "pull_request",
    "read_model",
    "read_residual",
    "read_round",
    "read_second_moment",
    "server_statistics",
    "set_server_step",
    "settle_push",
    "settle_unsettled",
    "take_gradients",
    "unsettled_pushes",
    "write_residual",
    "write_second_moment",
]

for _name in (
    "PullRequest",
    "ReadModel",
    "ReadResidual",
    "ReadRound",
    "ReadSecondMoment",
    "ServerStatistics",
    "UnsettledPushes",
):
    auto_control_deps_utils.register_read_only_resource_op(f"TfGc>{_name}")


def parameter_server(
    shared_name,
    synchronous=True,
    pushes_per_round=1,
    max_staleness=-1,
    updates_per_version=1,
    lease_seconds=10.0,
    container="",
    name=None,
):
    """Makes a parameter server's part of compressed training, or finds it.

    Args:
      shared_name: str, the name of the resource in this process; another one for
        each run of a program.
      synchronous: bool, whether pushes are collected in rounds, of which each
        makes one update. Otherwise every push makes one.
      pushes_per_round: int, how many pushes make a round.
      max_staleness: int, asynchronously: how many versions behind a push may be,
        without those of what training steps have written; negative for any number.
      updates_per_version: int, asynchronously: how many updates make a version. 0:
        four times as many as were made while the last version was encoded, or as come
        in four times the time that this took; at least 1.
      lease_seconds: float, how long the update of a round may take until the
        next worker that pushes is asked to make it: whoever was to may have died.
      container: str, where it is kept until `clean_up`, or until another program
        begins: the name of a program that no other has, a slash, and more.
      name: Name of the op.

    Returns:
      A scalar resource handle.

    Raises:
      tf.errors.InvalidArgumentError: there is a server of this name that was made
        with other arguments, or an argument is out of range.
      tf.errors.FailedPreconditionError: another program has begun meanwhile.
    """
    return library.tf_gc_parameter_server(
        shared_name=shared_name,
        synchronous=synchronous,
        pushes_per_round=pushes_per_round,
        max_staleness=max_staleness,
        updates_per_version=updates_per_version,
        lease_seconds=lease_seconds,
        container=container,
        name=name,
    )


def clean_up(container, name=None):
    """Frees all that a process has in a container, and that no op uses any more.

    Args:
      container: str, of `parameter_server` and `local_model`.
      name: Name of the op.

    Returns:
      The op (None when executing eagerly).
    """
    return library.tf_gc_clean_up(container=container, name=name)


def add_variable(server, variable, id, name, shape, push="float32", pull="float32", start_step=0):
    """Adds a variable to those that a server publishes.

    Adding it again, with the same arguments, does nothing.

    Args:
      server: handle from `parameter_server`.
      variable: handle of a variable on the same device. What is pulled or
        published must be float32; until it is initialized, and when it is gone, it
        is left out.
      id: int, the variable's number, in [0, 2^32).
      name: str, the variable's, for error messages.
      shape: the variable's shape, fully defined.
      push: str, the codec of its gradients.
      pull: str, the codec of its changes; "float32" is pulled as a whole.
      start_step: int, how many updates the model has seen when these are used at
        first. Until then everything is float32.

    Returns:
      The op (None when executing eagerly).

    Raises:
      tf.errors.InvalidArgumentError: a codec is not one, the id is another
        variable's, or sums of THC would overflow in a round.
    """
    return library.tf_gc_add_variable(
        server,
        variable,
        id=id,
        variable_name=name,
        shape=shape,
        push=push,
        pull=pull,
        start_step=start_step,
    )


def local_model(shared_name, container="", name=None):
    """Makes a worker's copy of what one server publishes, or finds it.

    Args:
      shared_name: str, the name of the resource in this process; another one for
        each server, and each run of a program.
      container: str, as that of `parameter_server`.
      name: Name of the op.

    Returns:
      A scalar resource handle.
    """
    return library.tf_gc_local_model(shared_name=shared_name, container=container, name=name)


def pull_request(model, ids, name=None):
    """Says which versions of variables a worker has.

    Args:
      model: handle from `local_model`.
      ids: list of ints, the variables that are to be pulled.
      name: Name of the op.

    Returns:
      int64 vector: the version of the model; for how many microseconds the server
      may wait for a newer one (what the last step took, if nothing has been
      pulled since, else 0); then, for each variable with another version, its id
      and that version, 0 if there is no copy.
    """
    return library.tf_gc_pull_request(model, ids=ids, name=name)


def pull(server, request, ids, read_after=(), name=None):
    """Gives what a worker lacks of the published model.

    Asynchronously it publishes a version first, if one is due. In rounds, if there
    is nothing new, it waits for the next version as long as the request says,
    without holding a thread.

    Args:
      server: handle from `parameter_server`.
      request: int64 vector from `pull_request`.
      ids: list of ints, the same as for `pull_request`.
      read_after: handles of variables that are not pulled, so that reading them comes
        after this op: they are of the version that it has waited for.
      name: Name of the op.

    Returns:
      uint8 vector for `apply_pull`: for each variable nothing, the changes since
      the worker's version, or, where that takes less, all of it.

    Raises:
      tf.errors.InvalidArgumentError: a variable was not added, or `request` is
        not one.
      tf.errors.CancelledError: the step ended while the pull was waiting.
    """
    return library.tf_gc_pull(server, request, list(read_after), ids=ids, name=name)


def apply_pull(model, message, ids, shapes, name=None):
    """Makes a worker's copies of variables those of a newer version.

    All of the message is checked before anything is changed. A message that was
    pulled before another one with the same variables was applied changes nothing.

    Args:
      model: handle from `local_model`.
      message: uint8 vector from `pull`.
      ids: list of ints, the same as for `pull_request`.
      shapes: list of the variables' shapes, fully defined.
      name: Name of the op.

    Returns:
      A named tuple of int64 scalars: `version` of the model, and `step`, the number
      of updates that this version has seen.

    Raises:
      tf.errors.DataLossError: the message is damaged.
      tf.errors.FailedPreconditionError: the server has another version of tf_gc.
    """
    return library.tf_gc_apply_pull(model, message, ids=ids, shapes=shapes, name=name)


def read_model(model, id, shape, name=None):
    """Gives a worker's copy of a variable, without copying it.

    Args:
      model: handle from `local_model`.
      id: int, the variable.
      shape: its shape, fully defined.
      name: Name of the op.

    Returns:
      float32 tensor of this shape.

    Raises:
      tf.errors.FailedPreconditionError: it was not pulled.
      tf.errors.InvalidArgumentError: it has another number of values.
    """
    return library.tf_gc_read_model(model, id=id, shape=shape, name=name)


def encode_push(
    model,
    dense,
    sparse_indices,
    sparse_values,
    multipliers,
    ids,
    codecs,
    start_steps,
    sparse_ids,
    sparse_shapes,
    row_bits=0,
    row_start_step=0,
    row_seed=0,
    channel=0,
    name=None,
):
    """Compresses a worker's gradients, each plus its residual.

        gradient + old residual = delivered + new residual

    Where gradient plus residual is not finite the residual stays, and the mean of
    the round is not finite. Sparse gradients have no residuals.

    Args:
      model: handle from `local_model`.
      dense: list of float32 tensors, the gradients.
      sparse_indices: list of int64 vectors, the rows that sparse gradients have.
      sparse_values: list of float32 tensors, these rows.
      multipliers: float32 vector, by dense gradient: the multiplier s of 3LC's scale,
        0 < s < 2, or 64 for that of the mean. Those of other codecs do not count.
      ids: list of ints, the variables of `dense`.
      codecs: list of strs, theirs.
      start_steps: list of ints, how many updates the model has seen when these are
        used at first; before, gradients travel as float32.
      sparse_ids: list of ints, the variables of `sparse_indices`.
      sparse_shapes: list of their shapes, fully defined.
      row_bits: int, 0 where sparse gradients travel as they are, but with no more rows
        than the variable has. Else rows of one index are added up, and packed, as in
        `pack_rows`: 2, 3, 4, 5, 8 or 32.
      row_start_step: int, how many updates the model has seen when fewer bits than
        32 are used at first.
      row_seed: int, of what is drawn for fewer bits.
      channel: int, which rounds the push belongs to: those of one of several
        optimizers.
      name: Name of the op.

    Returns:
      uint8 vector for `accumulate_push`.

    Raises:
      tf.errors.InvalidArgumentError: a codec is not one, a multiplier or an index is
        out of range, a variable comes twice, or its residual has another shape.
    """
    return library.tf_gc_encode_push(
        model,
        dense,
        sparse_indices,
        sparse_values,
        multipliers,
        ids=ids,
        codecs=codecs,
        start_steps=start_steps,
        sparse_ids=sparse_ids,
        sparse_shapes=sparse_shapes,
        row_bits=row_bits,
        row_start_step=row_start_step,
        row_seed=row_seed,
        channel=channel,
        name=name,
    )


def accumulate_push(server, push, master=True, name=None):
    """Adds a worker's gradients to the round, once, however often a push comes.

    Args:
      server: handle from `parameter_server`.
      push: uint8 vector from `encode_push`.
      master: bool, whether this one of several servers says when a round is
        complete.
      name: Name of the op.

    Returns:
      A named tuple. `accepted`: bool scalar, whether the push counts; in rounds it
      does if it was computed on the version that the last update of its channel
      has published, or a later one, and none is under way; asynchronously if it is
      not too stale. `ready`: bool scalar, whether this worker now makes an update,
      from `begin_update` (in rounds) to `end_update`. `round`: int64 scalar, the
      number of the round. `counted`: int64 vector, the sequence numbers of those
      earlier pushes of this worker that took part in an update, among those that it
      had no answer to. The others will not, even if they come late.

    Raises:
      tf.errors.DataLossError: the push is damaged, or of a variable that was not
        added.
      tf.errors.FailedPreconditionError: the worker has another version of tf_gc.
    """
    return library.tf_gc_accumulate_push(server, push, master=master, name=name)


def take_gradients(server, push, ids, shapes, sparse_ids, sparse_shapes, name=None):
    """Gives the mean of a round's pushes or, asynchronously, what a push holds.

    In rounds, from `begin_update` to `end_update`, it gives the same again.

    Args:
      server: handle from `parameter_server`.
      push: uint8 vector from `encode_push`, which counts asynchronously alone.
      ids: list of ints, the variables with dense gradients.
      shapes: list of their shapes, fully defined.
      sparse_ids: list of ints, the variables with sparse gradients.
      sparse_shapes: list of their shapes, fully defined.
      name: Name of the op.

    Returns:
      A named tuple of lists: `dense`, float32 gradients, zeros if no push had any;
      `second_moments`, what to expect of their squares, from the statistics in the
      pushes, NaN where a gradient is not finite, and an empty vector for a variable
      whose codec has no statistics;
      `sparse_indices`, int64 vectors, and `sparse_values`, float32 rows, of one
      push after the other.

    Raises:
      tf.errors.AbortedError: asynchronously, the worker has given up the push.
      tf.errors.InvalidArgumentError: a variable was not added, has another shape,
        or is in `sparse_ids` with a dense gradient.
    """
    return library.tf_gc_take_gradients(
        server,
        push,
        ids=ids,
        shapes=shapes,
        sparse_ids=sparse_ids,
        sparse_shapes=sparse_shapes,
        N=len(ids),
        S=len(sparse_ids),
        name=name,
    )


def begin_update(server, round, channel=0, name=None):
    """Closes a round until `end_update`, for its update.

    Args:
      server: handle from `parameter_server`.
      round: int64 scalar, its number, from `accumulate_push`.
      channel: int, whose round it is.
      name: Name of the op.

    Returns:
      bool scalar: False if the update has been made already, by another worker
      that had the lease.
    """
    return library.tf_gc_begin_update(server, round, channel=channel, name=name)


def end_update(server, round, updated, multipliers, ids, channel=0, name=None):
    """Ends an update of the variables.

    In rounds it publishes the next version, opens the channel's next round, and
    answers the pulls that wait, unless that was done before. Asynchronously it
    counts the update: once there are enough of them, the next pull publishes all
    that has been pulled before.

    Args:
      server: handle from `parameter_server`.
      round: int64 scalar, its number; does not count asynchronously.
      updated: list of handles of the variables that the update has written to, so
        that this op comes after it.
      multipliers: float32 vector, by variable of `ids`: the multiplier s of 3LC's
        scale of its changes, 0 < s < 2, or 64 for that of the mean. Those of other
        codecs do not count.
      ids: list of ints, the variables that are published, if they have changed.
      channel: int, whose round it was.
      name: Name of the op.

    Returns:
      int64 scalar, the server's version.

    Raises:
      tf.errors.InvalidArgumentError: a variable was not added, or a multiplier is
        out of range.
    """
    return library.tf_gc_end_update(
        server, round, updated, multipliers, ids=ids, channel=channel, name=name
    )


def publish_whole(server, ids, outdated=(), name=None):
    """Publishes a new version with variables as they are, uncompressed.

    For what has been written to them by other means than an update.

    Args:
      server: handle from `parameter_server`.
      ids: list of ints, the variables.
      outdated: list of ints, the variables whose pushes of rounds without an update yet are
        forgotten, as are pushes to come that were computed before; without
        rounds nothing is.
      name: Name of the op.

    Returns:
      The op (None when executing eagerly).
    """
    return library.tf_gc_publish_whole(server, ids=ids, outdated=outdated, name=name)


def forget_variables(server, ids, channels, name=None):
    """Frees what a server has of variables, when these are gone.

    Pulls and updates may still name them, as functions that were traced before do, and
    leave them out.

    Args:
      server: handle from `parameter_server`.
      ids: int64 vector, the variables.
      channels: int64 vector, the channels that are gone with the last of their variables.
      name: Name of the op.

    Returns:
      The op (None when executing eagerly).
    """
    return library.tf_gc_forget_variables(server, ids, channels, name=name)


def forget_copies(model, ids, name=None):
    """Frees a worker's copies of variables, and what it has kept for their pushes.

    Args:
      model: handle from `local_model`.
      ids: int64 vector, the variables.
      name: Name of the op.

    Returns:
      The op (None when executing eagerly).
    """
    return library.tf_gc_forget_copies(model, ids, name=name)


def set_server_step(server, step, name=None):
    """Sets how many updates a server's variables have seen, in programs before too.

    Workers know of it with their next pull.

    Args:
      server: handle from `parameter_server`.
      step: int64 scalar, their number.
      name: Name of the op.

    Returns:
      The op (None when executing eagerly).

    Raises:
      tf.errors.InvalidArgumentError: `step` is negative.
    """
    return library.tf_gc_set_server_step(server, step, name=name)


def settle_push(model, push, accepted, counted, name=None):
    """Tells a worker's copy of the model what has become of a push.

    And of earlier ones of its channel that had no answer. What the server did not
    take goes back into the residuals, where it is finite: it is part of the next
    push.

    Args:
      model: handle from `local_model`.
      push: uint8 vector from `encode_push`, of the same model.
      accepted: bool scalar, from `accumulate_push`.
      counted: int64 vector, from `accumulate_push`.
      name: Name of the op.

    Returns:
      The op (None when executing eagerly).

    Raises:
      tf.errors.DataLossError: the push is damaged, or not of this model.
    """
    return library.tf_gc_settle_push(model, push, accepted, counted, name=name)


def unsettled_pushes(model, name=None):
    """Lists a worker's pushes without an answer: their steps are under way, or have failed.

    Args:
      model: handle from `local_model`.
      name: Name of the op.

    Returns:
      int64 vector: the worker's number, then the channel and the sequence number of
      each push.
    """
    return library.tf_gc_unsettled_pushes(model, name=name)


def counted_pushes(server, unsettled, name=None):
    """Says which of a worker's pushes take part in an update by now. The others may yet.

    Args:
      server: handle from `parameter_server`.
      unsettled: int64 vector from `unsettled_pushes`.
      name: Name of the op.

    Returns:
      int64 vector, their sequence numbers.

    Raises:
      tf.errors.InvalidArgumentError: `unsettled` is not such a vector.
    """
    return library.tf_gc_counted_pushes(server, unsettled, name=name)


def settle_unsettled(model, unsettled, counted, name=None):
    """Tells a worker's copy of the model which pushes without an answer have counted.

    What the others carry is part of what `read_residual` reads, till they are settled.

    Args:
      model: handle from `local_model`.
      unsettled: int64 vector from `unsettled_pushes`, of the same model.
      counted: int64 vector from `counted_pushes`.
      name: Name of the op.

    Returns:
      The op (None when executing eagerly).
    """
    return library.tf_gc_settle_unsettled(model, unsettled, counted, name=name)


def server_statistics(server, name=None):
    """Counts what a server has done so far.

    Args:
      server: handle from `parameter_server`.
      name: Name of the op.

    Returns:
      A named tuple of int64 vectors. `counters`: the version; updates, with those of
      programs before; updates; pushes accepted; pushes dropped; pulls; bytes of all
      pushes; bytes of all pulls; versions for which something was compressed; bytes
      kept for workers that are behind; pushes in the open round; leases passed on;
      pulls that wait now.
      `ids`: the variables, ascending; and by variable `values_pushed`, which
      pushes stood for, `bytes_pushed`, which these took, `second_moment_bytes_pushed`,
      those of statistics among them, `values_pulled`, all of the variable's for
      each pull of it, and `bytes_pulled`. Bytes have what comes before a body among
      them, headers of messages only in `counters`.
    """
    return library.tf_gc_server_statistics(server, name=name)


def read_residual(model, id, shape, name=None):
    """Gives what waits for a worker's next push of a variable.

    Args:
      model: handle from `local_model`.
      id: int, the variable.
      shape: its shape, fully defined.
      name: Name of the op.

    Returns:
      float32 tensor of this shape; empty, of shape [0], if nothing waits.
    """
    return library.tf_gc_read_residual(model, id=id, shape=shape, name=name)


def write_residual(model, value, id, name=None):
    """Sets what a worker's next push of a variable adds to its gradient.

    Args:
      model: handle from `local_model`.
      value: float32 tensor of the variable's shape, or empty if nothing waits.
      id: int, the variable.
      name: Name of the op.

    Returns:
      The op (None when executing eagerly).
    """
    return library.tf_gc_write_residual(model, value, id=id, name=name)


def read_second_moment(model, id, shape, name=None):
    """Gives the statistics of the gradients that a worker has pushed of a variable.

    Args:
      model: handle from `local_model`.
      id: int, the variable.
      shape: that of a vector of rows + columns + 1 values.
      name: Name of the op.

    Returns:
      float32 tensor of this shape: the decayed means of squares of the rows and
      then of the columns, and the weight of what is in them
      (`update_second_moments`); zeros before the first gradient.

    Raises:
      tf.errors.InvalidArgumentError: there is another number of them.
    """
    return library.tf_gc_read_second_moment(model, id=id, shape=shape, name=name)


def write_second_moment(model, value, id, name=None):
    """Sets the statistics of the gradients that a worker has pushed of a variable.

    Args:
      model: handle from `local_model`.
      value: float32 vector, as `read_second_moment` gives it.
      id: int, the variable.
      name: Name of the op.

    Returns:
      The op (None when executing eagerly).
    """
    return library.tf_gc_write_second_moment(model, value, id=id, name=name)


def read_round(server, id, shape, name=None):
    """Gives the sum of a variable's gradients in the open round.

    Args:
      server: handle from `parameter_server`.
      id: int, the variable.
      shape: its shape, fully defined.
      name: Name of the op.

    Returns:
      float32 tensor of this shape, the sum of the accepted pushes; empty, of shape [0], if
      they had nothing of it.
    """
    return library.tf_gc_read_round(server, id=id, shape=shape, name=name)


def library_version(name=None):
    """Names the library that a process has loaded.

    Args:
      name: Name of the op.

    Returns:
      A string scalar: the version of the wire format, a space, and that of
      TensorFlow.
    """
    return library.tf_gc_library_version(name=name)
