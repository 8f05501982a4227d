"""How the links of a launch change while it runs."""

import csv
import math
import os
from typing import NamedTuple

from tf_gc import network_namespaces

_COLUMNS = ("seconds", "bandwidth", "latency", "process")


class LinkChange(NamedTuple):
    """One change, of all links or of one process's; what is None stays as it was."""

    seconds: float  # since the start of the processes
    bandwidth: str | None = None  # limit in each direction
    latency: str | None = None  # of what the process sends
    process: str | None = None  # as in the output: "worker 1", "ps 0", "chief"; None: all

    def __str__(self) -> str:
        values = (("bandwidth", self.bandwidth), ("latency", self.latency))
        changes = ", ".join(f"{name} {value}" for name, value in values if value)
        links = f"the link of {self.process}" if self.process else "all links"
        return f"{self.seconds:g} s: {links}: {changes}"


def read_link_changes(path: str | os.PathLike) -> list[LinkChange]:
    """Reads a CSV file of changes.

    The first line names the columns, of which `seconds` and one of `bandwidth` and `latency` must
    be there. An empty field stands for no change, or for all processes:

        seconds,bandwidth,latency,process
        0,100mbit,1ms,
        60,10mbit,,
        90,,20ms,worker 1

    Raises:
      OSError: the file cannot be read.
      ValueError: it is not such a file; the message says where.
    """
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, restkey="", skipinitialspace=True)
        try:
            _check_columns(set(reader.fieldnames or ()))
            changes = [_parse(row) for row in reader]
        except (csv.Error, UnicodeDecodeError) as error:  # of a line that is not known
            raise ValueError(f"{path}: {error}") from error
        except ValueError as error:
            raise ValueError(f"{path}:{reader.line_num or 1}: {error}") from error
    if not changes:
        raise ValueError(f"{path}: has no changes")
    return changes


def _check_columns(names):
    if "seconds" not in names or not names & {"bandwidth", "latency"} or names - {*_COLUMNS}:
        raise ValueError(f"must name the columns: seconds, and some of {', '.join(_COLUMNS[1:])}")


def _parse(row):
    if "" in row:
        raise ValueError("has more fields than columns")
    fields = {name: (text or "").strip() or None for name, text in row.items()}
    try:
        seconds = float(fields.pop("seconds") or "")
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"seconds is {row['seconds']!r}, must be a number, at least 0")
    change = LinkChange(seconds, **fields)
    if change.bandwidth is None and change.latency is None:
        raise ValueError("changes neither bandwidth nor latency")
    if change.bandwidth:
        network_namespaces.bits_per_second(change.bandwidth)
    if change.latency:
        network_namespaces.latency_seconds(change.latency)
    return change
