"""What `tf_gc.Auto` has chosen, and how the workers come to choose the same."""

import dataclasses
import functools
import itertools

import numpy as np
import tensorflow as tf
from tf_gc.strategy import link_probe
from tf_gc.strategy import tensorflow_internals as internals

from tf_gc import ops
from tf_gc.adaptive import computation
from tf_gc.adaptive.chooser import Chooser, System
from tf_gc.adaptive.gain import gains
from tf_gc.adaptive.leader import MOST_STEPS, Decision, Leader, Report
from tf_gc.adaptive.links import LinkEstimator
from tf_gc.adaptive.run_record import Bucket, RunRecord
from tf_gc.compressors import THC, ThreeLC, Uncompressed
from tf_gc.compressors.auto import AnyRatio
from tf_gc.exchange import Choice
from tf_gc.traffic import Traffic

# The same on all workers, as these make the same ones in the same order.
_numbers = itertools.count()

# Names in the cost model, and how much they change gradients. Other systems are tried.
_KNOWN = {Uncompressed: ("uncompressed", 0), THC: ("THC", 1), ThreeLC: ("3LC", 2)}


def check_may_choose():
    """Makes sure that nobody has asked for what `tf_gc.Auto` cannot give.

    Raises:
      ValueError: op determinism is enabled.
    """
    if internals.is_op_determinism_enabled():
        raise ValueError(
            "tf_gc.Auto chooses by measured times, so no training repeats another bit by bit: name "
            "a system, such as tf_gc.ThreeLC(), or leave out "
            "tf.config.experimental.enable_op_determinism()"
        )


# Of how many steps one measures links while plans are tried, and later: two transfers for each
# message are a good part of a small step, and of one that waits for latency.
_TRYING_STEPS_PER_MEASUREMENT, _STEPS_PER_MEASUREMENT = 4, 16
# The same of reports, when nothing is tried.
_REPORTS_PER_MEASUREMENT = 8


class Timeline:
    """What the adaptations of one optimizer have in common.

    It has one adaptation for each set of variables that have gradients in the same step.

    Attributes:
      times: when steps have begun, in seconds, that of step s at s mod size; 0 for unknown.
      last: the number of the adaptation that chose for the last step.
    """

    def __init__(self):
        with tf.init_scope():
            self.times = _variable(np.zeros(MOST_STEPS + 4))
            self.last = _variable(np.int64(-1))


class Adaptation:
    """The choices for some buckets of one optimizer.

    Every few steps each worker sends a report to all others: its links, as it has measured them,
    and the gain of each ratio. Worker 0 decides, in a thread of its own, and its next report says
    what: so all change to another plan in the same step. No gradient waits for any of this.
    """

    def __init__(self, auto, squares, buckets, exchange, residuals, timeline):
        """Measures links and machine, and agrees on the first plan.

        All workers must call it at the same place.

        Args:
          auto: the `tf_gc.Auto`.
          squares: whether the optimizer squares gradients.
          buckets: what is in each, and its number of values.
          exchange: an `Exchange` of no variables.
          residuals: the strategy's `Residuals`.
          timeline: the optimizer's `Timeline`.

        Raises:
          ValueError: op determinism is enabled.
        """
        check_may_choose()
        # Of momentum they know nothing: it would be state of one system, not of all.
        self._candidates = auto.candidates(squares)
        self._systems = tuple(system.for_optimizer(squares, 0.0) for system in self._candidates)
        self._ratios = auto.searched(squares)
        self._start_step = auto.start_step
        self._residuals = residuals
        self._restorations = residuals.restorations
        self._gains = np.full(len(self._ratios), np.nan)
        self._timeline = timeline
        self._number = next(_numbers)
        with tf.init_scope():
            bucket = ops.bucket(f"adaptation {self._number}", 1, "what to choose next")
            self._exchange = dataclasses.replace(exchange, bucket=bucket)
            self._links = LinkEstimator()
            self._links.add(link_probe.probe(exchange.workers, exchange.timeout_seconds))
            self._leader = self._make_leader(auto, buckets) if exchange.rank == 0 else None
            self._times = _variable(np.zeros(MOST_STEPS + 4))  # of this adaptation's steps
            self._clean = [_variable(False) for _ in buckets]
            self._keep_residuals = _variable([False] * len(buckets))  # in the last step
            # Of the last reports, and what worker 0 has decided: see `Decision`.
            self._step = _variable(np.int64(0))
            self._steps = _variable(np.float32(1))
            self._is_settled = _variable(False)
            self._reports = _variable(np.int64(0))
            self._wants_gain = _variable(False)
            self._ratio = _variable(np.float32(1))
            self._choices = _variable(np.zeros(len(buckets), np.int32))
            for _ in range(2):  # worker 0 hears the others, then tells them
                self._exchange_reports(tf.zeros([], tf.int64))

    def choices(self, step):
        """Returns the `Choice` of each bucket, for this step."""
        ratio = self._ratio.read_value()
        indices = tf.unstack(self._choices.read_value(), len(self._clean))
        is_settled = self._is_settled.read_value()
        steps = tf.where(is_settled, _STEPS_PER_MEASUREMENT, _TRYING_STEPS_PER_MEASUREMENT)
        measures = step % tf.cast(steps, step.dtype) == 0
        # Another one may have left residuals of the same variables.
        is_same = self._timeline.last.read_value() == self._number
        self._timeline.last.assign(self._number)
        self._restrict_clean(is_same)
        kept = tf.unstack(self._keep_residuals.read_value(), len(self._clean))
        choices = [
            Choice(self._systems, index, ratio, measures, is_clean, follows_residuals, ~is_settled)
            for index, is_clean, follows_residuals in zip(indices, self._clean, kept, strict=True)
        ]
        self._keep_residuals.assign([choice.keeps_residuals for choice in choices])
        return choices

    def observe(self, step, buckets):
        """Notes when a step comes, and looks at its gradients where their gains are wanted.

        Args:
          step: int64 scalar, the same on all workers.
          buckets: of each, its gradients, and their residuals in the same order.

        Returns:
          What `exchange_reports` asks for.
        """
        with tf.control_dependencies([step]):
            now = tf.timestamp()
        now = tf.where(step < self._start_step, tf.zeros_like(now), now)  # nothing was chosen
        for times in (self._times, self._timeline.times):
            times.scatter_update(tf.IndexedSlices(now, step % times.shape[0]))
        if not self._ratios:
            return None
        is_wanted = self._is_due(step) & self._wants_gain.read_value()
        # One by one, so that no bucket waits for the gradients of another.
        return is_wanted, [
            tf.cond(is_wanted, functools.partial(_histogram, *bucket), _no_histogram)
            for bucket in buckets
        ]

    def exchange_reports(self, step, observed):
        """Exchanges reports where it is time to; what is decided counts from the next step on.

        Reports wait for no gradient, but for what is known of residuals. Gains come after them, and
        are in the next ones.

        Args:
          step: int64 scalar, the same on all workers.
          observed: what `observe` has returned.
        """
        is_restored = tf.cond(
            self._is_due(step), lambda: self._exchange_reports(step), lambda: tf.constant(False)
        )
        self._restrict_clean(~is_restored)
        if observed is not None:
            is_wanted, histograms = observed
            with tf.control_dependencies([is_restored]):
                tf.cond(is_wanted, lambda: self._measure_gains(histograms), lambda: ())

    def traffic(self):
        """Returns the `Traffic` of reports."""
        with tf.init_scope():
            counts = ops.bucket_traffic(self._exchange.bucket)
        return Traffic(bytes_sent=int(counts.bytes_sent), bytes_received=int(counts.bytes_received))

    def _make_leader(self, auto, buckets):
        systems = list(map(_describe, self._candidates))
        workers = self._exchange.workers
        record = auto.record and RunRecord(
            auto.record,
            workers=workers,
            rank=self._exchange.rank,
            buckets=[Bucket(label, size) for label, size in buckets],
            candidates=list(map(str, systems)),
            ratios=self._ratios,
        )
        sizes = [size for _, size in buckets]
        rates = computation.measure_rates()
        return Leader(Chooser(systems, sizes, workers, self._ratios, rates), record)

    def _restrict_clean(self, condition):
        for is_clean in self._clean:
            is_clean.assign(is_clean.read_value() & condition)

    def _is_due(self, step):
        since = tf.cast(step - self._step.read_value(), tf.float32)
        # Where a checkpoint was restored, an optimizer may be in an earlier step.
        is_due = (since >= self._steps.read_value()) | (since < 0)
        return is_due & (step >= self._start_step)

    def _measure_gains(self, histograms):
        total = list(map(tf.add_n, zip(*histograms, strict=True)))
        tf.numpy_function(self._take_histogram, total, [])
        return ()

    def _take_histogram(self, counts, squares):
        self._gains = np.array(gains(counts, squares, self._ratios))

    def _exchange_reports(self, step):
        """Returns whether residuals were restored on any worker."""
        # These messages are so short that all of what they take is latency. Where it is measured
        # they take longer than gradients may, and the step waits for them.
        is_due = self._reports.assign_add(1) % _REPORTS_PER_MEASUREMENT == 0
        measures = is_due | ~self._is_settled.read_value()
        ops.begin_step(self._exchange.bucket, step, measures_links=measures)
        sizes = (len(Report._fields), len(self._ratios), len(Decision._fields), len(self._clean))
        own = tf.numpy_function(self._row, [], tf.float64)
        rows = self._exchange.all_gather(tf.ensure_shape(own, [sum(sizes)]))
        reports, gains_, *_ = tf.split(rows, sizes, axis=1)
        times = [self._times.read_value(), self._timeline.times.read_value()]
        tf.numpy_function(self._hear, [step, reports, gains_, *times], [])
        *_, decision, choices = tf.split(tf.cast(rows[0], tf.float32), sizes)
        decision = Decision(*tf.unstack(decision))
        self._step.assign(step)
        self._steps.assign(decision.steps)
        self._is_settled.assign(decision.is_settled > 0)
        self._wants_gain.assign(decision.wants_gain > 0)
        self._ratio.assign(decision.ratio)
        self._choices.assign(tf.cast(choices, tf.int32))
        return decision.is_restored > 0

    def _row(self):
        """Returns this worker's report and, on worker 0, what was decided."""
        self._links.add(ops.network_samples().numpy())
        network = self._links.network
        known = (network.latency, network.bandwidth) if network else (np.nan, np.nan)
        before, self._restorations = self._restorations, self._residuals.restorations
        report = Report(*known, before != self._restorations)
        decided = self._leader and self._leader.decision()
        nothing = Decision(1, False, False, False, 1.0), [0] * len(self._clean)
        decision, choices = decided or nothing
        return np.array([*report, *self._gains, *decision, *choices], np.float64)

    def _hear(self, step, reports, gains_, own_times, times):
        if self._leader:
            reports = [Report(*report) for report in reports]
            self._leader.hear(int(step), reports, gains_, times, own_times)


def _describe(system):
    """Returns the `System` that the cost model knows a compressor as."""
    if isinstance(system, AnyRatio):
        return System("AR-Topk", system.topology, loss=4, has_ratio=True)
    collective = getattr(system, "topology", "sharded")
    if type(system) not in _KNOWN:
        return System(str(system), collective, loss=3)
    arguments = str(system).removeprefix(type(system).__name__)
    name, loss = _KNOWN[type(system)]
    return System(name, collective, loss, arguments="" if arguments == "()" else arguments)


def _histogram(gradients, residuals):
    """Returns what `gains` needs to know of the gradients of a bucket."""
    values = [
        tf.reshape(tf.cast(gradient, tf.float32) + residual.read_value(), [-1])
        for gradient, residual in zip(gradients, residuals, strict=True)
    ]
    return ops.magnitude_histogram(tf.concat(values, 0))


def _no_histogram():
    return ops.magnitude_histogram(tf.zeros([0]))


def _variable(value):
    return internals.ResourceVariable(value, trainable=False)
