"""The line with which a launch ends: what its processes have exchanged.

The launcher names a file to each process, and strategies have it written when the process ends:
the numbers of all of them, added up. Nothing is done before.
"""

import atexit
import collections
import contextlib
import json
import os
import pathlib
import sys
import weakref
from collections.abc import Callable, Mapping

import rich.filesize
from absl import logging

VARIABLE = "TF_GC_SUMMARY"
_OF_PROCESS = ("seconds_waited", "seconds")  # whatever strategy they are read from

_earlier = []  # strategies' `read`, weakly, with what it returned when the next one was made
_latest: Callable[[], Mapping[str, float]] | None = None


def write_at_exit(read: Callable[[], Mapping[str, float]]) -> None:
    """Has this process write what `read` returns then when it ends, if a launch asks for it.

    Nothing is written where an exception ends it, after which others may not answer. Strategies
    before the latest are not kept alive: of one that is gone by then, what it had exchanged when
    the next one was made counts.

    Args:
      read: a method of a strategy that returns what that has exchanged, as numbers that add up.
        Of a worker: `steps`, `bytes_sent`, `values_sent`, and of the process until now
        `seconds_waited` and `seconds`. Of a chief: `updates`, `bytes_pushed`, `values_pushed`,
        `bytes_pulled` and `values_pulled`.
    """
    global _latest
    path = os.environ.get(VARIABLE)
    if not path:
        return
    if _latest is None:
        atexit.register(_write, pathlib.Path(path), os.getpid())
    else:
        _earlier.append((weakref.WeakMethod(_latest), _read(_latest)))
    _latest = read


def _write(path, process):
    # Not in a fork, and not if the launcher, and its folder, is gone.
    if os.getpid() == process and not hasattr(sys, "last_type"):
        with contextlib.suppress(OSError):
            part = path.with_suffix(".part")
            part.write_text(json.dumps(_of_process(list(_of_strategies()))), encoding="utf-8")
            part.replace(path.with_suffix(".json"))  # which is whole


def _of_strategies():
    for method, numbers in _earlier:
        read = method()
        yield _read(read) if read else numbers
    yield _read(_latest)


def _of_process(strategies):
    latest = {name: max(numbers.get(name, 0) for numbers in strategies) for name in _OF_PROCESS}
    return {**_sum(strategies), **latest}


def _read(read):
    try:
        return read()
    except Exception as error:  # of whatever kind: servers are gone, or the strategy was not made
        logging.warning("tf_gc: left out of what the launch has exchanged: %s", error)
        return {}


def read_summary(folder: pathlib.Path) -> str | None:
    """Returns a line on what processes have written there, or None if that is nothing."""
    written = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    total = _sum(written)
    if total["steps"]:
        steps = max(numbers.get("steps", 0) for numbers in written)
        sent = f"{_size(total['bytes_sent'] / len(written))}, {_bits(total, 'sent')}"
        waited = total["seconds_waited"] / (total["seconds"] or 1)
        return f"{steps} steps: each worker sent {sent}, and waited {waited:.0%} of the time"
    if total["updates"]:
        pushed, pulled = (
            f"{way} {_size(total[f'bytes_{way}'])}, {_bits(total, way)}"
            for way in ("pushed", "pulled")
        )
        return f"{total['updates']} updates: the workers {pushed}, and {pulled}"
    return None


def _sum(numbers):
    return sum(map(collections.Counter, numbers), collections.Counter())


def _size(count):
    return rich.filesize.decimal(round(count))


def _bits(total, way):
    return f"{8 * total[f'bytes_{way}'] / max(1, total[f'values_{way}']):.3g} bits a value"
