"""What a training step on a worker has pulled, and how functions within it find that.

A step is one call of a function by `strategy.run`, in a graph. At the first read
of a variable under a gradient tape it pulls: the worker's copy of the model
becomes the published model of each server, once. From then on the step reads
the copy.

A function that the step calls may have been traced in another step. It takes the
step's copy from whoever calls it, at the time of the call, and tells it then what
it pushes and writes.
"""

import contextlib

import tensorflow as tf
from tf_gc.strategy import message_pieces
from tf_gc.strategy import tensorflow_internals as internals

from tf_gc import ops

_STEP = "_tf_gc_step"
_MODELS = "_tf_gc_models"
_UPDATE = "_tf_gc_update"
_WORKER_DEVICE = "/device:CPU:0"


class WorkerStep:
    """One step of a worker, in a graph that is being made.

    Args:
      graph: the graph in which the step's function is called.
      servers: the strategy's `ServerVariables`, by device; there may be more soon.

    Attributes:
      written: ids of variables that the step has written to.
      pushed: ids of variables whose gradients the step has pushed.
    """

    def __init__(self, graph, servers):
        self._graph = graph
        self._servers = servers
        self._steps = {}  # server -> number of updates that its copy has seen, an int64 scalar
        self._pulled = set()  # ids of variables
        self.written = set()
        self.pushed = set()

    @property
    def has_pulled(self):
        return bool(self._steps)

    def keeps_copy(self, id_, is_taped):
        """Whether reads of a variable, under a tape or not, are not of the variable itself yet."""
        return id_ not in self.written and (is_taped or id_ not in self.pushed)

    def knows(self, server):
        """Whether this is a step of the server's strategy."""
        return self._servers.get(server.device) is server

    def pull(self):
        """Pulls, from every server, what this step has not got yet.

        All variables are pulled again with new ones: a copy has one version.
        """
        for server in self._servers.values():
            ids = [v.id for v in server.pulled_variables]
            if server not in self._steps or not self._pulled.issuperset(ids):
                self._pull(server, ids)

    def model(self, server):
        """Returns the handle of the worker's copy of a server's variables."""
        self.pull()
        return self._model(server)

    def updates_of(self, server):
        """Returns the number of updates that the copy has seen, an int64 scalar."""
        self.pull()
        return self._steps[server]

    def _pull(self, server, ids):
        with self._graph.as_default(), internals.stop_recording(), tf.control_dependencies(None):
            self._steps[server] = pull(server, self._model(server), ids)
        self._pulled.update(ids)

    def _model(self, server):
        """Returns the handle of the copy, which all steps of a function share, loops or not.

        TensorFlow orders what takes the same handle: a step pulls what the one before has pushed.
        """
        graph = _outside_of_control_flow(self._graph)
        if not hasattr(graph, _MODELS):
            setattr(graph, _MODELS, {})
        models = getattr(graph, _MODELS)
        if server not in models:
            with graph.as_default(), tf.control_dependencies(None), on_worker():
                models[server] = server.local_model()
        return models[server]


def pull(server, model, ids):
    """Makes a copy the published model of a server; returns how many updates that has seen.

    Args:
      server: a `ServerVariables`.
      model: the handle of the copy, in this process.
      ids: the variables that are pulled.
    """
    shapes = [server.variable(id_).shape for id_ in ids]
    with on_worker():
        request = ops.pull_request(model, ids=ids)
    with server.scope():
        message = ops.pull(server.handle, request, ids=ids, read_after=server.read_after_pulls)
        pieces = message_pieces.cut(message, message_pieces.count(shapes))
    with on_worker():
        message = message_pieces.join(pieces)
        return ops.apply_pull(model, message, ids=ids, shapes=shapes).step


@contextlib.contextmanager
def begin(servers):
    """Makes what is traced in this context a step, unless it is part of one."""
    if current_step() is not None:
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    setattr(graph, _STEP, WorkerStep(graph, servers))
    try:
        yield
    finally:
        delattr(graph, _STEP)


def current_step():
    """Returns the step that the current graph, or one around it, belongs to, or None."""
    return _enclosing(_STEP)


def in_update():
    """Whether the current graph is an optimizer's update on the servers."""
    return updating_servers() is not None


def updating_servers():
    """Returns the servers that publish a version after the current update, or None outside one."""
    return _enclosing(_UPDATE)


def mark_update(servers):
    """Says that the current graph is an optimizer's update, and which servers have pushes of it."""
    setattr(tf.compat.v1.get_default_graph(), _UPDATE, frozenset(servers))


def model_of(server):
    """Returns the handle of the copy that the current function is to push with."""
    inner = _inner_function()
    if inner is not None:
        return internals.capture_in_each_call(inner, tf.resource, model_of, server)
    step = current_step()
    return step.model(server) if step is not None else server.own_copy()[0]


def copy_of(server):
    """Returns the handle of the copy that reads are of; outside of a step it is not pulled."""
    inner = _inner_function()
    if inner is not None:
        return internals.capture_in_each_call(inner, tf.resource, copy_of, server)
    step = current_step()
    if step is not None:
        return step.model(server)
    with tf.init_scope(), on_worker():
        return server.local_model()


def is_inner_function():
    """Whether the current function is one that steps call, and others may."""
    return _inner_function() is not None


def keeps_copy(server, id_, is_taped):
    """Whether the copy of a variable is read where the current function is called, a bool scalar.

    Steps read it, for as long as they keep it; their updates do not.
    """
    inner = _inner_function()
    if inner is not None:
        return internals.capture_in_each_call(inner, tf.bool, keeps_copy, server, id_, is_taped)
    step = current_step()
    is_in_step = step is not None and step.knows(server) and not in_update()
    return tf.constant(is_in_step and step.keeps_copy(id_, is_taped))


def updates_of(server):
    """Returns the number of updates that the copy has seen, an int64 scalar."""
    inner = _inner_function()
    if inner is not None:
        return internals.capture_in_each_call(inner, tf.int64, updates_of, server)
    step = current_step()
    return step.updates_of(server) if step is not None else server.own_copy()[1]


def note(attribute, *ids):
    """Adds ids of variables to an attribute of the current step, and of all that get here later.

    Returns:
      A scalar, as each call of a function takes one from whoever calls it.
    """
    step, inner = current_step(), _inner_function()
    if step is not None:
        getattr(step, attribute).update(ids)
    if inner is not None:
        internals.capture_in_each_call(inner, tf.bool, note, attribute, *ids)
    return tf.constant(True)


def on_worker():
    """Places operations on the worker's processor, in a context."""
    return internals.placed_on(_WORKER_DEVICE)


def _outside_of_control_flow(graph, until=""):
    """Returns the graph of the function around loops and conditions, or the first with `until`."""
    while isinstance(graph, internals.ControlFlowFuncGraph) and not hasattr(graph, until):
        graph = graph.outer_graph
    return graph


def _inner_function():
    """Returns the graph of the current function if it is one that steps call, or None.

    It may have been traced in another step than the one that calls it.
    """
    if tf.executing_eagerly():
        return None
    graph = _outside_of_control_flow(tf.compat.v1.get_default_graph(), until=_STEP)
    return graph if isinstance(graph, internals.FuncGraph) and not hasattr(graph, _STEP) else None


def _enclosing(attribute):
    if tf.executing_eagerly():
        return None
    graph = tf.compat.v1.get_default_graph()
    while isinstance(graph, internals.FuncGraph):
        if hasattr(graph, attribute):
            return getattr(graph, attribute)
        graph = graph.outer_graph
    return None
