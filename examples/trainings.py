"""Trains the examples, each in a cluster of its own, as tf_gc-launch does; reads their reports."""

import collections
import json
import pathlib
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from absl import flags

from tf_gc import launch
from tf_gc.launch.output import LAUNCHER

FLAGS = flags.FLAGS
flags.DEFINE_string(
    "bandwidth", "100mbit", "Limit of each worker's link in each direction, where time is measured."
)

_HERE = pathlib.Path(__file__).parent
_LAST_LINES = 60  # of all workers together
_END_OF_EPOCH = re.compile(r"epoch (\d+)/")


class TrainingFailedError(RuntimeError):
    """A training did not end well; the message holds its last lines."""


class Phase(NamedTuple):
    """Links from an epoch on."""

    epoch: int  # the first is 1
    bandwidth: str
    latency: str


class Training(NamedTuple):
    """One training of one example."""

    program: str
    title: str
    path: pathlib.Path  # of the report
    compressor: str
    flags: tuple[str, ...]
    workers: int
    servers: int = 0
    bandwidth: str | None = None  # of the links; None: the loopback interface
    phases: tuple[Phase, ...] = ()  # of links that change; the first is that of epoch 1

    @property
    def needs_links(self) -> bool:
        """Whether it runs in network namespaces."""
        return bool(self.bandwidth or self.phases)

    def report(self) -> dict | None:
        """Returns what was measured, or None if it has not been, or only in another way."""
        try:
            report = json.loads(self.path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # the latter: it was not written to its end
            return None
        return report if report.get("training") == self._settings else None

    @property
    def _settings(self) -> dict:
        """All that decides what is measured, as it is in a report."""
        settings = self._asdict()
        del settings["title"], settings["path"]
        return json.loads(json.dumps(settings))

    def run(self, on_epoch: Callable[[int], object] = lambda epoch: None) -> None:
        """Runs a cluster, which writes the report; adds to it what was run.

        Args:
          on_epoch: called with the number of each epoch done.

        Raises:
          TrainingFailedError: it failed.
          SystemExit: a signal asked to stop.
        """
        last_lines = collections.deque(maxlen=_LAST_LINES)
        networks = []
        is_stopped = False
        phases = {phase.epoch: phase for phase in self.phases}

        def begin_epoch(epoch):
            if phase := phases.get(epoch):
                networks[0].change(bandwidth=phase.bandwidth, latency=phase.latency)

        def keep(line):
            nonlocal is_stopped
            # An exit code does not say whether this process or a worker alone got a signal.
            is_stopped |= line.process == LAUNCHER and "it is forwarded" in line.text
            last_lines.append(f"{line.process}: {line.text}")
            if line.process == "worker 0" and (end := _END_OF_EPOCH.match(line.text)):
                begin_epoch(int(end[1]) + 1)
                on_epoch(int(end[1]))

        command = [
            *(sys.executable, "-u", str(_HERE / f"{self.program}.py")),
            *(f"--compressor={self.compressor}", f"--json={self.path}", *self.flags),
        ]
        code = launch.launch(
            command,
            workers=self.workers,
            ps=self.servers,
            bandwidth=self.phases[0].bandwidth if self.phases else self.bandwidth,
            latency=self.phases[0].latency if self.phases else None,
            on_line=keep,
            on_network=networks.append,
        )
        if is_stopped:
            sys.exit(code)
        if code:
            raise TrainingFailedError(f"{self.title}: exit code {code}\n" + "\n".join(last_lines))
        report = json.loads(self.path.read_text(encoding="utf-8"))
        report["training"] = self._settings
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        new.replace(self.path)


def reports(trainings: Iterable[Training]) -> list[dict]:
    """Returns the reports that there are."""
    found = (training.report() for training in trainings)
    return [report for report in found if report is not None]


def mean(values: Sequence[float | None], template: str) -> str:
    """Returns the mean of what was measured as text, or a dash where nothing was."""
    measured = [value for value in values if value is not None]
    return template.format(statistics.fmean(measured)) if measured else "-"


def bits_per_value(report: dict, direction: str = "") -> float:
    """Returns the bits of one value, as counted; without compression 32.

    Args:
      report: of a training.
      direction: "_up", "_down", "_pushed" or "_pulled"; by default those of all that was sent.
    """
    if report["compressor"] == "none":
        return 32
    return report["traffic"][f"bits_per_value{direction}"]


def kilobytes_per_step(report: dict) -> float:
    """Returns what a worker sends: counted or, uncompressed, as in a ring all-reduce."""
    last = report["epochs"][-1]
    return last["bytes_sent"] / last["steps"] / 1000
