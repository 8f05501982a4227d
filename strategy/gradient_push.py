"""Gradients of a step -> one push to each server -> the optimizer's update there."""

import re

import tensorflow as tf
from tf_gc.strategy import message_pieces, pulled_variable, second_moments, worker_step
from tf_gc.strategy.variables import GRADIENT_DTYPES, check_come_once

from tf_gc import ops


class GradientPush:
    """One step's gradients, on their way to the servers.

    Args:
      grads_and_vars: (gradient, variable) pairs, gradients being tensors or
        `tf.IndexedSlices`.
      channel: the number of the optimizer and these variables, which have rounds of their own.
      updates: the `tf.CriticalSection` that updates are made in.
      synchronous: whether a server adds up several pushes before an update.
      embeddings: the `EmbeddingRows` that `tf.IndexedSlices` travel by, or None.

    Raises:
      ValueError: a variable is not the strategy's, or of another type than
        float32, float16 or bfloat16, or has more than one gradient, or a gradient
        is of another shape.
    """

    def __init__(self, grads_and_vars, channel, updates, synchronous, embeddings):
        self._updates = updates
        self._synchronous = synchronous
        self._variables = [variable for _, variable in grads_and_vars]
        self._dtypes = []
        self._parts = {}  # server -> _Part
        for index, (gradient, variable) in enumerate(grads_and_vars):
            pulled = _checked(variable)
            self._dtypes.append(pulled.dtype)
            server = pulled.tf_gc_server
            part = self._parts.setdefault(server, _Part(server, channel, embeddings))
            part.add(index, _of_shape(gradient, variable), pulled.tf_gc_entry)
        check_come_once(self._variables)

    def send(self, apply):
        """Pushes, and lets the optimizer update the variables once enough has come.

        Args:
          apply: called with (gradient, variable) pairs, in the order of
            `grads_and_vars`, of the gradients that the update is to apply.
            Its operations run on the servers.
        """
        # The one server that says when a round is complete hears of a push last: when it does,
        # all others have what they need.
        parts = sorted(self._parts.values(), key=lambda part: part.server.device, reverse=True)
        for part in parts:
            part.encode()
        for part in parts:
            before = [p.accepted for p in parts if p.accepted is not None]
            is_last = self._synchronous and part is parts[-1]
            with tf.control_dependencies(before if is_last else []):
                part.accumulate(is_master=part is parts[-1])
        if self._synchronous:
            ready = parts[-1].ready
        else:
            ready = tf.reduce_all(tf.stack([part.accepted for part in parts]))
        with parts[-1].server.scope():
            updated = tf.cond(
                ready,
                lambda: self._updates.execute(
                    lambda: self._update(parts, apply), exclusive_resource_access=False
                ),
                lambda: tf.constant(0, tf.int64),
            )
        # An accepted push is part of a round. Asynchronously it counts once its update is made.
        with tf.control_dependencies([] if self._synchronous else [updated]):
            for part in parts:
                part.settle(part.accepted if self._synchronous else ready)
        worker_step.note(
            "pushed", *(pulled_variable.find(v).tf_gc_entry.id for v in self._variables)
        )

    def _update(self, parts, apply):
        worker_step.mark_update(self._parts)
        round_ = parts[-1].round
        is_open = tf.constant(True)
        if self._synchronous:
            # Another worker may have had the lease meanwhile. No server's round ends before the
            # variables of all servers are written: where one has, the rest is to be ended.
            is_open = tf.reduce_all(tf.stack([part.begin_update(round_) for part in parts]))
        # TensorFlow lets end_update wait for operations on what it takes itself: the server and the
        # pulled variables. A condition takes all that it writes, and is waited for as one.
        tf.cond(is_open, lambda: self._apply(parts, apply), lambda: tf.constant(False))
        versions = []
        for part in parts:
            with tf.control_dependencies(versions):
                versions.append(part.end_update(round_))
        return versions[-1]

    def _apply(self, parts, apply):
        gradients = [None] * len(self._variables)
        for part in parts:
            for index, gradient, second_moment in part.take():
                gradients[index] = tf.cast(gradient, self._dtypes[index])
                if second_moment is not None:
                    pushes = part.server.pushes_per_round
                    second_moments.attach(gradients[index], second_moment, workers=pushes)
        grads_and_vars = list(zip(gradients, self._variables, strict=True))
        with second_moments.delivered(grads_and_vars):
            apply(grads_and_vars)
        return tf.constant(True)


class _Part:
    """What goes to one server."""

    def __init__(self, server, channel, embeddings):
        self.server = server
        self._channel = channel
        self._embeddings = embeddings
        self.accepted = None
        self.ready = None
        self.round = None
        self._dense = []  # (index of the pair, gradient, ServerVariable)
        self._sparse = []
        self._model = self._push = self._pieces = self._arrived = None
        self._step = self._counted = None

    def add(self, index, gradient, entry):
        self.server.push_on(self._channel, entry.id)
        is_sparse = isinstance(gradient, tf.IndexedSlices)
        (self._sparse if is_sparse else self._dense).append((index, gradient, entry))

    def encode(self):
        self._model = worker_step.model_of(self.server)
        has_schedules = self.server.has_schedules
        self._step = worker_step.updates_of(self.server) if has_schedules else None
        entries = [entry for _, _, entry in self._dense]
        ids = [entry.id for entry in entries]
        with worker_step.on_worker():
            self._push = ops.encode_push(
                self._model,
                [tf.cast(gradient, tf.float32) for _, gradient, _ in self._dense],
                [tf.cast(gradient.indices, tf.int64) for _, gradient, _ in self._sparse],
                [_rows(gradient) for _, gradient, _ in self._sparse],
                self.server.multipliers(ids, self._step),
                ids=ids,
                codecs=[entry.codecs.push for entry in entries],
                start_steps=[entry.compressor.start_step for entry in entries],
                sparse_ids=[entry.id for _, _, entry in self._sparse],
                sparse_shapes=[entry.shape for _, _, entry in self._sparse],
                row_bits=self._embeddings.bits if self._embeddings else 0,
                row_start_step=self._embeddings.start_step if self._embeddings else 0,
                row_seed=self._embeddings.seed if self._embeddings else 0,
                channel=self._channel,
            )
            pieces = message_pieces.count(
                [entry.shape for entry in entries], [entry.shape for _, _, entry in self._sparse]
            )
            self._pieces = message_pieces.cut(self._push, pieces)

    def accumulate(self, is_master):
        with self.server.scope():
            # What the server's operations take. The condition around the update would else take
            # the push where it was made, and send it a second time.
            self._arrived = message_pieces.join(self._pieces)
            self.accepted, self.ready, self.round, self._counted = ops.accumulate_push(
                self.server.handle, self._arrived, master=is_master
            )

    def begin_update(self, round_):
        """Closes a round; returns False if its update was made already."""
        with self.server.scope():
            return ops.begin_update(self.server.handle, round_, channel=self._channel)

    def take(self):
        """Returns what an update applies: (index of the pair, gradient, second moment or None)."""
        with self.server.scope():
            dense, moments, indices, values = ops.take_gradients(
                self.server.handle,
                self._arrived,
                ids=[entry.id for _, _, entry in self._dense],
                shapes=[entry.shape for _, _, entry in self._dense],
                sparse_ids=[entry.id for _, _, entry in self._sparse],
                sparse_shapes=[entry.shape for _, _, entry in self._sparse],
            )
            taken = []
            for (index, _, entry), g, moment in zip(self._dense, dense, moments, strict=True):
                moment.set_shape(entry.shape if entry.matrix else [0])
                taken.append((index, g, moment if entry.matrix else None))
            for (index, _, entry), i, rows in zip(self._sparse, indices, values, strict=True):
                shape = tf.constant(entry.shape, tf.int64)
                taken.append((index, tf.IndexedSlices(rows, i, shape), None))
        return taken

    def end_update(self, round_):
        """Says that the optimizer's operations, those before this in the graph, are done."""
        ids = [entry.id for entry in self.server.pulled_variables]
        with self.server.scope():
            return ops.end_update(
                self.server.handle,
                round_,
                self.server.handles,
                self.server.multipliers(ids, self._step),
                ids=ids,
                channel=self._channel,
            )

    def settle(self, accepted):
        with worker_step.on_worker():
            ops.settle_push(self._model, self._push, accepted, self._counted)


def _checked(variable):
    pulled = pulled_variable.find(variable)
    if pulled is None:
        dtype = tf.as_dtype(variable.dtype)  # Keras 3 has its name alone
        raise ValueError(
            f"{variable.name} is no trainable variable of floats and a known shape that was made in"
            f" this strategy's scope(); it is {dtype.name} of shape {variable.shape}"
        )
    if pulled.dtype not in GRADIENT_DTYPES:
        raise ValueError(
            f"{variable.name} is {pulled.dtype.name}; parameter servers take gradients of float32,"
            " float16 and bfloat16"
        )
    return pulled


def _of_shape(gradient, variable):
    """Returns the gradient, whose shape is checked: while tracing if it is known, or in the step.

    The server would refuse a push of another shape, and the worker would add it to the next one.
    """
    name = variable.name.partition(":")[0]
    if isinstance(gradient, tf.IndexedSlices):
        values = _ensure_shape(gradient.values, [None, *variable.shape[1:]], name)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return _ensure_shape(gradient, variable.shape, name)


def _ensure_shape(tensor, shape, name):
    shape = tf.TensorShape(shape)
    if not shape.is_compatible_with(tensor.shape):
        raise ValueError(
            f"the gradient of {name} has the shape {tensor.shape}, and must have {shape}"
        )
    return tf.ensure_shape(tensor, shape, name=re.sub(r"\W", "_", f"gradient_of_{name}"))


def _rows(gradient):
    values = tf.cast(gradient.values, tf.float32)
    return tf.reshape(values, [tf.shape(values)[0], -1]) if values.shape.rank != 2 else values
