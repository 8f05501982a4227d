"""What an adaptive run did, in a file that grows while it runs.

The file has one JSON object a line. The first is the header, each other a control point, at which
the strategy has looked at the network and decided how to go on:

    {"tf_gc": "0.1.0", "workers": 4, "rank": 0,
     "buckets": [{"label": "dense/kernel and 3 more", "values": 1200000}],
     "candidates": ["uncompressed", "3LC", "AR-Topk ring"], "ratios": [0.1, 0.011, 0.001]}
    {"step": 120, "seconds": 14.2, "step_seconds": 0.118, "latency": 0.0005, "bandwidth": 1e8,
     "choices": [1], "ratio": 0.011, "gain": 0.83, "why": "the bandwidth fell"}
"""

import json
import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import tf_gc

__all__ = ["Bucket", "ControlPoint", "Run", "RunRecord", "RunRecordError", "read_run"]


class RunRecordError(ValueError):
    """A file is not the record of a run; the message names the line."""


class Bucket(NamedTuple):
    """Variables whose gradients are reduced together."""

    label: str
    values: int


class ControlPoint(NamedTuple):
    """What was measured and decided after a step; None is what is not known, or has no meaning."""

    step: int
    seconds: float  # since the start of the run
    step_seconds: float | None  # median of the steps since the last point
    latency: float | None  # seconds
    bandwidth: float | None  # bits per second
    choices: Sequence[int]  # for each bucket, from the next step on: index of a candidate
    ratio: float | None = None  # of sparse candidates, from the next step on
    gain: float | None = None  # of compression: E||g_c||^2 / E||g_e||^2
    why: str | None = None  # of a change


class Run(NamedTuple):
    """A header, and the points in the order of steps."""

    version: str
    workers: int
    rank: int
    buckets: list[Bucket]
    candidates: list[str]
    ratios: list[float]
    points: list[ControlPoint]


class RunRecord:
    """Writes the record of one run; each point is in the file when `append` returns.

    A file that exists is replaced.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        workers: int,
        rank: int,
        buckets: Sequence[Bucket],
        candidates: Sequence[str],
        ratios: Sequence[float] = (),
    ):
        """Writes the header.

        Args:
          path: of the file; its directory must exist.
          workers: number of workers.
          rank: of the worker that writes.
          buckets: what is decided about, in the order of `ControlPoint.choices`.
          candidates: names of what can be chosen.
          ratios: what `ControlPoint.ratio` can be.

        Raises:
          OSError: the file cannot be written.
        """
        self.path = path
        self._file = open(path, "w", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._write(
            {
                "tf_gc": tf_gc.__version__,
                "workers": workers,
                "rank": rank,
                "buckets": [Bucket(*bucket)._asdict() for bucket in buckets],
                "candidates": list(candidates),
                "ratios": list(ratios),
            }
        )

    def __enter__(self) -> "RunRecord":
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()

    def append(self, point: ControlPoint) -> None:
        """Adds a point. Where a checkpoint was restored its step may be an earlier one: points from
        that step on then no longer count.
        """
        fields = point._asdict()
        if point.why is None:
            del fields["why"]
        self._write({**fields, "choices": [int(choice) for choice in point.choices]})

    def close(self) -> None:
        self._file.close()

    def _write(self, fields):
        self._file.write(json.dumps(fields, allow_nan=False) + "\n")


def read_run(path: str | os.PathLike) -> Run:
    """Reads a record, also of a run that goes on, or was killed in the middle of a line.

    Raises:
      OSError: the file cannot be read.
      RunRecordError: it is not the record of a run.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        *lines, torn = file.read().split("\n")
    if not lines:
        what = "has no whole line" if torn else "is empty"
        raise RunRecordError(f"{path}: {what}; a run writes its header before its first step")
    run = None
    for number, line in enumerate(lines, 1):
        try:
            fields = json.loads(line)
            if run is None:
                run = _parse_header(fields)
            else:
                point = _parse_point(fields, run)
                while run.points and run.points[-1].step >= point.step:
                    run.points.pop()
                run.points.append(point)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, json.JSONDecodeError):
                message = "is not JSON"
            elif isinstance(error, KeyError):
                message = f"has no {error}"
            else:
                message = str(error)
            what = "header" if run is None else "control point"
            raise RunRecordError(f"{path}:{number}: {what} {message}") from error
    return run


def _parse_header(fields):
    buckets = [
        Bucket(_text(bucket, "label"), _integer(bucket, "values", 0))
        for bucket in _list(fields, "buckets")
    ]
    candidates = _list(fields, "candidates")
    if not all(isinstance(name, str) for name in candidates):
        raise ValueError("has candidates that are no texts")
    if not buckets or not candidates:
        raise ValueError("has no buckets, or no candidates")
    ratios = _list(fields, "ratios")
    if not all(isinstance(ratio, float | int) and 0 < ratio <= 1 for ratio in ratios):
        raise ValueError(f"has ratios {ratios}, must be in (0, 1]")
    return Run(
        version=_text(fields, "tf_gc"),
        workers=_integer(fields, "workers", 1),
        rank=_integer(fields, "rank", 0),
        buckets=buckets,
        candidates=candidates,
        ratios=ratios,
        points=[],
    )


def _parse_point(fields, run):
    step = _integer(fields, "step", 0)
    choices = _list(fields, "choices")
    if len(choices) != len(run.buckets):
        raise ValueError(f"has {len(choices)} choices for {len(run.buckets)} buckets")
    if not all(type(choice) is int and 0 <= choice < len(run.candidates) for choice in choices):
        raise ValueError(f"has choices {choices}, must be indices of {run.candidates}")
    seconds = _number(fields, "seconds")
    if seconds is None:
        raise ValueError("has seconds null, must be a number")
    numbers = {
        name: _number(fields, name)
        for name in ("step_seconds", "latency", "bandwidth", "ratio", "gain")
    }
    why = _text(fields, "why") if "why" in fields else None
    return ControlPoint(step, seconds, **numbers, choices=choices, why=why)


def _list(fields, name):
    value = fields[name]
    if not isinstance(value, list):
        raise TypeError(f"has {name} {value!r}, must be a list")
    return value


def _text(fields, name):
    value = fields[name]
    if not isinstance(value, str):
        raise TypeError(f"has {name} {value!r}, must be a text")
    return value


def _integer(fields, name, least):
    value = fields[name]
    if type(value) is not int or value < least:
        raise ValueError(f"has {name} {value!r}, must be an integer, at least {least}")
    return value


def _number(fields, name):
    value = fields[name]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, float | int) or not 0 <= value < math.inf:
        raise ValueError(f"has {name} {value!r}, must be a number, at least 0, or null")
    return float(value)
