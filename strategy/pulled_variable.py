"""Variables that live on a parameter server, and that training steps read from a copy."""

import functools
import weakref

import tensorflow as tf
from tf_gc.strategy import tensorflow_internals as internals
from tf_gc.strategy import variables, worker_step

from tf_gc import ops

_WRITES = (
    "assign",
    "assign_add",
    "assign_sub",
    "batch_scatter_update",
    "scatter_add",
    "scatter_div",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_nd_add",
    "scatter_nd_max",
    "scatter_nd_min",
    "scatter_nd_sub",
    "scatter_nd_update",
    "scatter_sub",
    "scatter_update",
)


_pulled = weakref.WeakValueDictionary()  # the server's variable's _unique_id -> PulledVariable


class PulledVariable(internals.CachingVariable):
    """A server's variable, of which a step under a gradient tape reads the worker's copy.

    All other reads, those of the coordinator, of evaluation and of checkpoints
    among them, are of the variable itself, as are those of a step that has written
    to it, or has pushed its gradient and reads it under no tape. What is written to
    it other than by an optimizer's update is published at once, whole.

    Args:
      variable: the server's `tf.Variable`.
      server: its `ServerVariables`.
      entry: its `ServerVariable`.
    """

    def __init__(self, variable, server, entry):
        super().__init__(variable)
        self.tf_gc_server = server
        self.tf_gc_entry = entry
        _pulled[variable._unique_id] = self

    def value(self):
        return self._read_copy() if self._is_copied() else super().value()

    def read_value(self):
        return self._read_copy() if self._is_copied() else super().read_value()

    def sparse_read(self, indices, name=None):
        if self._is_copied():
            return self._gather_from_copy(indices)
        return super().sparse_read(indices, name=name)

    def gather_nd(self, indices, name=None):
        if self._is_copied():
            return tf.gather_nd(self._read_copy(), indices, name=name)
        return super().gather_nd(indices, name=name)

    def _dense_var_to_tensor(self, dtype=None, name=None, as_ref=False):
        if not self._is_copied():
            return super()._dense_var_to_tensor(dtype=dtype, name=name, as_ref=as_ref)
        if dtype is not None and not dtype.is_compatible_with(self.dtype):
            return NotImplemented
        return self._read_copy()

    def _serialize_to_tensors(self):
        return self._v._serialize_to_tensors()

    def _restore_from_tensors(self, restored_tensors):
        restored = self._v._restore_from_tensors(restored_tensors)
        self.publish(restored)
        return restored

    def publish(self, written):
        """Gives the variable's value to all workers, exactly, once `written` has been done.

        What no worker has a copy of is not published, nor what an update writes to a server that
        publishes a version after it. Pushes that were computed on other values are outdated, and
        so is what other servers have of their rounds, unless a training step or an update has
        written: one that always does would outdate all.
        """
        server = self.tf_gc_server
        entry = self.tf_gc_entry
        step = worker_step.current_step()
        updating = worker_step.updating_servers()
        if updating is not None:
            if server in updating:
                return
        elif step is not None:
            worker_step.note("written", entry.id)
        operation = [] if tf.executing_eagerly() else [getattr(written, "op", written)]
        with tf.control_dependencies(operation):
            with server.scope():
                ops.publish_whole(
                    server.handle,
                    ids=[entry.id] if entry.is_pulled else [],
                    outdated=[entry.id] if step is None else [],
                )
            if step is not None:
                return
            for other, ids in server.in_rounds_with(entry.id):
                with other.scope():
                    ops.publish_whole(other.handle, ids=[], outdated=ids)

    def _is_copied(self):
        """Whether a read here is one of the copy; begins the step's pull if it is its first."""
        step = worker_step.current_step()
        if (
            step is None
            or not step.knows(self.tf_gc_server)
            or internals.in_save_context()
            or worker_step.in_update()
        ):
            return False
        is_taped = internals.could_possibly_record()
        if not step.keeps_copy(self.tf_gc_entry.id, is_taped):
            return False
        if not step.has_pulled and not is_taped:
            return False
        internals.check_not_compiled(
            "tf_gc reads the variables of parameter servers outside of XLA: use "
            "model.compile(jit_compile=False) or, in a loop of your own, a tf.function without "
            "jit_compile=True"
        )
        step.pull()
        return self.tf_gc_entry.is_pulled

    def _read_copy(self):
        entry = self.tf_gc_entry
        is_taped = internals.could_possibly_record()
        with internals.stop_recording():
            copy = self._choose(self._copy, self._v.read_value, is_taped)
            value = _link(copy, tf.zeros([0], tf.int64), self._v.handle, "TfGcRead")
            value.set_shape(entry.shape)
        internals.variable_accessed(self)
        internals.record_operation(
            "ReadVariableOp", [value], [self._v.handle], backward_function=lambda dy: [dy]
        )
        return value

    def _gather_from_copy(self, indices):
        if internals.is_vectorized():  # which would not find the gradient
            return tf.gather(self._read_copy(), indices)
        entry = self.tf_gc_entry
        is_taped = internals.could_possibly_record()
        with internals.stop_recording():
            indices = tf.convert_to_tensor(indices)
            rows = self._choose(
                lambda: tf.gather(self._copy(), indices),
                lambda: self._v.sparse_read(indices),
                is_taped,
            )
            value = _link(rows, indices, self._v.handle, "TfGcGather")
            value.set_shape(rows.shape)
        internals.variable_accessed(self)
        internals.record_operation(
            "ResourceGather",
            [value],
            [self._v.handle],
            backward_function=lambda dy: [_rows_gradient(dy, indices, entry.shape)],
        )
        return value

    def _choose(self, read_copy, read_variable, is_taped):
        """Reads the copy or, where a function is called later that keeps none, the variable."""
        if not worker_step.is_inner_function():
            return read_copy()
        is_copied = worker_step.keeps_copy(self.tf_gc_server, self.tf_gc_entry.id, is_taped)
        return tf.cond(is_copied, read_copy, read_variable)

    def _copy(self):
        with worker_step.on_worker():
            return ops.read_model(
                worker_step.copy_of(self.tf_gc_server),
                id=self.tf_gc_entry.id,
                shape=self.tf_gc_entry.shape,
            )


class ReplicatedVariable(internals.AggregatingVariable):
    """A variable of workers with several replicas, which all have the one that is in it.

    That is a `PulledVariable`, or a `CachingVariable` where it is not trained.
    """

    def _assign_func(self, *args, **kwargs):
        if worker_step.in_update():  # which has no replicas
            return kwargs.pop("f")(self._v, *args, **kwargs)
        return super()._assign_func(*args, **kwargs)

    def _serialize_to_tensors(self):
        return self._saved._serialize_to_tensors()

    def _restore_from_tensors(self, restored_tensors):
        return self._saved._restore_from_tensors(restored_tensors)

    @property
    def _saved(self):
        return self._v if isinstance(self._v, PulledVariable) else self._v.get()


def find(variable):
    """Returns the `PulledVariable` in or around a variable, or None.

    Of what is not read from a copy, a tape watches the server's variable itself.
    """
    return _pulled.get(getattr(variables.unwrap(variable), "_unique_id", None))


def _define_writes():
    for method in _WRITES:

        def write(self, *args, _method=method, **kwargs):
            written = getattr(self._v, _method)(*args, **kwargs)
            if isinstance(self, PulledVariable):
                self.publish(written)
            return written

        original = getattr(internals.BaseResourceVariable, method)
        write = functools.wraps(original)(write)
        setattr(PulledVariable, method, write)
        if not method.startswith("assign"):  # which TensorFlow has there
            setattr(ReplicatedVariable, method, write)


def _rows_gradient(dy, indices, shape):
    rows = tf.reshape(dy, [-1, *shape[1:]])
    # The shape is int32, as TensorFlow's for a branch that reads nothing.
    return tf.IndexedSlices(rows, tf.reshape(indices, [-1]), tf.constant(shape, tf.int32))


def _link(value, indices, handle, gradient):
    """Returns `value`, of which `handle`, a variable's, gets the gradient.

    Gradients of functions, conditions and loops are found by walking a graph back
    from its outputs to the handles that it takes. The copy, a resource of the
    worker, says nothing of the variable. A call of a function that takes both
    does; it is replaced by the function's body before operations are placed, so
    that the server's handle never comes to the worker.
    """
    function = _first_argument(value.dtype, indices.dtype)
    graph = tf.compat.v1.get_default_graph()
    function.add_to_graph(graph)
    with graph.gradient_override_map({"PartitionedCall": gradient}):
        (linked,) = internals.partitioned_call(
            [value, indices, handle], Tout=[value.dtype], f=function.name
        )
    return linked


@functools.cache
def _first_argument(dtype, index_dtype):
    with tf.init_scope():
        return tf.function(
            lambda value, indices, handle: tf.identity(value),
            autograph=False,
            input_signature=[
                tf.TensorSpec(None, dtype),
                tf.TensorSpec(None, index_dtype),
                tf.TensorSpec([], tf.resource),
            ],
        ).get_concrete_function()


@tf.RegisterGradient("TfGcRead")
def _read_gradient(op, dy):
    del op
    return None, None, dy


@tf.RegisterGradient("TfGcGather")
def _gather_gradient(op, dy):
    _, indices, handle = op.inputs
    data = internals.get_resource_handle_data(handle)
    shape = tf.TensorShape(data.shape_and_type[0].shape).as_list()
    return None, None, _rows_gradient(dy, indices, shape)


_define_writes()
internals.keep_where_vectorized("LocalModel", "PullRequest", "Pull", "ApplyPull", "ReadModel")
internals.register_tensor_conversion_function(
    PulledVariable,
    lambda variable, dtype=None, name=None, as_ref=False: variable._dense_var_to_tensor(
        dtype, name, as_ref
    ),
    priority=0,
)
PulledVariable._overload_overloadable_operators()
