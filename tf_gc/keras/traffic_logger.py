"""What training exchanges, for Keras's logs and TensorBoard."""

import math
import os
import weakref

import keras
import tensorflow as tf

from tf_gc import checks
from tf_gc.strategy import keras_callbacks
from tf_gc.strategy.norm_samples import ratio
from tf_gc.traffic import ServerTraffic

# Models whose training functions are traced with norms.
_sampled = weakref.WeakSet()


class TrafficLogger(keras_callbacks.TfKerasCallback, keras.callbacks.Callback):
    """Logs what this worker exchanges with the others, and what compression leaves over.

    A callback for `fit` of Keras 3 and tf_keras, for a model that was made in the
    scope of a strategy of tf_gc:

        resolver = strategy.cluster_resolver
        worker = f"{resolver.task_type or 'worker'}_{resolver.task_id or 0}"
        model.fit(dataset, epochs=10, callbacks=[
            tf_gc.keras.TrafficLogger("logs"),
            keras.callbacks.TensorBoard(f"logs/{worker}"),
        ])

    Into the `logs` of each epoch it puts what other callbacks (`History`,
    `CSVLogger`, the progress bar) then find there:

    - `bits_per_value_up`, `bits_per_value_down`: bits that a gradient value took
      on the way to where it was summed, and a value of a sum on the way back
      (`tf_gc.Traffic`);
    - `bytes_sent_per_step`, `bytes_received_per_step`: those of this worker in
      one reduction of an optimizer's gradients;
    - `seconds_waited_per_step`: those in which exchanges waited for other workers'
      messages, added up over buckets;
    - `residual_ratio`: ||e'|| / ||g||;
    - `compression_error`: ||e'|| / ||g + e||,

    where g is this worker's gradient, before it is reduced, e the residual before
    the step and e' the one after it. g + e is what was handed to the compressor,
    and where it conserves gradients, e' what it has not delivered of that: the
    error of a compressor is at most sqrt(1 - delta) in the analysis of error
    feedback (Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient
    Compression Schemes", ICML 2019, Assumption A). With 3LC it may be above 1, as
    e' has what is left of sums, of all workers' gradients, where this worker
    serves them. Norms are Euclidean, over all variables that have a residual.

    Bits and bytes are those since the last log, not since training began. Norms
    are those of one step, in the middle of the time that is logged, as they cost
    a few passes over the gradients. What is logged is this worker's own, and other
    workers' values are not the same.

    On TensorBoard, each worker writes to a folder of its own, `worker_0` and so
    on, in `log_dir`: the same values, and `bits_per_value`, `residual_ratio` and
    `compression_error` of each variable. This needs no package; Keras's callback
    `TensorBoard`, and TensorBoard itself, need `tensorboard`. Give each worker's
    callback a folder of its own, as above. Behind this one, it writes these values,
    too. tf_keras keeps what worker 0's writes, and removes the others'.

    With `tf_gc.DiLoCo` a step is an outer step, or one before `start_step`. With
    parameter servers a step is an update, `bits_per_value_up`, `bytes_sent_per_step` are
    of the pushes of all workers together, `bits_per_value_down`,
    `bytes_received_per_step` of their pulls; there are no norms and no
    `seconds_waited_per_step`, and `update_freq` is "epoch".
    Without compression, or with one worker, nothing is logged.

    Args:
      log_dir: a folder for TensorBoard, on all workers the same; None for none.
      update_freq: "epoch", or a number of batches. The `logs` of these batches get
        the same values, and TensorBoard those of batches in place of those of epochs.
      norm_freq: norms are taken for every so many logs of `update_freq`; 0 for none.
        `logs` have the last that were taken.
      by_variable: whether `logs`, too, have each variable's values, with the name
        `compression_error/<variable>` and so on; the progress bar shows all of them.

    Raises:
      ValueError: an argument is out of range; from `fit`, the model's strategy is not
        one of tf_gc's, or has parameter servers and `update_freq` is not "epoch".
    """

    def __init__(
        self,
        log_dir: str | os.PathLike | None = None,
        update_freq: int | str = "epoch",
        norm_freq: int = 1,
        by_variable: bool = False,
    ) -> None:
        super().__init__()
        if update_freq != "epoch":
            checks.integer("update_freq", update_freq, 1, other='"epoch" or ')
        checks.integer("norm_freq", norm_freq, 0)
        self._log_dir = log_dir
        self._update_freq = update_freq
        self._norm_freq = norm_freq
        self._by_variable = by_variable
        self._strategy = None
        self._samples = None
        self._writer = None
        self._batches = 0  # of all epochs, for logs of batches
        self._batches_in_epoch = 0  # of the last whole one
        # Keras 3 need not wait for the logs of each batch, where nothing is done with them, and
        # tf_keras may hand over its own.
        self.async_safe = self._supports_tf_logs = update_freq == "epoch"

    def set_model(self, model):
        super().set_model(model)
        self._strategy = model.distribute_strategy
        if not hasattr(self._strategy, "traffic"):
            raise ValueError(
                "TrafficLogger needs a model that was made in the scope of a tf_gc strategy, not "
                f"of {type(self._strategy).__name__}"
            )
        has_servers = hasattr(self._strategy, "push_gradients")
        if has_servers and self._update_freq != "epoch":
            raise ValueError('update_freq must be "epoch" with parameter servers')
        if self._norm_freq and not has_servers:
            self._samples = self._strategy.sample_norms()
            if model not in _sampled:
                model.train_function = None  # to be traced anew
                _sampled.add(model)

    def on_train_begin(self, logs=None):
        self._before_epoch = self._before_log = self._strategy.traffic
        self._logs = 0
        self._batches_at_log = self._batches
        self._has_requested = False
        if self._log_dir is not None:
            folder = os.path.join(self._log_dir, _task(self._strategy.cluster_resolver))
            self._writer = tf.summary.create_file_writer(folder)

    def on_epoch_begin(self, epoch, logs=None):
        self._batches_before_epoch = self._batches
        self._batches_begun = 0

    def on_train_batch_begin(self, batch, logs=None):
        self._batches_begun = batch + 1
        if self._samples is None or self._has_requested or self._logs % self._norm_freq:
            return
        position = batch if self._update_freq == "epoch" else self._since_log()
        # Keras says so once for all steps of an execution.
        if position + keras_callbacks.steps_per_execution(self.model) > self._batches_in_log() // 2:
            self._samples.request()
            self._has_requested = True

    def on_train_batch_end(self, batch, logs=None):
        if self._update_freq == "epoch":
            return
        self._batches = self._batches_before_epoch + batch + 1
        if self._since_log() >= self._update_freq:
            self._before_log = self._log(self._before_log, logs, self._batches)

    def on_epoch_end(self, epoch, logs=None):
        self._batches_in_epoch = self._batches_begun
        step = epoch if self._update_freq == "epoch" else None
        self._before_epoch = self._log(self._before_epoch, logs, step)

    def on_train_end(self, logs=None):
        if self._writer is not None:
            self._writer.close()

    def _since_log(self):
        return self._batches - self._batches_at_log

    def _batches_in_log(self):
        """Returns how many batches there are from log to log, or 0 as long as that is unknown."""
        if self._update_freq != "epoch":
            return self._update_freq
        return (self.params or {}).get("steps") or self._batches_in_epoch

    def _log(self, before, logs, step):
        """Logs what was exchanged since `before`; returns what has been so far.

        Args:
          before: a traffic.
          logs: dict that gets the values, or None.
          step: that of TensorBoard, or None for values that it does not get.
        """
        now = self._strategy.traffic
        if not now.variables:
            return now
        traffic = now.since(before)
        norms = self._samples.read() if self._samples is not None else []
        rates, errors = _rates(traffic), _errors(norms)
        by_variable = {**_bits_by_variable(traffic), **_errors_by_variable(norms)}
        if logs is not None:
            logs.update(rates, **errors)
            logs.update(by_variable if self._by_variable else {})
        if step is not None:
            self._write({**rates, **errors, **by_variable}, step)
            self._logs += 1
            self._batches_at_log = self._batches
            self._has_requested = False
        return now

    def _write(self, values, step):
        if self._writer is None:
            return
        # Scalars as TensorBoard's package has them, in one operation.
        plugin = tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
        metadata = tf.compat.v1.SummaryMetadata(plugin_data=plugin)
        summary = tf.compat.v1.Summary()
        for name, value in values.items():
            tensor = tf.make_tensor_proto(value, tf.float32)
            summary.value.add(tag=f"traffic/{name}", metadata=metadata, tensor=tensor)
        # TensorBoard's callback may have other ideas of which batches are recorded.
        with self._writer.as_default(), tf.summary.record_if(True):
            tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step)


def _task(resolver):
    if resolver is None:  # with parameter servers
        return "chief_0"
    return f"{resolver.task_type or 'worker'}_{resolver.task_id or 0}"


def _rates(traffic):
    if isinstance(traffic, ServerTraffic):
        steps, sent, received = traffic.updates, traffic.bytes_pushed, traffic.bytes_pulled
        up, down = traffic.bits_per_value_pushed, traffic.bits_per_value_pulled
        waited = {}  # the workers know, the chief does not
    else:
        steps, sent, received = traffic.steps, traffic.bytes_sent, traffic.bytes_received
        up, down = traffic.bits_per_value_up, traffic.bits_per_value_down
        waited = {"seconds_waited_per_step": traffic.seconds_waited / max(1, steps)}
    return {
        "bits_per_value_up": up,
        "bits_per_value_down": down,
        "bytes_sent_per_step": sent / max(1, steps),
        "bytes_received_per_step": received / max(1, steps),
        **waited,
    }


def _errors(norms):
    """Returns the errors of all variables together."""
    if not norms:
        return {}
    residual, gradient, handed_in = (
        math.hypot(*(getattr(of_variable, norm) for of_variable in norms))
        for norm in ("residual", "gradient", "handed_in")
    )
    return {
        "residual_ratio": ratio(residual, gradient),
        "compression_error": ratio(residual, handed_in),
    }


def _errors_by_variable(norms):
    return {
        f"{error}/{of_variable.name}": getattr(of_variable, error)
        for error in ("residual_ratio", "compression_error")
        for of_variable in norms
    }


def _bits_by_variable(traffic):
    if isinstance(traffic, ServerTraffic):
        return {f"bits_per_value/{v.name}": v.bits_per_value_pushed for v in traffic.variables}
    # A variable has an entry for each compressor that it has had.
    totals = {}
    for v in traffic.variables:
        size, values = totals.get(v.name, (0, 0))
        totals[v.name] = size + v.bytes_sent, values + v.values_sent
    return {
        f"bits_per_value/{name}": 8 * size / values if values else 0.0
        for name, (size, values) in totals.items()
    }
