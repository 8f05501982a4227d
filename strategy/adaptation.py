"""What `tf_gc.Auto` has chosen, and how the workers come to choose the same."""

import dataclasses
import itertools

import numpy as np
import tensorflow as tf
from tf_gc.strategy import agreement, link_probe
from tf_gc.strategy import tensorflow_internals as internals

from tf_gc import ops
from tf_gc.adaptive import computation
from tf_gc.adaptive.chooser import Chooser
from tf_gc.adaptive.gain import gains
from tf_gc.adaptive.leader import KNOWN_STEPS, Decision, Leader, Report
from tf_gc.adaptive.plans import System
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


def make_timeline():
    """Returns what the adaptations of one optimizer have in common, a handle that they keep.

    It has one adaptation for each set of variables that have gradients in the same step.
    """
    with tf.init_scope():
        return ops.timeline(KNOWN_STEPS)


class Adaptation:
    """The choices for some buckets of one optimizer.

    Every few steps each worker sends a report to all others: its links, as it has measured them,
    and the gain of each ratio. Worker 0 decides, in a thread of its own, and its next report says
    what: so all change to another plan in the same step. No gradient waits for any of this.
    """

    def __init__(self, auto, squares, buckets, exchange, residuals, timeline, links):
        """Measures links and machine, and agrees on the first plan.

        All workers must call it at the same place.

        Args:
          auto: the `tf_gc.Auto`.
          squares: whether the optimizer squares gradients.
          buckets: what is in each, and its number of values.
          exchange: an `Exchange` without a bucket.
          residuals: the strategy's `Residuals`.
          timeline: the optimizer's, from `make_timeline`.
          links: the worker's, a `MeasuredLinks`.

        Raises:
          ValueError: op determinism is enabled.
          OSError, ImportError: on worker 0, the record cannot be written, or pymoo not be used.
          RuntimeError: on the others, which names worker 0's error.
        """
        check_may_choose()
        # Of momentum they know nothing: it would be state of one system, not of all.
        self._candidates = auto.candidates(squares)
        self._systems = tuple(system.for_optimizer(squares, 0.0) for system in self._candidates)
        self._ratios = auto.searched(squares)
        self._residuals = residuals
        self._restorations = residuals.restorations
        self._timeline = timeline
        self._gains = np.full(len(self._ratios), np.nan)
        with tf.init_scope():
            bucket = ops.bucket(f"adaptation {next(_numbers)}", 1, "what to choose next")
            self._exchange = dataclasses.replace(exchange, bucket=bucket)
            self._links = links
            self._links.add(link_probe.probe(exchange.workers, exchange.timeout_seconds))
            self._leader = self._agree_on_leader(auto, buckets)
            self._plan = ops.plan(
                timeline,
                keeps_residuals=[system.uses_residual for system in self._systems],
                has_units=[system.units == "second_moment" for system in self._systems],
                delivers_late=[system.shares_second_moment for system in self._systems],
                buckets=len(buckets),
                start_step=auto.start_step,
                squares=squares,
            )
            self._clean_versions = [_variable(np.int64(0)) for _ in buckets]
            for _ in range(2):  # worker 0 hears the others, then tells them
                self._exchange_reports(tf.zeros([], tf.int64))

    def follow(self, step):
        """Begins a step of the optimizer.

        Args:
          step: int64 scalar, the same on all workers.

        Returns:
          The `Choice` of each bucket; and what `ops.follow_plan` does, for the other methods.
        """
        clean_versions = [version.read_value() for version in self._clean_versions]
        followed = ops.follow_plan(self._plan, step, clean_versions)
        choices = [
            Choice(
                systems=self._systems,
                place=place,
                index=followed.choices[place],
                ratio=followed.ratio,
                measures_links=followed.measures_links,
                second_moments_age=followed.second_moments_age,
                has_units=followed.has_units[place],
                shares_second_moment=followed.shares_second_moment[place],
                has_fresh_units=followed.has_fresh_units[place],
                delivers_all=followed.delivers_all[place],
                residuals_version=followed.residuals_versions[place],
                clean_version=clean_version,
            )
            for place, clean_version in enumerate(self._clean_versions)
        ]
        return choices, followed

    def observe(self, followed, buckets):
        """Looks at gradients where their gains are wanted.

        Args:
          followed: from `follow`.
          buckets: of each, its gradients, and their residuals in the same order.

        Returns:
          What `exchange_reports` asks for.
        """
        # One by one, so that no bucket waits for the gradients of another.
        return [
            ops.gradient_histogram(gradients, [r.handle for r in residuals], followed.wants_gain)
            for gradients, residuals in (buckets if self._ratios else ())
        ]

    def exchange_reports(self, step, followed, histograms):
        """Exchanges reports where it is time to; what is decided counts from the next step on.

        Reports wait for no gradient. Gains come after them, and are in the next ones.

        Args:
          step: int64 scalar, the same on all workers.
          followed: from `follow`.
          histograms: from `observe`.
        """

        def exchange():
            self._exchange_reports(step)
            return tf.constant(True)

        done = tf.cond(followed.reports, exchange, lambda: tf.constant(True))
        if histograms:
            with tf.control_dependencies([done]):
                tf.cond(
                    followed.wants_gain,
                    lambda: self._measure_gains(histograms),
                    lambda: tf.constant(True),
                )

    def traffic(self):
        """Returns the `Traffic` of reports."""
        with tf.init_scope():
            counts = ops.bucket_traffic(self._exchange.bucket)
        return Traffic(bytes_sent=int(counts.bytes_sent), bytes_received=int(counts.bytes_received))

    def _agree_on_leader(self, auto, buckets):
        """Returns worker 0's `Leader`, and None on the others, which learn why it has none."""
        leader = error = None
        if self._exchange.rank == 0:
            try:
                leader = self._make_leader(auto, buckets)
            except Exception as own:
                error = own
        agreement.check_error(error, "to prepare tf_gc.Auto's choices", self._exchange)
        return leader

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

    def _measure_gains(self, histograms):
        of_buckets = list(map(tf.stack, zip(*histograms, strict=True)))
        tf.numpy_function(self._take_histograms, of_buckets, [])
        return tf.constant(True)

    def _take_histograms(self, counts, squares):
        if squares.any():  # else no value is finite, or all are 0
            # Each bucket sends the largest of its own values.
            buckets = zip(counts, squares, strict=True)
            own = [gains(*of_bucket, self._ratios) for of_bucket in buckets]
            self._gains = np.average(own, axis=0, weights=squares.sum(1))

    def _exchange_reports(self, step):
        # These messages are so short that all of what they take is latency.
        ops.begin_step(self._exchange.bucket, step, measures_links=True, measures="latency")
        buckets = len(self._clean_versions)
        sizes = (len(Report._fields), len(self._ratios), len(Decision._fields) + buckets)
        plan = ops.read_plan(self._plan)
        own = tf.numpy_function(self._row, [step, plan.optimizer_times], tf.float64)
        rows = self._exchange.all_gather(tf.ensure_shape(own, [sum(sizes)]))
        reports, gains_, decisions = tf.split(rows, sizes, axis=1)
        times = [plan.times, plan.optimizer_times]
        tf.numpy_function(self._hear, [step, reports, gains_, *times], [])
        ops.change_plan(self._plan, step, decisions[0])

    def _row(self, step, times):
        """Returns this worker's report and, on worker 0, what was decided."""
        network = self._links.update()
        known = (network.latency, network.bandwidth) if network else (np.nan, np.nan)
        before, self._restorations = self._restorations, self._residuals.restorations
        report = Report(*known, before != self._restorations)
        decided = self._leader and self._leader.decision(int(step), times)
        nothing = Decision(1, False, False, False, True, 1.0), [0] * len(self._clean_versions)
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


def _variable(value):
    return internals.ResourceVariable(value, trainable=False)
