"""`tf.distribute.MultiWorkerMirroredStrategy` with compressed gradients."""

import contextlib
import functools
import itertools
from collections.abc import Sequence
from typing import Any, Literal

import tensorflow as tf
from absl import logging
from tf_gc.strategy import agreement, keras_seams, second_moments
from tf_gc.strategy import tensorflow_internals as internals
from tf_gc.strategy.collective_keys import count_in_graphs
from tf_gc.strategy.gradients import sum_of_replicas
from tf_gc.strategy.local_training import LocalTraining
from tf_gc.strategy.norm_samples import NormSamples
from tf_gc.strategy.peers import wait_for_peers
from tf_gc.strategy.reducer import GradientReducer
from tf_gc.strategy.residuals import OUTER_GRADIENT, PrefixedSlots, Residuals
from tf_gc.strategy.small_reductions import SmallReductions
from tf_gc.strategy.variables import Gradient, GradsAndVars, check_come_once

from tf_gc import ops
from tf_gc.compressors import Compressor
from tf_gc.diloco import DiLoCo
from tf_gc.exchange import Exchange
from tf_gc.fusion import default_bucket_bytes
from tf_gc.launch import summary
from tf_gc.policy import Policy, as_policy
from tf_gc.traffic import Traffic

# The same on all workers, as these make the same strategies.
_strategies = itertools.count(1)
_KEYS_PER_STRATEGY = 1 << 10

# Without any progress of an exchange, or of the others' start.
_DEFAULT_TIMEOUT_SECONDS = 1800.0
# After so long TensorFlow takes a silent worker for dead. Its heartbeats wait behind messages.
_HEARTBEAT_SECONDS = 10.0
# For workers all of which have answered already to connect.
_START_SECONDS = 30.0


class MultiWorkerMirroredStrategy(tf.distribute.MultiWorkerMirroredStrategy):
    """Synchronous training on several workers that send compressed gradients.

    Takes the place of `tf.distribute.MultiWorkerMirroredStrategy`, with one more
    argument:

        strategy = tf_gc.MultiWorkerMirroredStrategy(
            compression=tf_gc.ThreeLC())
        with strategy.scope():
            model = keras.Sequential([...])
            model.compile(optimizer="adam", loss=..., metrics=[...])
        model.fit(dataset, epochs=10)

    Gradients that an optimizer of Keras 3 or tf_keras is given inside
    `strategy.run` (which `model.fit` calls) are compressed as `compression`
    says; for any other optimizer, call `reduce_gradients`. Of what else
    `reduce` is given, scalars such as Keras's logs, and metrics of up to 4 KiB, take
    at most log2 N hops between N workers; all other reductions are TensorFlow's own. What
    compression leaves over stays with each variable, in `residuals`; put them into a
    checkpoint beside the model, and they survive it:

        tf.train.Checkpoint(model=model, residuals=strategy.residuals)

    One worker alone compresses nothing, and with `compression=None` the results
    are, bit for bit, those of TensorFlow's strategy. Keras 3's `fit`, `evaluate`
    and `predict` work on several workers, which they do not with TensorFlow's.

    Args:
      cluster_resolver: a `tf.distribute.cluster_resolver.ClusterResolver`; from
        the environment variable TF_CONFIG if None.
      communication_options: a `tf.distribute.experimental.CommunicationOptions`.
        `timeout_seconds` is the time after which a worker that has not started,
        or a reduction of gradients without any progress, gives
        `DeadlineExceededError`; half an hour by default. After 30 seconds
        without progress the log says which workers are waited for. A machine
        that is silent altogether is an error after 10 seconds, or after
        `timeout_seconds` if that is longer: give more where 4 MiB take longer
        than that on a link.
        `bytes_per_pack` is the size of the buckets in which gradients travel; by
        default 16 MiB, or 1.25 MiB for each worker where that is more.
      compression: a compressor such as `tf_gc.ThreeLC()`, a `tf_gc.Policy`,
        `tf_gc.DiLoCo(...)`, "auto" for `tf_gc.Auto()`, or None.

    Raises:
      ValueError: `compression` is something else; or some workers have None or a
        `tf_gc.DiLoCo` and others have not, or have one with other settings; or they have
        other versions of tf_gc or TensorFlow.
      tf.errors.DeadlineExceededError: some workers have not started in time.
    """

    def __init__(
        self,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver | None = None,
        communication_options: tf.distribute.experimental.CommunicationOptions | None = None,
        compression: Compressor | Policy | DiLoCo | Literal["auto"] | None = None,
    ) -> None:
        if not (cluster_resolver is None or hasattr(cluster_resolver, "cluster_spec")):
            raise ValueError(
                f"cluster_resolver must be a cluster resolver, got {cluster_resolver!r}; give a "
                "compressor as compression=..."
            )
        diloco = compression if isinstance(compression, DiLoCo) else None
        self._compression = diloco.policy if diloco else as_policy(compression)
        resolver = cluster_resolver or tf.distribute.cluster_resolver.TFConfigClusterResolver()
        options = communication_options or tf.distribute.experimental.CommunicationOptions()
        timeout_seconds = options.timeout_seconds or _DEFAULT_TIMEOUT_SECONDS
        if resolver.cluster_spec().as_dict() and not _is_running():
            wait_for_peers(resolver, timeout_seconds)
        # TensorFlow's own __init__ would make its own extended object.
        tf.distribute.Strategy.__init__(self, _Extended(self, resolver, options))
        # Without a cluster it is that of a CPU already.
        worker = tf.DeviceSpec.from_string(self.extended._worker_device)
        device = worker.replace(device_type="CPU", device_index=0).to_string()
        workers = self.extended._num_workers
        exchange = Exchange(
            group_key=agreement.GROUP_KEY,
            workers=workers,
            rank=self.extended._id_in_cluster,
            timeout_seconds=timeout_seconds,
        )
        if workers > 1:
            program = agreement.describe_program(compression)
            with tf.device(device):
                agreement.check(program, exchange)
        self._residuals = Residuals(self, device)
        make_reducer = functools.partial(
            GradientReducer,
            device=device,
            exchange=exchange,
            bucket_bytes=options.bytes_per_pack or default_bucket_bytes(workers),
        )
        # Those of outer gradients, which are as large as changes of variables, are others.
        slots = PrefixedSlots(self._residuals, OUTER_GRADIENT) if diloco else self._residuals
        self._reducer = self._compression and make_reducer(self._compression, slots)
        self._start_reducer = diloco and make_reducer(diloco.start_policy, self._residuals)
        self._local_training = diloco and LocalTraining(
            self, diloco, self._residuals, self._start_reducer, self._reducer, device
        )
        if self._reducer and workers > 1:
            self.extended.small_reductions = SmallReductions(device, exchange)
            summary.write_at_exit(self._summary)
        keras_seams.redirect()

    @property
    def trains_locally(self) -> bool:
        """Whether there is a `tf_gc.DiLoCo`."""
        return bool(self._local_training)

    @property
    def compression(self) -> Policy | None:
        """The `tf_gc.Policy` in force, or None; with DiLoCo that of the outer gradients."""
        return self._compression

    @property
    def residuals(self) -> Residuals:
        """What has not been delivered yet, by variable; to be checkpointed."""
        return self._residuals

    @property
    def local_training(self) -> LocalTraining | None:
        """What lets workers train by themselves, for the seams in Keras; None without DiLoCo."""
        return self._local_training

    @property
    def traffic(self) -> Traffic:
        """What this worker has exchanged with the others so far.

        With DiLoCo that is in outer steps, and in those before `start_step`.
        """
        reducers = filter(None, (self._start_reducer, self._reducer))
        return sum((reducer.traffic() for reducer in reducers), Traffic())

    def sample_norms(self) -> NormSamples | None:
        """Has functions that are traced from now on take norms, in the steps that ask for them.

        For `tf_gc.keras.TrafficLogger`.

        Returns:
          This worker's norms; None without `compression`.
        """
        return self._reducer and self._reducer.sample_norms()

    def reduce_gradients(
        self,
        grads_and_vars: GradsAndVars,
        reduce_op: str | tf.distribute.ReduceOp = "SUM",
        with_second_moments: bool = False,
        momentum: float | None = None,
        first_moments: tuple[Sequence[tf.Variable | None], tf.Tensor | float] | None = None,
        optimizer_steps: tf.Tensor | int | None = None,
    ) -> list[tuple[Gradient | None, Any]]:
        """Adds up gradients over all replicas, compressed as the policy says.

        For loops with an optimizer that is not Keras's. To be called inside
        `strategy.run`, on all replicas with the same variables in the same
        order:

            gradients = tape.gradient(loss, variables)
            for gradient, variable in strategy.reduce_gradients(zip(gradients, variables)):
                variable.assign_sub(0.1 * gradient)

        Args:
          grads_and_vars: (gradient, variable) pairs; a gradient may be None.
          reduce_op: "SUM" or "MEAN" (or a `tf.distribute.ReduceOp`).
          with_second_moments: whether this is for an optimizer that squares
            gradients, such as Adam: it gets what it is to take in place of the
            squares of compressed ones, and what is "auto" in compressors is so.
          momentum: beta of such an optimizer's momentum, m <- beta m + (1 - beta) g,
            in [0, 1), Adam's beta_1; None if that is not known. Compressors with
            `prediction="auto"` predict by it.
          first_moments: of such an optimizer, m of each variable before this step, or
            None, in the pairs' order, and its weight, 1 - beta^t after t steps: what
            workers agree in, which their own squares do not tell.
          optimizer_steps: how many steps such an optimizer has taken before this one. One that
            is new, for variables that another one has trained, is kept from steps that are far
            too large; None: as if the same one had always been used.

        Returns:
          A list of (reduced gradient, variable) pairs in the same order, with
          the same bits on all replicas. With `tf_gc.DiLoCo`, from its
          `start_step` on, the worker's own gradients, as if all workers had
          the same; always, after the update, call `outer_step` with the same
          variables.

        Raises:
          RuntimeError: called outside `strategy.run`.
          ValueError: `reduce_op` is something else, or this is in a function with
            jit_compile=True; or a variable comes twice (on several workers); or, before the
            first step, workers differ in compressor, variables or `reduce_op`: the message
            names the worker and both values.
          tf.errors.UnavailableError: (this and what follows when a step is taken) a worker
            has died.
          tf.errors.DeadlineExceededError: one does not come within `timeout_seconds`.
          tf.errors.DataLossError: a message is damaged, or workers are in different steps.
          tf.errors.InvalidArgumentError: with `tf_gc.DiLoCo`, a variable is within a period
            of another list of variables.
        """
        replica_context = tf.distribute.get_replica_context()
        if replica_context is None or replica_context.strategy is not self:
            raise RuntimeError("reduce_gradients must be called inside this strategy's run()")
        reduce_op = getattr(reduce_op, "value", reduce_op)
        if reduce_op not in ("SUM", "MEAN"):
            raise ValueError(f"reduce_op must be 'SUM' or 'MEAN', got {reduce_op!r}")
        internals.check_not_compiled(
            "tf_gc exchanges gradients outside of XLA: use model.compile(jit_compile=False) or, in "
            "a loop of your own, tf.function(jit_compile=True) for the forward and backward pass "
            "alone, and the optimizer outside of it"
        )
        pairs = list(grads_and_vars)
        if self._local_training:
            self._local_training.begin_step([variable for _, variable in pairs])
        if self.num_replicas_in_sync == 1:
            return self._deliver_restored(pairs, reduce_op)
        handled = [i for i, (g, _) in enumerate(pairs) if self._handles(g)]
        others = [i for i, (g, _) in enumerate(pairs) if g is not None and i not in set(handled)]
        reduced = {}
        if handled:
            check_come_once([pairs[i][1] for i in handled])
            self._residuals.name([variable for _, variable in pairs])
            results = self._reduce(
                [pairs[i][0] for i in handled],
                [pairs[i][1] for i in handled],
                reduce_op,
                counter=self._residuals.counter([variable for _, variable in pairs]),
                with_second_moments=with_second_moments,
                momentum=momentum,
                first_moments=first_moments and _part_of(first_moments, handled),
                optimizer_steps=optimizer_steps,
            )
            reduced.update(zip(handled, results, strict=True))
        if others:
            results = replica_context.all_reduce(reduce_op, [pairs[i][0] for i in others])
            reduced.update(zip(others, results, strict=True))
        return [(reduced.get(i), variable) for i, (_, variable) in enumerate(pairs)]

    def _deliver_restored(self, pairs, reduce_op):
        """Returns the pairs of a worker without others, with what waits for the variables."""
        if not self.compression:
            return pairs
        return (self._local_training or self._residuals).deliver_restored(pairs, reduce_op)

    def outer_step(self, variables: Sequence[Any]) -> None:
        """Ends an inner step of `tf_gc.DiLoCo`, with the outer step if that is due.

        For loops with an optimizer that is not Keras's. To be called inside
        `strategy.run`, after each update, on all replicas with the variables whose
        gradients `reduce_gradients` was given, in the same order.

        Raises:
          ValueError: the strategy has no `tf_gc.DiLoCo`, or these are other variables.
        """
        self._with_local_training("outer_step").end_step(variables)

    def synchronize(self, variables: Sequence[Any]) -> None:
        """Ends the period of `tf_gc.DiLoCo` now: variables that have had inner steps since
        their last outer step take one.

        To be called on all workers, outside `strategy.run`, where a training ends
        within a period, or with several fragments:

            model.fit(...)
            strategy.synchronize(model.trainable_variables)

        Args:
          variables: those of an optimizer, or of several, in their order.

        Raises:
          ValueError: the strategy has no `tf_gc.DiLoCo`, or these are other variables.
          tf.errors.InvalidArgumentError: some are within a period of variables that are
            not among them.
        """
        training = self._with_local_training("synchronize")
        self.run(lambda: training.synchronize(variables))

    def reduce(
        self, reduce_op: str | tf.distribute.ReduceOp, value: Any, axis: int | None = None
    ) -> Any:
        """Reduces `value` across replicas; see `tf.distribute.Strategy.reduce`.

        A scalar has no axis: Keras 3 asks for the mean over axis 0 of every
        metric.
        """
        local = self.experimental_local_results(value)[0]
        tensor = local if tf.is_tensor(local) else tf.convert_to_tensor(local)
        if axis is not None and tensor.shape.rank == 0:
            axis = None
        return super().reduce(reduce_op, value, axis)

    def expects_second_moment(self, variable: tf.Variable) -> bool:
        """Whether reduced gradients of a variable are not for an optimizer to square."""
        reducer = self._reducer
        if self._local_training:
            # Eagerly, a worker's own gradients, which may be squared, have no second moments.
            reducer = None if tf.executing_eagerly() else self._start_reducer
        return reducer is not None and reducer.expects_second_moment(variable)

    def _summary(self):
        traffic, seconds = self.traffic, ops.time_waited()
        return {
            "steps": traffic.steps,
            "bytes_sent": traffic.bytes_sent,
            "values_sent": traffic.values_sent,
            "seconds_waited": float(seconds.waited),
            "seconds": float(seconds.total),
        }

    def _with_local_training(self, method):
        if self._local_training is None:
            raise ValueError(
                f"{method} is for compression=tf_gc.DiLoCo(...), which this strategy does not "
                "have: leave out the call"
            )
        return self._local_training

    def _handles(self, gradient):
        return (
            gradient is not None
            and self._reducer is not None
            and self.extended._num_workers > 1
            and (self._local_training or self._reducer).handles(gradient)
        )

    def _reduce(self, gradients, variables, reduce_op, **kwargs):
        reducer = self._local_training or self._reducer
        if len(self.extended.worker_devices) == 1:
            return reducer.reduce(gradients, variables, reduce_op, **kwargs)
        return tf.distribute.get_replica_context().merge_call(
            _reduce_replicas, args=(reducer, gradients, variables, reduce_op), kwargs=kwargs
        )


class _Extended(internals.CollectiveAllReduceExtended):
    """TensorFlow's implementation, with few overrides."""

    small_reductions = None  # TensorFlow's own

    def _use_merge_call(self):
        # A worker's only replica has nobody to merge with.
        return len(self.worker_devices) > 1 and super()._use_merge_call()

    def _call_for_each_replica(self, fn, args, kwargs):
        keras_seams.redirect()  # Keras may have been imported meanwhile
        training = self._container_strategy().local_training
        with training.checked() if training else contextlib.nullcontext():
            if len(self.worker_devices) > 1:
                result = super()._call_for_each_replica(fn, args, kwargs)
            else:
                result = internals.call_only_replica(self, self._id_in_cluster, fn, args, kwargs)
        self._container_strategy().residuals.report_restored()
        return result

    def _replica_ctx_all_reduce(self, reduce_op, value, options=None):
        # As where replicas merge, with what the user has said of all.
        options = self._communication_options.merge(options)
        return super()._replica_ctx_all_reduce(reduce_op, value, options)

    def _batch_reduce_to(self, reduce_op, value_destination_pairs, options):
        if self._container_strategy().compression and any(
            getattr(destination, "trainable", False) for _, destination in value_destination_pairs
        ):
            logging.log_first_n(
                logging.WARNING,
                "tf_gc does not compress gradients that batch_reduce_to sums, as optimizers of "
                "tf.compat.v1 let it, also what reduce_gradients has summed already: use an "
                "optimizer of Keras or tf_keras, or reduce_gradients and an update of your own",
                1,
            )
        return super()._batch_reduce_to(reduce_op, value_destination_pairs, options)

    def _reduce(self, reduce_op, value):
        values = self._local_results(value)
        if (
            self.small_reductions is None
            or isinstance(value, internals.Mirrored)
            or len(values) > 1
            or not self.small_reductions.handles(reduce_op, values[0])
        ):
            return super()._reduce(reduce_op, value)
        return self.small_reductions.reduce(reduce_op, values[0])

    def _initialize_multi_worker(self, cluster_resolver):
        if _is_running():
            # TensorFlow would start its collectives anew, and drop what another worker,
            # which is not so far yet, has still to fetch: it would wait for ever.
            self._std_server_started = True
            self._enable_check_health = internals.context().coordination_service is None
            # Groups of its own, as earlier strategies' groups live on.
            self._collective_key_base += _KEYS_PER_STRATEGY * next(_strategies)
        with internals.patience(*_patience(self._communication_options.timeout_seconds)):
            super()._initialize_multi_worker(cluster_resolver)
        count_in_graphs(self._cross_device_ops)
        count_in_graphs(self._host_cross_device_ops)


def _patience(timeout_seconds):
    """TensorFlow's own if the program has not said how long to wait."""
    if not timeout_seconds:
        return 0, 0
    return max(timeout_seconds, _HEARTBEAT_SECONDS), max(timeout_seconds, _START_SECONDS)


def _is_running():
    """Whether the collective runtime has been started by an earlier strategy."""
    return internals.context()._collective_ops_server_def is not None


def _part_of(first_moments, indices):
    moments, weight = first_moments
    return [moments[index] for index in indices], weight


def _reduce_replicas(strategy, reducer, gradients, variables, reduce_op, **kwargs):
    """Adds up a worker's replicas, then the workers; every replica gets a copy."""
    for name in ("first_moments", "optimizer_steps"):
        kwargs[name] = tf.nest.map_structure(
            lambda value: strategy.experimental_local_results(value)[0], kwargs[name]
        )
    replicas = strategy.num_replicas_in_sync / strategy.extended._num_workers
    divisor = replicas if reduce_op == "MEAN" else 1
    totals = [sum_of_replicas(strategy, gradient, divisor) for gradient in gradients]
    variables = [strategy.experimental_local_results(v)[0] for v in variables]
    reduced = reducer.reduce(totals, variables, reduce_op, **kwargs)
    copies = []
    for device in strategy.extended.worker_devices:
        with tf.device(device):
            copies.append([second_moments.copy(r) for r in reduced])
    return internals.regroup(tuple(copies), internals.Mirrored)
