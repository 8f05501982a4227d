"""TensorFlow's private parts, which may change with any version: strategies take them from here.

All of it, with the methods and attributes that are named, was found in the sources of 2.17 to 2.21;
tests run with the last one. Keras's private parts are in `keras_seams.py` and `keras_callbacks.py`.
"""

import contextlib
import functools
import weakref

import tensorflow as tf

# Replaced: CONVERSION_RULES; used: DoNotConvert.
from tensorflow.python.autograph.core import config as autograph
from tensorflow.python.checkpoint.checkpoint_context import in_async_metrics_context

# Overridden: _use_merge_call, _call_for_each_replica, _initialize_multi_worker, _reduce,
# _batch_reduce_to, _replica_ctx_all_reduce; used: _communication_options, _local_results,
# _worker_device, _id_in_cluster, _num_workers, _std_server_started, _enable_check_health,
# _collective_key_base, _cross_device_ops, _host_cross_device_ops, _container_strategy.
from tensorflow.python.distribute.collective_all_reduce_strategy import (
    CollectiveAllReduceExtended,
)

# Overridden: _next_instance_key; used: _collective_keys, _group_key, _device, and _launchers of a
# CollectiveAllReduce.
from tensorflow.python.distribute.cross_device_utils import CollectiveReplicaLauncher
from tensorflow.python.distribute.distribute_utils import regroup, select_replica

# Replaced: detect_platform; used: PlatformDevice.INTERNAL_CPU.
from tensorflow.python.distribute.failure_handling import failure_handling_util

# Overridden: _create_variable, _create_var_creator, _call_for_each_replica; used:
# _assert_being_scheduled_by_cluster_coordinator, and _should_use_with_coordinator of the strategy.
from tensorflow.python.distribute.parameter_server_strategy_v2 import (
    ParameterServerStrategyV2Extended,
)

# Overridden: _dense_var_to_tensor, and _assign_func of the first; used: _v,
# _overload_overloadable_operators.
from tensorflow.python.distribute.ps_values import AggregatingVariable, CachingVariable

# Replaced: _gather_saveables_for_checkpoint.
from tensorflow.python.distribute.sharded_variable import ShardedVariable

# A variable's _distributed_container leads to them. Overridden: _gather_saveables_for_checkpoint of
# a SyncOnReadVariable, restore of its saveable; used: _common_name, _sync_on_read_variable.
from tensorflow.python.distribute.values import (
    Mirrored,
    SyncOnReadVariable,
)
from tensorflow.python.distribute.values import (
    _SyncOnReadSaveable as SyncOnReadSaveable,
)

# Replaced: configure_coordination_service; used: _collective_ops_server_def, coordination_service.
from tensorflow.python.eager.context import context

# Used: _clone.
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
from tensorflow.python.eager.record import could_possibly_record, record_operation, stop_recording
from tensorflow.python.framework.config import is_op_determinism_enabled

# Used: capture_call_time_value, outer_graph, and by_ref_external of its function_captures.
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.framework.kernels import get_registered_kernels_for_op

# The public one warns that it is deprecated.
from tensorflow.python.framework.ops import colocate_with
from tensorflow.python.framework.tensor_conversion_registry import (
    register_tensor_conversion_function,
)
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
from tensorflow.python.ops.control_flow_v2_func_graphs import ControlFlowFuncGraph
from tensorflow.python.ops.gen_functional_ops import partitioned_call
from tensorflow.python.ops.handle_data_util import get_resource_handle_data

# Used: op of what converters get; _pfor_impl has the name scope "loop_body".
from tensorflow.python.ops.parallel_for.pfor import RegisterPFor, wrap

# A variable that no strategy mirrors. Used: _unique_id, _serialize_to_tensors,
# _restore_from_tensors.
from tensorflow.python.ops.resource_variable_ops import (
    BaseResourceVariable,
    ResourceVariable,
    variable_accessed,
)
from tensorflow.python.saved_model.save_context import in_save_context

# Overridden: _trackable_children, _lookup_dependency, _serialize_to_tensors, _restore_from_tensors,
# _update_uid; used: _track_trackable, _handle_deferred_dependencies, _deferred_dependencies,
# _maybe_initialize_trackable; of the positions in the third: value_tensors, restore_uid, proto_id,
# and object_by_proto_id of their checkpoint.
from tensorflow.python.trackable.base import VARIABLE_VALUE_KEY, SaveType, Trackable

# AutoGraph does not convert functions of TensorFlow and Keras, and need not convert those of tf_gc.
autograph.CONVERSION_RULES = (autograph.DoNotConvert("tf_gc"), *autograph.CONVERSION_RULES)


@contextlib.contextmanager
def placed_on(device):
    """Places operations on a device, whatever scope this is in."""
    with colocate_with(None, ignore_existing=True), tf.device(device):
        yield


@contextlib.contextmanager
def patience(heartbeat_seconds, start_seconds):
    """Sets how long strategies that are made in this context wait for others; 0 is TensorFlow's.

    Args:
      heartbeat_seconds: after which a worker without a sign of life counts as dead.
      start_seconds: for all workers to connect to the first one.
    """
    eager = context()
    eager.configure_coordination_service = functools.partial(
        eager.configure_coordination_service,
        heartbeat_timeout_in_ms=round(1000 * heartbeat_seconds),
        cluster_register_timeout_in_ms=round(1000 * start_seconds),
    )
    try:
        yield
    finally:
        del eager.configure_coordination_service


@contextlib.contextmanager
def preemption_by_sigterm():
    """Has handlers of preemption that are made in this context watch for SIGTERM on any machine.

    TensorFlow's own way is to ask Google's cloud whether the machine is there, where it would heed
    its notices of maintenance with GPUs, and nothing without.
    """
    detect_platform = failure_handling_util.detect_platform
    elsewhere = failure_handling_util.PlatformDevice.INTERNAL_CPU
    failure_handling_util.detect_platform = lambda: elsewhere
    try:
        yield
    finally:
        failure_handling_util.detect_platform = detect_platform


def capture_in_each_call(graph, dtype, function, *args):
    """Returns what stands in a function's graph for function(*args), called in each of its calls.

    `capture_call_time_value` by itself has the caller capture it in turn: it is called when the
    outermost function is, and never if a condition is in between.

    Args:
      graph: the `FuncGraph`.
      dtype: of what `function` returns, a scalar in the graph of the caller.
      function: what is called, once in each call for the same arguments.
      args: its arguments, which are hashable.
    """
    key = (function, *args)
    closure = functools.partial(function, *args)
    placeholder = graph.capture_call_time_value(closure, tf.TensorSpec([], dtype), key=key)
    graph.function_captures.by_ref_external[key] = closure
    return placeholder


def is_vectorized():
    """Whether the function of a tf.vectorized_map is being traced, or something of that name."""
    return "loop_body" in tf.compat.v1.get_default_graph().get_name_scope()


def keep_where_vectorized(*ops):
    """Has tf.vectorized_map do these of tf_gc's ops once, for all that it maps."""
    for op in ops:
        RegisterPFor(f"TfGc>{op}")(lambda of_op: [wrap(out, False) for out in of_op.op.outputs])


def is_compiled():
    """Whether a function with jit_compile=True is being traced."""
    return bool(GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def check_not_compiled(message):
    """Refuses what XLA could not compile.

    Raises:
      ValueError: a function with jit_compile=True is being traced.
    """
    if is_compiled():
        raise ValueError(message)


def read_variable(position):
    """Returns a variable that is, for now, what a checkpoint has at a position."""
    [value] = position.value_tensors().values()
    variable = ResourceVariable(value, trainable=False)
    variable._maybe_initialize_trackable()
    variable._update_uid = position.restore_uid
    position.checkpoint.object_by_proto_id[position.proto_id] = variable
    return variable


def forget_variable(position):
    """Lets another variable be what the checkpoint has at a position."""
    position.checkpoint.object_by_proto_id.pop(position.proto_id, None)


def call_only_replica(extended, replica, fn, args, kwargs):
    """Calls `fn` as a worker's only replica.

    TensorFlow does so in a thread, from which gradients could not be exchanged in
    control flow (gradient accumulation, loss scaling).

    Args:
      extended: the strategy's `tf.distribute.StrategyExtended`.
      replica: the replica's number, in the whole cluster.
      fn: the function, whose result is returned.
      args: its arguments, which may be `tf.distribute.DistributedValues`.
      kwargs: likewise, by name.
    """
    args, kwargs = select_replica(0, (args, kwargs))
    if isinstance(fn, Function):
        fn = _with_own_traces(extended, fn)
    replica_context = tf.distribute.ReplicaContext(extended._container_strategy(), replica)
    with replica_context, tf.device(extended.worker_devices[0]):
        return fn(*args, **kwargs)


def _with_own_traces(extended, function):
    """Returns a tf.function that a strategy alone traces, as TensorFlow's strategies have one.

    A trace that was made outside of any strategy, which exchanges nothing, is else taken for that
    of a replica, too.
    """
    functions = vars(extended).setdefault("_tf_gc_functions", weakref.WeakKeyDictionary())
    if function not in functions:
        functions[function] = function._clone(python_function=None)
    return functions[function]
