"""Before workers reduce anything together, they make sure that they are about to reduce the same.

What one worker does otherwise than the others would give an error about sizes, an exchange that
never ends, or, as with another hyper-parameter, wrong numbers without a word.
"""

import contextlib
import dataclasses
import itertools
import json
import numbers
import re
import types

import numpy as np
import tensorflow as tf
from tf_gc.strategy.variables import name_of

import tf_gc
from tf_gc import ops

# Of the group of all workers' CPUs; far from those that TensorFlow counts up.
GROUP_KEY = 0x7467_6300

# When, and how, all workers take a step together.
_OF_DILOCO = ("inner_steps", "outer_optimizer", "fragments", "start_step")

_MOST_BYTES = 1 << 28  # of a description
_numbers = itertools.count()

# Of objects that have no better text, such as functions.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def describe(buckets, **others):
    """Returns what all workers should agree on, by field.

    Args:
      buckets: lists of entries, each with a gradient, a variable and a compressor.
      others: more fields, such as `reduce_op`.
    """
    fields = {**_versions(), **others, "number of buckets": len(buckets)}
    for number, entries in enumerate(buckets):
        of_bucket = f"of bucket {number} of this step"
        fields[f"compressor {of_bucket}"] = _text(entries[0].compressor)
        fields[f"variables {of_bucket}"] = [_kind(entry) for entry in entries]
    return fields


def _text(value):
    """Returns what tells a compressor, or a part of it, from others, on all workers alike.

    Keras's schedules have no text of their own, but most have a config.
    """
    if dataclasses.is_dataclass(value):
        fields = [f.name for f in dataclasses.fields(value) if f.repr]
        parts = [f"{name}={_text(getattr(value, name))}" for name in fields]
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, types.FunctionType):
        return f"{value.__qualname__}{_numbers_in(value)}"
    with contextlib.suppress(AttributeError, NotImplementedError):
        value = (type(value).__name__, value.get_config())
    return without_addresses(repr(value))


def without_addresses(text):
    """Returns a text without what is another one in each process."""
    return _ADDRESS.sub("", text)


def _numbers_in(function):
    """Returns the numbers in a function's code, among its defaults, and of functions around it.

    The code itself is another one in each version of Python.
    """
    around = [_value_in(cell) for cell in function.__closure__ or ()]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    values = [*_constants(function.__code__), *defaults, *around]
    return [value for value in values if isinstance(value, numbers.Number)]


def _value_in(cell):
    """Returns the value of a variable around a function, None where it has none."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _constants(code):
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _constants(constant)
        else:
            yield constant


def describe_program(compression):
    """Returns what all workers should agree on from the beginning, by field.

    Args:
      compression: the strategy's argument. Compressors are compared when their bucket is made.
    """
    fields = _versions()
    if compression is None:
        return {**fields, "compression": "None"}
    if not isinstance(compression, tf_gc.DiLoCo):
        return {**fields, "compression": "of gradients"}
    settings = {f"{name} of DiLoCo": repr(getattr(compression, name)) for name in _OF_DILOCO}
    return {**fields, "compression": "DiLoCo", **settings}


def _versions():
    wire_version, _ = ops.library_version().numpy().decode().split(" ")
    return {
        "version of tf_gc": tf_gc.__version__,
        "version of the wire format": wire_version,
        "version of TensorFlow": tf.__version__,
    }


def _kind(entry):
    name = "second moments" if entry.is_statistics else name_of(entry.variable)
    return f"{name} {entry.gradient.dtype.name}{entry.shape}"


def check(fields, exchange):
    """Compares the fields of all workers, which call this at the same place.

    Args:
      fields: of this worker, from `describe` or `describe_program`.
      exchange: an `Exchange` without a bucket.

    Raises:
      ValueError: a worker has another value somewhere; it names worker, field and both.
      tf.errors.DeadlineExceededError: a worker has not come.
    """
    for other, theirs in enumerate(_gather(fields, exchange)):
        for field in (*fields, *(f for f in theirs if f not in fields)):
            own, their = _first_difference(fields.get(field), theirs.get(field))
            if own != their:
                raise ValueError(
                    f"the workers do not reduce the same gradients: the {field} is {their} on "
                    f"worker {other}, and {own} on worker {exchange.rank}. All workers must run "
                    "the same program"
                )


def check_error(error, doing, exchange):
    """Makes an error of one worker one of all, which call this at the same place.

    Args:
      error: of this worker, or None.
      doing: what may have failed, for people.
      exchange: an `Exchange` without a bucket.

    Raises:
      Exception: the worker's own error.
      RuntimeError: another worker has one, which it names.
      tf.errors.DeadlineExceededError: a worker has not come.
    """
    errors = _gather(error and f"{type(error).__name__}: {error}", exchange)
    if error is not None:
        raise error
    for other, theirs in enumerate(errors):
        if theirs is not None:
            raise RuntimeError(f"worker {other} has failed {doing}: {theirs}")


def _gather(value, exchange):
    """Returns what all workers give, in the order of their ranks."""
    bucket = ops.bucket(f"agreement {next(_numbers)}", 1, "what is reduced")
    data, sizes = ops.exchange_all_gather(
        np.frombuffer(json.dumps(value).encode(), np.uint8),
        max_bytes=_MOST_BYTES,
        **dataclasses.replace(exchange, bucket=bucket).arguments,
    )
    messages = np.split(data.numpy(), np.cumsum(sizes.numpy())[:-1])
    return [json.loads(bytes(message).decode()) for message in messages]


def _first_difference(own, their):
    """Of lists those elements that differ first."""
    if not (isinstance(own, list) and isinstance(their, list)):
        return own, their
    missing = ["nothing"] * abs(len(own) - len(their))
    pairs = zip(own + missing, their + missing, strict=False)
    return next((pair for pair in pairs if pair[0] != pair[1]), (None, None))
