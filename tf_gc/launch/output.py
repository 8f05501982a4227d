"""What the processes of a launch write: cut into lines, and printed behind their names."""

import io
import itertools
import os
import re
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

import rich.console
import rich.text

LAUNCHER = "tf_gc-launch"  # the name of its own words
CHUNK = 1 << 16

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "red")
_PROGRESS_SECONDS = 1.0


class OutputLine(NamedTuple):
    """One line of output."""

    process: str  # "worker 0", "ps 0" or "chief"; "tf_gc-launch": the launcher's own words
    stream: str  # "stdout" or "stderr"
    text: str


class LineBuffer:
    """Cuts what a process writes into lines.

    A carriage return overwrites the line, as on a terminal, so of a progress bar only the last
    state is a line; while it grows, one state a second is shown.
    """

    _END = re.compile(rb"(\r*\n|\r+(?=[^\r\n]))")

    def __init__(self):
        self._pending = b""
        self._progress_shown = -_PROGRESS_SECONDS

    def feed(self, data: bytes) -> list[str]:
        """Returns the lines that `data` completes."""
        *complete, self._pending = self._END.split(self._pending + data)
        lines = [
            text
            for text, end in zip(complete[::2], complete[1::2], strict=False)
            if end.endswith(b"\n") or (text and self._progress_is_due())
        ]
        if len(self._pending) > CHUNK:
            lines.append(self._take_pending())
        return [line.decode("utf-8", "replace") for line in lines]

    def flush(self) -> list[str]:
        """Returns the last line when it has no end."""
        rest = self._take_pending().rstrip(b"\r")
        return [rest.decode("utf-8", "replace")] if rest else []

    def _take_pending(self):
        pending, self._pending = self._pending, b""
        return pending

    def _progress_is_due(self):
        now = time.monotonic()
        due = now - self._progress_shown >= _PROGRESS_SECONDS
        if due:
            self._progress_shown = now
        return due


class Printer:
    """Prints lines to the stream that they came from, behind a coloured name."""

    def __init__(self, processes: Iterable[str]):
        self._streams = {"stdout": sys.stdout, "stderr": sys.stderr}
        styles = dict(zip(processes, itertools.cycle(_COLOURS)))
        self._prefixes = {
            (process, name): _prefix(stream, process, style)
            for name, stream in self._streams.items()
            for process, style in {LAUNCHER: "bold", **styles}.items()
        }

    def __call__(self, line: OutputLine) -> None:
        """Prints a line.

        Raises:
          BrokenPipeError: nobody reads the stream any more. One that fails otherwise, as on a full
            disk or a terminal that is gone, is given up, for the processes do not need it.
        """
        stream = self._streams[line.stream]
        try:
            stream.write(f"{self._prefixes[line.process, line.stream]}{line.text}\n")
            stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            text = f"{line.stream}: output is not written any more: {error.strerror}"
            self(OutputLine(LAUNCHER, "stderr", text))


def _prefix(stream, process: str, style: str) -> str:
    """Returns "[worker 0] ", styled where `stream` shows colours."""
    shows_colours = rich.console.Console(file=stream).is_terminal
    console = rich.console.Console(file=io.StringIO(), force_terminal=shows_colours)
    console.print(rich.text.Text(f"[{process}]", style=style), end=" ", soft_wrap=True)
    return console.file.getvalue()
