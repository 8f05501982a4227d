"""Gradients and variables -> buckets -> all-reduce ops -> reduced gradients."""

import collections
import contextlib
import dataclasses
import functools
import itertools
import pathlib
import weakref
import zlib

import numpy as np
import tensorflow as tf
from absl import logging
from tf_gc.strategy import agreement, second_moments
from tf_gc.strategy import tensorflow_internals as internals
from tf_gc.strategy.adaptation import Adaptation, make_timeline
from tf_gc.strategy.entries import Entry, Step, bucket_key, label, names_of
from tf_gc.strategy.link_probe import MeasuredLinks
from tf_gc.strategy.norm_samples import NormSamples
from tf_gc.strategy.shared_squares import SharedSquares
from tf_gc.strategy.variables import GRADIENT_DTYPES, name_of, unused_name, unwrap

from tf_gc import ops
from tf_gc.compressors import Auto, Compressor, Uncompressed, companions
from tf_gc.exchange import Companions
from tf_gc.fusion import Gradient, plan_buckets
from tf_gc.second_moments import has_statistics
from tf_gc.traffic import Traffic, VariableTraffic

# The most that an uncompressed bucket may have to travel with another one: more has messages of
# its own, which are made beside the other's.
_MOST_COMPANION_BYTES = 1 << 20

# Of an optimizer without momentum: for how long its steps count as the first ones.
_BETA = 0.9

# The same on all workers, as these make the same buckets in the same order.
_bucket_keys = itertools.count()


@dataclasses.dataclass(frozen=True)
class _Bucket:
    """A bucket that has been used, and its state in the runtime."""

    handle: tf.Tensor
    compressor: str
    dtypes: tuple[tf.DType, ...]
    names: tuple[str | None, ...]  # None for statistics

    def traffic(self):
        """Returns the bucket's `Traffic`, but for the steps: a step may have several buckets."""
        with tf.init_scope():
            counts = ops.bucket_traffic(self.handle)
        # Statistics are no values of gradients.
        is_gradient = np.array([name is not None for name in self.names])
        values = counts.values_sent.numpy() * is_gradient
        shared = int(counts.shared_bytes_sent) / max(1, values.sum())
        payload = counts.payload_bytes_sent.numpy() + shared * values
        return Traffic(
            bytes_sent=int(counts.bytes_sent),
            bytes_received=int(counts.bytes_received),
            result_bytes_sent=int(counts.result_bytes_sent),
            values_sent=int(values.sum()),
            uncompressed_bytes=int(values @ [dtype.size for dtype in self.dtypes]),
            second_moment_bytes_sent=round(payload @ ~is_gradient),
            seconds_waited=int(counts.microseconds_waited) / 1e6,
            variables=tuple(
                VariableTraffic(name, self.compressor, int(value), round(size))
                for name, value, size in zip(self.names, values, payload, strict=True)
                if name is not None
            ),
        )


class GradientReducer:
    """Reduces one gradient per variable and worker over the workers.

    Must be called with the same variables in the same order on all workers.
    """

    def __init__(self, policy, residuals, device, exchange, bucket_bytes):
        self._policy = policy
        self._residuals = residuals
        self._device = device
        self._exchange = exchange  # without a bucket
        self._bucket_bytes = bucket_bytes
        self._buckets = {}  # (compressor, dtypes, ids of the variables) -> _Bucket
        self._dead = collections.deque()  # keys of buckets whose variables are gone
        self._retired = Traffic()  # of such buckets
        with tf.init_scope(), tf.device(device):
            self._steps = internals.ResourceVariable(np.int64(0), trainable=False)
        self._with_moments = set()  # ids of variables whose compressors have second moments
        self._norm_samples = None
        self._adaptations = {}  # keys of the buckets, and whether squares are taken -> Adaptation
        self._records = collections.Counter()  # how many adaptations have asked for a file
        self._timelines = weakref.WeakValueDictionary()  # of an optimizer and an `Auto`
        self._links = MeasuredLinks()

    def sample_norms(self):
        """Returns the `NormSamples` of what is traced from the first call on."""
        self._norm_samples = self._norm_samples or NormSamples(self._device)
        return self._norm_samples

    def handles(self, gradient):
        """Whether this, and not TensorFlow, is to reduce a gradient."""
        if isinstance(gradient, tf.IndexedSlices) and not (
            self._policy.embeddings or self._policy.sparse_as_dense
        ):
            return False
        return gradient.dtype in GRADIENT_DTYPES

    def expects_second_moment(self, variable):
        """Whether an optimizer should not square what was reduced for a `tf.Variable`."""
        return variable._unique_id in self._with_moments

    def reduce(
        self,
        gradients,
        variables,
        reduce_op,
        counter,
        with_second_moments=False,
        momentum=None,
        first_moments=None,
        optimizer_steps=None,
    ):
        """Returns the reduced gradients, on the worker's CPU.

        Args:
          gradients: tensors, or `tf.IndexedSlices`; what it does not `handle` of these is made
            dense, and summed exactly.
          variables: theirs, in the same order.
          reduce_op: "SUM" or "MEAN".
          counter: the variable whose reductions are counted as steps: the first
            of the optimizer's, whether it has a gradient this time or not.
          with_second_moments: whether reduced gradients get second moments, where
            their compressors share them: the optimizer squares gradients.
          momentum: the optimizer's, or None (`Compressor.for_optimizer`).
          first_moments: the optimizer's m of each variable, or None, and their weight; None if
            it has none.
          optimizer_steps: those that the optimizer has taken, or None.
        """
        moments, weight = first_moments or ([None] * len(variables), 1.0)
        entries = [
            self._entry(gradient, variable, with_second_moments, momentum)
            for gradient, variable in zip(gradients, variables, strict=True)
        ]
        names = set()
        for entry, moment in zip(entries, moments, strict=True):
            entry.first_moment = moment
            # Seeds follow from names: they are the same on all workers, whatever these keep.
            entry.name = unused_name(name_of(entry.variable), names)
            names.add(entry.name)
        with tf.device(self._device):
            self._steps.assign_add(1)
        number = self._residuals.count_step(counter)
        new_weights = (
            _weight_if_new(beta, optimizer_steps, number) for beta in (momentum, momentum or _BETA)
        )
        step = Step(reduce_op, number, with_second_moments, weight, *new_weights)
        # Which stays where the counter is gone.
        optimizer = self._residuals.shared(counter, "steps", (), tf.int64)._unique_id
        with self._adapted(entries, step, optimizer):
            return self._reduce_with_statistics(entries, step)

    def _reduce_with_statistics(self, entries, step):
        """Returns the reduced gradients, with second moments where they are wanted."""
        shared = [entry for entry in entries if self._shares(entry, step.squares)]
        if not shared:
            return self._reduce_entries(entries, step)
        with tf.device(self._device):
            squares = SharedSquares(shared, step, self._residuals, self._exchange)
        # What is known last is first, as buckets are formed from the last on.
        of_squares, *reduced = self._reduce_entries([squares.entry, *entries], step)
        with tf.device(self._device):
            squares.update(of_squares)
            if step.squares:
                squares.attach_moments(of_squares, dict(zip(entries, reduced, strict=True)))
        return reduced

    def traffic(self):
        """Returns the `Traffic` of all buckets so far."""
        self._retire()
        total = self._retired
        for bucket in list(self._buckets.values()):  # another thread may be tracing
            total += bucket.traffic()
        for adaptation in list(self._adaptations.values()):
            total += adaptation.traffic()
        return dataclasses.replace(total, steps=int(self._steps.numpy()))

    def _retire(self):
        """Lets go of buckets whose variables are gone, but not of what they have counted."""
        while self._dead:
            key = self._dead.popleft()
            bucket = self._buckets.pop(key, None)
            for of_buckets in [k for k in self._adaptations if key in k]:
                self._retired += self._adaptations.pop(of_buckets).traffic()
            if self._norm_samples is not None:
                self._norm_samples.forget(key)
            if bucket is not None:
                self._retired = (self._retired + bucket.traffic()).by_name()

    def _entry(self, gradient, variable, *of_optimizer):
        if isinstance(gradient, tf.IndexedSlices) and self._policy.embeddings:
            return Entry(gradient, variable, self._policy.embeddings)
        is_exact = isinstance(gradient, tf.IndexedSlices) and not self._policy.sparse_as_dense
        with tf.device(self._device):
            gradient = tf.convert_to_tensor(gradient)
            if not gradient.shape.is_fully_defined():
                gradient = tf.ensure_shape(gradient, unwrap(variable).shape)
        if is_exact:
            return Entry(gradient, variable, Uncompressed())
        compressor = self._policy.compressor_for(name_of(variable), unwrap(variable).shape)
        compressor = compressor or Uncompressed()
        return Entry(gradient, variable, compressor.for_optimizer(*of_optimizer))

    def _shares(self, entry, with_second_moments):
        """Whether statistics of the gradient are exchanged: where something uses them."""
        variable, systems = unwrap(entry.variable), entry.systems
        is_matrix = has_statistics(variable.shape)
        shares = is_matrix and any(system.shares_second_moment for system in systems)
        has_units = is_matrix and any(system.units == "second_moment" for system in systems)
        if shares or any(map(_has_own_second_moments, systems)):
            self._with_moments.add(variable._unique_id)
        return has_units or (shares and with_second_moments)

    def _reduce_entries(self, entries, step):
        """Returns the reduced gradients, in the order of entries."""
        buckets = self._plan(entries)
        self._agree_on(buckets, reduce_op=step.reduce_op)
        carrier, small = _find_companions(entries, buckets)
        reduced = {}
        for bucket in buckets:
            if bucket is small:
                continue
            others = small if bucket is carrier else []
            results = self._reduce_bucket(bucket, others, step)
            reduced.update(zip(map(id, [*bucket, *others]), results, strict=True))
        return [reduced[id(entry)] for entry in entries]

    def _plan(self, entries):
        """Returns the buckets that entries travel in, lists of them."""
        planned = [
            Gradient(e.compressor, e.gradient.dtype, e.size, has_statistics(e.shape))
            for e in entries
        ]
        return [[entries[i] for i in plan] for plan in plan_buckets(planned, self._bucket_bytes)]

    def _reduce_bucket(self, entries, others, step):
        """Returns what the gradients of a bucket become, and those of its companions, `others`."""
        compressor = entries[0].compressor
        gradients = [entry.gradient for entry in entries]
        with tf.device(self._device):
            exchange = self._bucket_exchange(entries, step)
            if others:
                of_others = self._bucket_exchange(others, step)
                small = Companions([entry.gradient for entry in others], of_others)
                exchange = dataclasses.replace(exchange, companions=small)

            def reduce(compressor):
                if type(compressor) is Auto:  # whose systems see to it
                    return compressor.all_reduce(gradients, exchange)
                return companions.all_reduce(compressor, gradients, exchange)

            with self._sampled(entries, gradients, exchange):
                if compressor.start_step == 0:
                    reduced = reduce(compressor)
                else:
                    reduced = tf.cond(
                        step.number < compressor.start_step,
                        lambda: reduce(compressor.warm_up),
                        lambda: reduce(compressor),
                    )
            own_reduced = reduced[: len(entries)]
            own = compressor.second_moments(exchange, own_reduced) if step.squares else None
            if own is not None:
                for gradient, moment in zip(own_reduced, own, strict=True):
                    second_moments.attach(gradient, second_moments.positive(moment, gradient))
            return reduced

    def _bucket_exchange(self, entries, step):
        compressor, choice = entries[0].compressor, entries[0].choice
        variables = [entry.variable for entry in entries]
        bucket = self._bucket(entries)
        measures_links = False if choice is None else choice.measures_links
        ops.begin_step(
            bucket.handle,
            step.number,
            measures_links=measures_links,
            sizes=[entry.size for entry in entries],
            group_size=self._exchange.workers,
        )
        return dataclasses.replace(
            self._exchange,
            bucket=bucket.handle,
            reduce_op=step.reduce_op,
            step=step.number,
            names=tuple(entry.name for entry in entries),
            shapes=tuple(tuple(unwrap(v).shape) for v in variables),
            slots=self._slots(compressor, variables, step.reduce_op),
            **(_in_units(entries) if compressor.units == "second_moment" else {}),
            choice=choice,
            momentum_weight=step.momentum_weight,
            turn_counter=functools.partial(self._turn_counter, variables),
        )

    @contextlib.contextmanager
    def _adapted(self, entries, step, optimizer):
        """Gives entries their choices for this step, and at its end makes those of the next."""
        adaptations = []
        by_auto = collections.defaultdict(list)
        for entry in entries:
            if isinstance(entry.compressor, Auto):
                by_auto[entry.compressor].append(entry)
        with tf.device(self._device):
            for chosen in by_auto.values():
                buckets = self._plan(chosen)
                adaptation = self._adaptation(buckets, step.squares, optimizer)
                choices, followed = adaptation.follow(step.number)
                measured = [self._with_residuals(bucket, step.reduce_op) for bucket in buckets]
                histograms = adaptation.observe(followed, measured)
                adaptations.append((adaptation, followed, histograms))
                for bucket, choice in zip(buckets, choices, strict=True):
                    for entry in bucket:
                        entry.choice = choice
        yield
        with tf.device(self._device):
            for adaptation, *observed in adaptations:
                adaptation.exchange_reports(step.number, *observed)

    def _adaptation(self, buckets, squares, optimizer):
        key = (squares, *map(bucket_key, buckets))
        if key not in self._adaptations:
            auto = buckets[0][0].compressor
            names = map(str, auto.candidates(squares))
            systems = list(map(agreement.without_addresses, names))
            timeline = self._timelines.get((optimizer, auto))
            if timeline is None:
                self._timelines[optimizer, auto] = timeline = make_timeline()
            self._agree_on(buckets, **{"system to choose from": systems})
            self._adaptations[key] = Adaptation(
                self._with_own_record(auto),
                squares,
                [(label(names_of(b)), sum(entry.size for entry in b)) for b in buckets],
                self._exchange,
                self._residuals,
                timeline,
                self._links,
            )
        return self._adaptations[key]

    def _with_own_record(self, auto):
        """Returns the `Auto` with a file that no other adaptation writes."""
        if auto.record is None:
            return auto
        number = self._records[auto.record]
        self._records[auto.record] += 1
        if number == 0:
            return auto
        path = pathlib.PurePath(auto.record)
        record = str(path.with_stem(f"{path.stem}-{number}"))
        logging.warning("tf_gc.Auto records what is chosen for other variables in %s", record)
        return dataclasses.replace(auto, record=record)

    def _sampled(self, entries, gradients, exchange):
        if self._norm_samples is None or not exchange.slots.get("residual"):
            return contextlib.nullcontext()
        return self._norm_samples.around(bucket_key(entries), gradients, exchange)

    def _slots(self, compressor, variables, reduce_op):
        slots = collections.defaultdict(list)
        for variable in variables:
            for slot, shape in compressor.slot_shapes(tuple(unwrap(variable).shape)).items():
                slots[slot].append(self._residuals.local(variable, slot, shape, reduce_op))
        return slots

    def _turn_counter(self, variables):
        # Other lists may begin alike, as the last variable is in each where it has a gradient.
        names = "\0".join(self._residuals.names(variables))
        slot = f"turns_{zlib.crc32(names.encode()):08x}"
        return self._residuals.shared(variables[0], slot, (), tf.int64)

    def _with_residuals(self, entries, reduce_op):
        """Returns the gradients of a bucket, and their residuals."""
        variables = [entry.variable for entry in entries]
        slots = self._slots(entries[0].compressor, variables, reduce_op)
        return [entry.gradient for entry in entries], slots["residual"]

    def _agree_on(self, buckets, **others):
        """Makes sure, where a bucket is new, that all workers have the same ones."""
        if all(bucket_key(entries) in self._buckets for entries in buckets):
            return
        with tf.init_scope(), tf.device(self._device):
            agreement.check(agreement.describe(buckets, **others), self._exchange)

    def _bucket(self, entries):
        """The same variables share a bucket in every trace."""
        key = bucket_key(entries)
        if key not in self._buckets:
            compressor, dtypes = key[:2]
            names = names_of(entries)
            with tf.init_scope(), tf.device(self._device):
                handle = ops.bucket(str(next(_bucket_keys)), len(entries), label(names))
            self._buckets[key] = _Bucket(handle, str(compressor), dtypes, names)
            for entry in entries:
                for variable in entry.variables:
                    weakref.finalize(variable, self._dead.append, key).atexit = False
            self._retire()
        return self._buckets[key]


def _find_companions(entries, buckets):
    """Returns a bucket, and a small uncompressed one that may travel in its messages.

    They are those whose gradients are known last, with the first variables, so that neither waits
    for the other.
    """
    small = [bucket for bucket in buckets if type(bucket[0].compressor) is Uncompressed]
    first = next((e for e in entries if type(e.compressor) is not Uncompressed), None)
    fits = bool(small) and sum(entry.bytes for entry in small[-1]) <= _MOST_COMPANION_BYTES
    if not fits or first is None:
        return None, []
    if type(first.compressor) is not Auto and not companions.takes_companions(first.compressor):
        return None, []
    return next(bucket for bucket in buckets if first in bucket), small[-1]


def _in_units(entries):
    """Returns what an `Exchange` in units knows; [0] where the variable is no matrix."""
    return {
        "units": [_or_none(entry.units, tf.float32) for entry in entries],
        "squares": [_or_none(entry.squares, tf.bfloat16) for entry in entries],
    }


def _or_none(tensor, dtype):
    return tf.zeros([0], dtype) if tensor is None else tensor


def _has_own_second_moments(compressor):
    """Whether optimizers get second moments from a compressor itself, of variables of any shape."""
    return type(compressor).second_moments is not Compressor.second_moments


def _weight_if_new(beta, optimizer_steps, number):
    """Returns 1 - beta^t after t steps if an optimizer has taken fewer steps than there were.

    Another one has then taken those before. Else it is 1, and where one of both is not known.
    """
    if not beta or optimizer_steps is None:
        return 1.0
    steps = tf.cast(optimizer_steps, tf.int64)
    weight = 1 - tf.pow(tf.constant(beta, tf.float32), tf.cast(steps, tf.float32))
    return tf.where(steps < number, weight, 1.0)
