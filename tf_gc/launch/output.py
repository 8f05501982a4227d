"""What the processes of a launch write: cut into lines, and printed behind their names."""

import io
import itertools
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import rich.console
import rich.text

LAUNCHER = "tf_gc-launch"  # the name of its own words
CHUNK = 1 << 16
LONGEST_LINE = 1 << 20  # bytes; what is longer is cut

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "red")
_PROGRESS_SECONDS = 1.0
# Characters, of up to four bytes each: as many bytes as a pipe that is ready takes without a wait.
_PIECE = select.PIPE_BUF // 4


class OutputLine(NamedTuple):
    """One line of output."""

    process: str  # "worker 0", "ps 0" or "chief"; "tf_gc-launch": the launcher's own words
    stream: str  # "stdout" or "stderr"
    text: str


class Piece(NamedTuple):
    """Some of what a printed line is."""

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
        if len(self._pending) > LONGEST_LINE:
            end = _end_of_characters(self._pending)
            lines.append(self._pending[:end])
            self._pending = self._pending[end:]
        return [line.decode("utf-8", "replace") for line in lines]

    def flush(self) -> list[str]:
        """Returns the last line when it has no end."""
        rest, self._pending = self._pending.rstrip(b"\r"), b""
        return [rest.decode("utf-8", "replace")] if rest else []

    def _progress_is_due(self):
        now = time.monotonic()
        due = now - self._progress_shown >= _PROGRESS_SECONDS
        if due:
            self._progress_shown = now
        return due


def _end_of_characters(text: bytes) -> int:
    """Returns where the last character of UTF-8 begins, if it is not whole, or else the end."""
    for length in (1, 2, 3):
        if text[-length] >= 0xC0:
            return len(text) - length
        if text[-length] < 0x80:
            break
    return len(text)


class Printer:
    """Prints lines to the stream that they came from, behind a coloured name."""

    def __init__(self, processes: Iterable[str], may_lose_readers: Callable[[], bool]):
        """Prints nothing yet.

        Args:
          processes: their names.
          may_lose_readers: whether the processes go on when nobody reads their output any more.
        """
        self._may_lose_readers = may_lose_readers
        self._streams = {"stdout": sys.stdout, "stderr": sys.stderr}
        styles = dict(zip(processes, itertools.cycle(_COLOURS)))
        self._prefixes = {
            (process, name): _prefix(stream, process, style)
            for name, stream in self._streams.items()
            for process, style in {LAUNCHER: "bold", **styles}.items()
        }

    def is_ready(self) -> bool:
        """Returns whether both streams take a piece without a wait for their readers."""
        return all(map(_takes_a_piece, self._streams.values()))

    def pieces(self, line: OutputLine) -> list[Piece]:
        """Cuts a line, behind its name, into what a stream that is ready takes at once."""
        text = f"{self._prefixes[line.process, line.stream]}{line.text}\n"
        return [
            Piece(line.stream, text[begin : begin + _PIECE])
            for begin in range(0, len(text), _PIECE)
        ]

    def __call__(self, piece: Piece) -> None:
        """Prints a piece.

        Raises:
          BrokenPipeError: nobody reads the stream any more, and the processes are not to go on. One
            that fails otherwise, as on a full disk or a terminal that is gone, is given up, for
            the processes do not need it.
        """
        stream = self._streams[piece.stream]
        try:
            stream.write(piece.text)
            stream.flush()
        except OSError as error:
            if isinstance(error, BrokenPipeError) and not self._may_lose_readers():
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            text = f"{piece.stream}: output is not written any more: {error.strerror}"
            for said in self.pieces(OutputLine(LAUNCHER, "stderr", text)):
                self(said)


def _takes_a_piece(stream):
    poll = select.poll()
    try:
        poll.register(stream, select.POLLOUT)
    except (OSError, ValueError):  # it is no file, as in a notebook
        return True
    return bool(poll.poll(0))


def _prefix(stream, process: str, style: str) -> str:
    """Returns "[worker 0] ", styled where `stream` shows colours."""
    shows_colours = rich.console.Console(file=stream).is_terminal
    console = rich.console.Console(file=io.StringIO(), force_terminal=shows_colours)
    console.print(rich.text.Text(f"[{process}]", style=style), end=" ", soft_wrap=True)
    return console.file.getvalue()
