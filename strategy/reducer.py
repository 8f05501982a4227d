"""Gradients and variables -> buckets -> all-reduce ops -> reduced gradients."""

import collections
import dataclasses
import itertools

import tensorflow as tf
from tf_gc.strategy.variables import GRADIENT_DTYPES, name_of, unwrap

from tf_gc import ops
from tf_gc.compressors import Compressor, Uncompressed
from tf_gc.exchange import Exchange
from tf_gc.fusion import Gradient, plan_buckets
from tf_gc.traffic import Traffic, VariableTraffic

# Of the group of all workers' CPUs; far from those that TensorFlow counts up.
_GROUP_KEY = 0x7467_6300

# The same on all workers, as these make the same buckets in the same order.
_bucket_keys = itertools.count()


@dataclasses.dataclass(frozen=True)
class _Bucket:
    """A bucket that has been used, and its state in the runtime."""

    handle: tf.Tensor
    compressor: Compressor
    dtype: tf.DType
    names: tuple[str, ...]


class GradientReducer:
    """Reduces one gradient per variable and worker over the workers.

    Must be called with the same variables in the same order on all workers.
    """

    def __init__(self, policy, residuals, device, rank, workers, bucket_bytes, timeout_seconds):
        self._policy = policy
        self._residuals = residuals
        self._device = device
        self._rank = rank
        self._workers = workers
        self._bucket_bytes = bucket_bytes
        self._timeout_seconds = timeout_seconds
        self._buckets = {}  # (compressor, dtype, ids of the variables) -> _Bucket

    def handles(self, gradient):
        """Whether this, and not TensorFlow, is to reduce a gradient."""
        if isinstance(gradient, tf.IndexedSlices) and not self._policy.sparse_as_dense:
            return False
        return gradient.dtype in GRADIENT_DTYPES

    def reduce(self, gradients, variables, reduce_op, counter):
        """Returns the reduced gradients, on the worker's CPU.

        Args:
          gradients: tensors that it `handles`.
          variables: theirs, in the same order.
          reduce_op: "SUM" or "MEAN".
          counter: the variable whose reductions are counted as steps: the first
            of the optimizer's, whether it has a gradient this time or not.
        """
        with tf.device(self._device):
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        planned = [
            Gradient(self._compressor(v), g.dtype, unwrap(v).shape.num_elements())
            for g, v in zip(gradients, variables, strict=True)
        ]
        step = self._residuals.count_step(counter)
        reduced = [None] * len(gradients)
        for indices in plan_buckets(planned, self._bucket_bytes):
            compressor = planned[indices[0]].compressor
            results = self._reduce_bucket(
                compressor,
                [gradients[i] for i in indices],
                [variables[i] for i in indices],
                reduce_op,
                step,
            )
            for i, result in zip(indices, results, strict=True):
                reduced[i] = result
        return reduced

    def traffic(self):
        """Returns the `Traffic` of all buckets so far."""
        steps = values = uncompressed = sent = received = results = 0
        variables = []
        for bucket in self._buckets.values():
            counts = ops.bucket_traffic(bucket.handle)
            steps = max(steps, int(counts.steps))
            sent += int(counts.bytes_sent)
            received += int(counts.bytes_received)
            results += int(counts.result_bytes_sent)
            bucket_values = counts.values_sent.numpy()
            values += int(bucket_values.sum())
            uncompressed += int(bucket_values.sum()) * bucket.dtype.size
            shared = int(counts.shared_bytes_sent) / max(1, bucket_values.sum())
            payload = counts.payload_bytes_sent.numpy() + shared * bucket_values
            variables += [
                VariableTraffic(name, str(bucket.compressor), int(value), round(size))
                for name, value, size in zip(bucket.names, bucket_values, payload, strict=True)
            ]
        return Traffic(steps, sent, received, results, values, uncompressed, tuple(variables))

    def _compressor(self, variable):
        return (
            self._policy.compressor_for(name_of(variable), unwrap(variable).shape) or Uncompressed()
        )

    def _reduce_bucket(self, compressor, gradients, variables, reduce_op, step):
        bucket = self._bucket(compressor, gradients[0].dtype, variables)
        with tf.device(self._device):
            exchange = Exchange(
                bucket=bucket.handle,
                group_key=_GROUP_KEY,
                workers=self._workers,
                rank=self._rank,
                reduce_op=reduce_op,
                timeout_seconds=self._timeout_seconds,
                step=step,
                names=bucket.names,
                shapes=tuple(tuple(unwrap(v).shape) for v in variables),
                slots=self._slots(compressor, variables),
            )
            if compressor.start_step == 0:
                return compressor.all_reduce(gradients, exchange)
            return tf.cond(
                step < compressor.start_step,
                lambda: Uncompressed().all_reduce(gradients, exchange),
                lambda: compressor.all_reduce(gradients, exchange),
            )

    def _slots(self, compressor, variables):
        slots = collections.defaultdict(list)
        for variable in variables:
            for slot, shape in compressor.slot_shapes(tuple(unwrap(variable).shape)).items():
                slots[slot].append(self._residuals.local(variable, slot, shape))
        return slots

    def _bucket(self, compressor, dtype, variables):
        """The same variables share a bucket in every trace."""
        key = (compressor, dtype, *(unwrap(v)._unique_id for v in variables))
        if key not in self._buckets:
            with tf.init_scope(), tf.device(self._device):
                handle = ops.bucket(key=str(next(_bucket_keys)), variables=len(variables))
            names = tuple(name_of(v) for v in variables)
            self._buckets[key] = _Bucket(handle, compressor, dtype, names)
        return self._buckets[key]
