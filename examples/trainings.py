"""Trains the examples in clusters of their own, once each, and lays out what was measured."""

import collections
import json
import pathlib
import statistics
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import rich.console
import rich.progress
import rich.table
from absl import flags

from tf_gc import launch, network_namespaces

FLAGS = flags.FLAGS
flags.DEFINE_string("bandwidth", "100mbit", "Limit of each worker's link, where time is measured.")
flags.DEFINE_list("programs", ["digits", "bytes_lm"], "What to train.")
flags.DEFINE_bool("report_only", False, "Train nothing.")
flags.DEFINE_string("docs", "docs", "Directory for the tables and figures.")

_HERE = pathlib.Path(__file__).parent
_LAST_LINES = 60


class Metric(NamedTuple):
    """What an example reports of the model that it trained."""

    name: str
    unit: str
    scale: float
    template: str

    def mean(self, reports: Sequence[dict]) -> str:
        """Returns the mean at the end of training, and behind it the value of each report."""
        values = [self.scale * report["final"][self.name] for report in reports]
        text = mean(values, self.template)
        if len(values) == 1:
            return text
        return f"{text} ({', '.join(self.template.format(value) for value in values)})"


METRICS = {
    "digits": Metric("accuracy", "test accuracy (%)", 100, "{:.1f}"),
    "bytes_lm": Metric("bits_per_byte", "bits a byte", 1, "{:.3f}"),
}


flags.register_validator(
    "programs", lambda names: set(names) <= set(METRICS), f"one or more of {', '.join(METRICS)}"
)


class TrainingFailedError(RuntimeError):
    """A training did not end well; the message holds its last lines."""


class Training(NamedTuple):
    """One training of one example."""

    program: str
    title: str
    path: pathlib.Path  # of the report
    compressor: str
    flags: tuple[str, ...]
    workers: int
    servers: int = 0
    on_links: bool = False  # of --bandwidth; else on the loopback interface

    def report(self) -> dict | None:
        """Returns what was measured, or None if it has not been."""
        if not self.path.exists():
            return None
        report = json.loads(self.path.read_text(encoding="utf-8"))
        return report if report["compressor"] == self.compressor else None

    def run(self) -> None:
        """Runs a cluster, which writes the report.

        Raises:
          TrainingFailedError: it failed.
        """
        last_lines = collections.deque(maxlen=_LAST_LINES)
        command = [
            *(sys.executable, "-u", str(_HERE / f"{self.program}.py")),
            *(f"--compressor={self.compressor}", f"--json={self.path}", *self.flags),
        ]
        code = launch.launch(
            command,
            workers=self.workers,
            ps=self.servers,
            bandwidth=FLAGS.bandwidth if self.on_links else None,
            on_line=lambda line: last_lines.append(f"{line.process}: {line.text}"),
        )
        if code:
            raise TrainingFailedError(f"{self.title}: exit code {code}\n" + "\n".join(last_lines))


def run_missing(trainings: Iterable[Training], console: rich.console.Console) -> bool:
    """Runs the trainings that have no report; returns whether none failed."""
    missing = [training for training in trainings if training.report() is None]
    problem = network_namespaces.why_unavailable()
    if problem and any(training.on_links for training in missing):
        console.print(f"Nothing is measured on links of {FLAGS.bandwidth}: {problem}.")
        missing = [training for training in missing if not training.on_links]
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TimeRemainingColumn(),
    )
    failed = False
    with rich.progress.Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(missing))
        for training in missing:
            progress.update(task, description=training.title)
            try:
                training.run()
            except TrainingFailedError as error:
                failed = True
                progress.console.print(str(error), markup=False, highlight=False)
            progress.advance(task)
    return not failed


def reports(trainings: Iterable[Training]) -> list[dict]:
    """Returns the reports that there are."""
    found = (training.report() for training in trainings)
    return [report for report in found if report is not None]


def mean(values: Sequence[float], template: str) -> str:
    """Returns the mean as text, or a dash where nothing was measured."""
    return template.format(statistics.fmean(values)) if values else "-"


def write_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    path: pathlib.Path,
    console: rich.console.Console,
) -> None:
    """Prints a table, and writes it to a page; the first column is text, the others are numbers."""
    table = rich.table.Table()
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index == 0 else "right", no_wrap=index == 0)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    lines = [headings, ["---"] + ["---:"] * (len(headings) - 1), *rows]
    path.write_text("".join(f"| {' | '.join(line)} |\n" for line in lines), encoding="utf-8")
