"""`tf.distribute.ParameterServerStrategy` with compressed pushes and pulls."""

import itertools
import math
import weakref
from collections.abc import Callable
from typing import Any, Literal

import tensorflow as tf
from tf_gc.strategy import containers, keras_seams, pulled_variable, worker_step
from tf_gc.strategy import tensorflow_internals as internals
from tf_gc.strategy.gradient_push import GradientPush
from tf_gc.strategy.gradients import sum_of_replicas
from tf_gc.strategy.server_check import check_servers
from tf_gc.strategy.server_links import without_auto
from tf_gc.strategy.server_residuals import ServerResiduals
from tf_gc.strategy.server_variables import ServerVariables, variable_ids
from tf_gc.strategy.variables import Gradient, GradsAndVars, name_of, unwrap

from tf_gc import checks, server_watch
from tf_gc.compressors import Compressor
from tf_gc.diloco import DiLoCo
from tf_gc.launch import summary
from tf_gc.policy import Policy, as_policy
from tf_gc.traffic import ServerTraffic, total_traffic

# The time that a worker has from completing a round to the end of the update.
_LEASE_SECONDS = 10.0


class ParameterServerStrategy(tf.distribute.ParameterServerStrategy):
    """Training on workers that push gradients to servers, and pull the model's changes.

    Takes the place of `tf.distribute.ParameterServerStrategy`, with more
    arguments:

        strategy = tf_gc.ParameterServerStrategy(
            cluster_resolver, compression=tf_gc.ThreeLC())

    Workers and servers are `python -m tf_gc.server` processes, which `tf_gc-launch
    --workers M --ps N script.py` starts. Training is that of TensorFlow's strategy:
    with `tf.distribute.coordinator.ClusterCoordinator`, or tf_keras's `fit`. In a
    step, a worker

    - pulls from each server what has changed since its last step: the server
      encodes the difference between its variables and what the workers hold,
      once, and all workers get the same bytes. What an encoding leaves out stays
      in the difference;
    - computes gradients, and pushes them to each server, encoded, with what
      earlier pushes left out.

    The optimizer runs on the servers, once for each update. Reads outside of a
    training step (evaluation, checkpoints) are of the variables themselves.

    Which variables are compressed is the policy's choice. The others travel
    exactly, in the same messages; those that a rule of the policy names with None,
    and those of other types than float32, are read as in TensorFlow.

    Args:
      cluster_resolver: a `tf.distribute.cluster_resolver.ClusterResolver`.
      variable_partitioner: see `tf.distribute.ParameterServerStrategy`.
      compression: a compressor such as `tf_gc.ThreeLC()`, a `tf_gc.Policy`, None,
        or "auto" for what is best on the links to the servers, as they are when the
        strategy is made.
      synchronous: whether an update takes the mean of several pushes that were
        all computed on the newest version of the model. A push that comes too late
        is dropped, and the worker keeps what it held for its next one. No worker
        waits for another for longer than a step. If False, every push is an update.
      replicas_to_aggregate: if synchronous, the pushes for an update; the number of workers
        if None.
      aggregation_fraction: the part of `replicas_to_aggregate` that closes a
        round, in (0, 1]; less than 1 leaves stragglers behind.
      max_staleness: if not synchronous, a push that was computed on a model that
        is more versions old is dropped; None for no limit. What training steps write
        by themselves makes no push older.
      updates_per_version: if not synchronous, how many updates are published
        together. More of them cost fewer bytes and less encoding, and make models
        older. None: each update, unless some are made while a version is encoded;
        then the next one is due after four times as many, or after four times the
        time that encoding took, so that a server under load spends no more than
        about a quarter of its time on encoding.

    Raises:
      ValueError: an argument is out of range, or has no effect with the others. A
        compressor that has no form for parameter servers is refused when the first
        variable is made that it would compress.
      RuntimeError: a process of the cluster has not loaded tf_gc.
    """

    def __init__(
        self,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
        variable_partitioner: tf.distribute.experimental.partitioners.Partitioner | None = None,
        compression: Compressor | Policy | Literal["auto"] | None = None,
        synchronous: bool = False,
        replicas_to_aggregate: int | None = None,
        aggregation_fraction: float = 1.0,
        max_staleness: int | None = None,
        updates_per_version: int | None = None,
    ) -> None:
        _check_kinds(compression, variable_partitioner, synchronous)
        _check_of_versions("max_staleness", max_staleness, 0, compression, synchronous)
        _check_of_versions("updates_per_version", updates_per_version, 1, compression, synchronous)
        _check_of_rounds(replicas_to_aggregate, aggregation_fraction, synchronous)
        self._compression = as_policy(compression)
        self._synchronous = synchronous
        is_used = self._compression is not None or synchronous
        workers = len(cluster_resolver.cluster_spec().as_dict().get("worker", ()))
        super().__init__(cluster_resolver, variable_partitioner)
        self._servers = {}  # device -> ServerVariables
        self._residuals = ServerResiduals(workers, is_used)
        if not is_used:
            return
        check_servers(cluster_resolver.cluster_spec())
        server_watch.watch(_addresses(cluster_resolver.cluster_spec()))
        summary.write_at_exit(self._summary)  # which lets go of the strategy before
        containers.clean_up(cluster_resolver.cluster_spec())
        self._compression = without_auto(self._compression, cluster_resolver.cluster_spec())
        replicas_to_aggregate = replicas_to_aggregate or max(workers, 1)
        # Of 0.28 * 25, which is 7.000000000000001, seven.
        pushes = math.ceil(round(aggregation_fraction * replicas_to_aggregate, 9))
        extended = _Extended(
            self,
            cluster_resolver,
            variable_partitioner,
            servers=self._servers,
            residuals=self._residuals,
            policy=self._compression,
            server_options={
                "pushes_per_round": pushes if synchronous else None,
                "max_staleness": max_staleness,
                "updates_per_version": updates_per_version,
                "lease_seconds": _LEASE_SECONDS,
            },
        )
        # In place of the one that TensorFlow's own __init__ has made.
        tf.distribute.Strategy.__init__(self, extended)
        self._should_use_with_coordinator = True
        keras_seams.redirect()

    @property
    def compression(self) -> Policy | None:
        """The `tf_gc.Policy` in force, or None."""
        return self._compression

    @property
    def synchronous(self) -> bool:
        """Whether an update takes the mean of several pushes."""
        return self._synchronous

    @property
    def residuals(self) -> ServerResiduals:
        """What the workers have not delivered yet, by variable; to be checkpointed."""
        return self._residuals

    @property
    def traffic(self) -> ServerTraffic:
        """What all workers have exchanged with the servers so far."""
        return total_traffic(server.traffic() for server in list(self._servers.values()))

    def expects_second_moment(self, variable: tf.Variable) -> bool:
        """Whether pushed gradients of a variable are not for an optimizer to square."""
        pulled = pulled_variable.find(variable)
        return pulled is not None and pulled.tf_gc_entry.matrix is not None

    def _summary(self):
        names = ("updates", "bytes_pushed", "values_pushed", "bytes_pulled", "values_pulled")
        traffic = self.traffic
        return {name: getattr(traffic, name) for name in names}

    def push_gradients(
        self,
        grads_and_vars: GradsAndVars,
        apply: Callable[[list[tuple[Gradient, Any]]], object],
        optimizer: object | None = None,
    ) -> None:
        """Sends gradients to the servers, which apply them once there are enough.

        For loops with an optimizer that is not Keras's. To be called inside
        `strategy.run`:

            def update(grads_and_vars):
                for gradient, variable in grads_and_vars:
                    variable.assign_sub(0.1 * gradient)

            strategy.push_gradients(zip(gradients, variables), update)

        Args:
          grads_and_vars: (gradient, variable) pairs; a gradient may be None.
          apply: called, while tracing, with the pairs whose gradient is not
            None, with the gradients of one push, or the mean of a round's. What
            it does runs on the servers, once for each update. With
            `compression=None` and not synchronous, the worker calls it with its own
            gradients, and operations run where TensorFlow places them.
          optimizer: what `apply` calls. Where several update the same variables, each
            has rounds of its own with it.

        Raises:
          RuntimeError: called outside of `strategy.run` in a `tf.function`.
          ValueError: no variable has a gradient; and see `GradientPush`.
        """
        grads_and_vars = list(grads_and_vars)
        if not grads_and_vars:
            return
        pairs = [(g, v) for g, v in grads_and_vars if g is not None]
        if not pairs:
            names = ", ".join(name_of(v) for _, v in grads_and_vars)
            raise ValueError(f"no variable has a gradient: {names}; is the loss made of them?")
        replica_context = tf.distribute.get_replica_context()
        is_ours = isinstance(self.extended, _Extended)
        is_in_run = replica_context is not None and replica_context.strategy is self
        if not is_in_run or (is_ours and worker_step.current_step() is None):
            raise RuntimeError(
                "push_gradients must be called inside this strategy's run(), in a tf.function"
            )
        replica_context.merge_call(_push if is_ours else _update, args=(pairs, apply, optimizer))


def _check_kinds(compression, variable_partitioner, synchronous):
    if isinstance(compression, DiLoCo):
        raise ValueError(
            "compression: tf_gc.DiLoCo needs workers that keep a model of their own; use "
            "tf_gc.MultiWorkerMirroredStrategy, or give the parameter servers a compressor "
            f"such as {compression.policy.default or 'tf_gc.ThreeLC()'}"
        )
    if not (variable_partitioner is None or callable(variable_partitioner)):
        raise ValueError(
            f"variable_partitioner must be a function, got {variable_partitioner!r}; give a "
            "compressor as compression=..."
        )
    checks.boolean("synchronous", synchronous)


def _check_of_versions(name, value, least, compression, synchronous):
    if value is None:
        return
    if synchronous:
        raise ValueError(f"{name} is for synchronous=False: every round has a version")
    if compression is None:
        raise ValueError(
            f"{name} needs compression, which may be tf_gc.Policy() for values as they "
            "are: without, this is TensorFlow's strategy, which has no versions"
        )
    checks.integer(name, value, least)


def _check_of_rounds(replicas_to_aggregate, aggregation_fraction, synchronous):
    of_rounds = {
        "replicas_to_aggregate": replicas_to_aggregate is not None,
        "aggregation_fraction": aggregation_fraction != 1.0,
    }
    for name, is_given in of_rounds.items():
        if is_given and not synchronous:
            raise ValueError(f"{name} is for synchronous=True: without, each push is an update")
    if replicas_to_aggregate is not None:
        checks.integer("replicas_to_aggregate", replicas_to_aggregate, 1)
    checks.number("aggregation_fraction", aggregation_fraction, "in (0, 1]", lambda f: 0 < f <= 1)


def _addresses(cluster_spec):
    """Returns those of the processes that a chief waits for, by their names."""
    return {
        f"{job} {index}": address
        for job, addresses in cluster_spec.as_dict().items()
        if job in ("worker", "ps")
        for index, address in enumerate(addresses)
    }


def _update(strategy, pairs, apply, optimizer):
    """Applies the sums of a worker's replicas, as TensorFlow's strategy does."""
    del optimizer  # which has no rounds
    sums = [(sum_of_replicas(strategy, gradient), variable) for gradient, variable in pairs]
    _in_one_replica(strategy, apply)(sums)


def _in_one_replica(strategy, apply):
    """Returns an update that all replicas of a worker have, as one of them calls it."""
    apply, *_ = strategy.experimental_local_results(apply)
    autograph = tf.__internal__.autograph
    # TensorFlow's threads of replicas do not know that what called them is converted.
    apply = autograph.tf_convert(apply, autograph.control_status_ctx())

    def apply_in_replica(grads_and_vars):
        with tf.distribute.ReplicaContext(strategy, 0):
            apply(grads_and_vars)

    return apply_in_replica


def _push(strategy, pairs, apply, optimizer):
    """Adds up a worker's replicas, and pushes the sums."""
    gradients = [sum_of_replicas(strategy, gradient) for gradient, _ in pairs]
    policy = strategy.compression or Policy()
    if policy.sparse_as_dense:
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
    variables = [variable for _, variable in pairs]
    grads_and_vars = list(zip(gradients, variables, strict=True))
    push = GradientPush(
        grads_and_vars,
        channel=strategy.extended.channel(grads_and_vars, optimizer),
        updates=strategy.extended.updates,
        synchronous=strategy.synchronous,
        embeddings=policy.embeddings,
    )
    push.send(_in_one_replica(strategy, apply))
    strategy.residuals.report_restored([pulled_variable.find(variable) for variable in variables])


class _Extended(internals.ParameterServerStrategyV2Extended):
    """TensorFlow's implementation, with few overrides."""

    def __init__(
        self,
        strategy,
        cluster_resolver,
        variable_partitioner,
        servers,
        residuals,
        policy,
        server_options,
    ):
        super().__init__(strategy, cluster_resolver, variable_partitioner)
        self.servers = servers
        self._residuals = residuals
        self._policy = policy
        self._server_options = server_options
        # Optimizer -> its variables' ids, and whether their gradients are sparse -> number.
        self._channels = weakref.WeakKeyDictionary()
        self._channel_numbers = itertools.count()
        self._container = containers.new(self)
        # One update after the other: an optimizer must not read what another push is about to
        # write. A step that is given up, as its worker has died, leaves it too.
        with tf.init_scope(), internals.placed_on("/job:ps/replica:0/task:0/device:CPU:0"):
            self.updates = tf.CriticalSection(shared_name=f"tf_gc/{self._container}")

    def channel(self, grads_and_vars, optimizer):
        """Returns the number of an optimizer, which may be None, and these forms of gradients."""
        channels = self._channels.setdefault(self if optimizer is None else optimizer, {})
        forms = [(unwrap(v), isinstance(g, tf.IndexedSlices)) for g, v in grads_and_vars]
        key = frozenset((variable._unique_id, is_sparse) for variable, is_sparse in forms)
        if key not in channels:
            self._residuals.retire()  # what waits of an optimizer that this one replaces
            channels[key] = next(self._channel_numbers)
            weakref.finalize(forms[0][0], channels.pop, key).atexit = False
            if optimizer is not None:
                weakref.finalize(optimizer, _drop, self.servers, channels[key]).atexit = False
        return channels[key]

    def _create_variable(self, next_creator, **kwargs):
        keras_seams.redirect()  # Keras may have been imported meanwhile
        variable = super()._create_variable(next_creator, **kwargs)
        if isinstance(variable, internals.ShardedVariable):
            _publish_restored_shards(variable)
        return variable

    def _create_var_creator(self, next_creator, **kwargs):
        create = super()._create_var_creator(next_creator, **kwargs)

        def creator(**kwargs):
            variable = create(**kwargs)
            if not isinstance(variable, internals.AggregatingVariable):
                return self._adopt(variable)
            return pulled_variable.ReplicatedVariable(
                self._container_strategy(), self._adopt(variable.get()), variable.aggregation
            )

        return creator

    def _update(self, var, fn, args, kwargs, group):
        result = super()._update(var, fn, args, kwargs, group)
        step, pulled = worker_step.current_step(), pulled_variable.find(var)
        if step is None or pulled is None or worker_step.in_update():
            return result
        if pulled.tf_gc_entry.id not in step.written:  # as by TensorFlow's own optimizers
            raise RuntimeError(
                f"{var.name}: workers would not hear of an update that a step makes by itself. Call"
                " strategy.push_gradients(grads_and_vars, optimizer.apply_gradients) instead"
            )
        return result

    def _adopt(self, caching):
        """Returns the `PulledVariable` of a trainable variable, any other as it is."""
        variable = caching.get()
        shape = variable.shape
        if not variable.trainable or not variable.dtype.is_floating or not shape.is_fully_defined():
            return caching
        if variable.device not in self.servers:
            self.servers[variable.device] = ServerVariables(
                self.servers, variable.device, self._container, **self._server_options
            )
        self._residuals.retire()
        server = self.servers[variable.device]
        name = keras_seams.path_of_new(variable)
        compressor, is_left_alone = None, False
        if self._policy is not None:
            compressor = self._policy.compressor_for(name, shape)
            is_left_alone = self._policy.leaves_alone(name)
        entry = server.add(
            next(variable_ids),
            name,
            variable,
            compressor,
            is_pulled=variable.dtype == tf.float32 and not is_left_alone,
        )
        self._residuals.add(server, entry)
        return pulled_variable.PulledVariable(variable, server, entry)

    def _call_for_each_replica(self, fn, args, kwargs):
        keras_seams.redirect()
        if tf.executing_eagerly():
            return super()._call_for_each_replica(fn, args, kwargs)
        with worker_step.begin(self.servers):
            if len(self.worker_devices) > 1:
                return super()._call_for_each_replica(fn, args, kwargs)
            self._assert_being_scheduled_by_cluster_coordinator()
            return internals.call_only_replica(self, 0, fn, args, kwargs)


def _drop(servers, channel):
    for server in list(servers.values()):
        server.drop(channel)


def _publish_restored_shards(sharded):
    """Publishes a sharded variable's parts when they are restored from a checkpoint."""
    gather = sharded._gather_saveables_for_checkpoint

    def gather_published():
        return {key: _publishing(make, sharded.variables) for key, make in gather().items()}

    sharded._gather_saveables_for_checkpoint = gather_published


def _publishing(make_saveables, variables):
    def make(*args, **kwargs):
        saveables = make_saveables(*args, **kwargs)
        for saveable, variable in zip(saveables, variables, strict=True):
            pulled = pulled_variable.find(variable)
            if pulled is not None:
                saveable.restore = _restore_and_publish(saveable.restore, pulled)
        return saveables

    return make


def _restore_and_publish(restore, variable):
    def restore_and_publish(*args, **kwargs):
        restored = restore(*args, **kwargs)
        variable.publish(restored)
        return restored

    return restore_and_publish
