"""What the evaluations share: trains the examples, once each, and lays out what was measured."""

import pathlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import rich.console
import rich.progress
import rich.table
import trainings
from absl import app, flags

from tf_gc import network_namespaces

FLAGS = flags.FLAGS
flags.DEFINE_list("programs", ["digits", "bytes_lm"], "What to train.")
flags.DEFINE_bool("report_only", False, "Train nothing.")
flags.DEFINE_string(
    "docs", "results/docs", "Directory for the tables and figures; those that are published: docs."
)
flags.adopt_module_key_flags(trainings)


class Metric(NamedTuple):
    """What an example reports of the model that it trained."""

    name: str
    unit: str
    scale: float
    template: str
    higher_is_better: bool = True

    def mean(self, reports: Sequence[dict]) -> str:
        """Returns the mean at the end of training, and behind it the value of each report."""
        values = [self.scale * report["final"][self.name] for report in reports]
        text = trainings.mean(values, self.template)
        if len(values) == 1:
            return text
        return f"{text} ({', '.join(self.template.format(value) for value in values)})"


METRICS = {
    "digits": Metric("accuracy", "test accuracy (%)", 100, "{:.1f}"),
    "fashion_mnist": Metric("accuracy", "test accuracy (%)", 100, "{:.2f}"),
    "bytes_lm": Metric("bits_per_byte", "bits a byte", 1, "{:.3f}", False),
}


def allow_programs(names: Iterable[str]) -> None:
    """Says which programs --programs may name."""
    flags.register_validator(
        "programs",
        lambda programs: bool(programs) and set(programs) <= set(names),
        f"one or more of {', '.join(names)}",
    )


def run(
    argv: Sequence[str],
    wanted: Callable[[], Iterable[trainings.Training]],
    write_report: Callable[[rich.console.Console], None],
) -> int:
    """Trains what has no report yet, and writes about all that there are; returns the exit code."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    console = rich.console.Console(width=None if sys.stdout.isatty() else 140)
    succeeded = FLAGS.report_only or _run_missing(wanted(), console)
    write_report(console)
    return 0 if succeeded else 1


def _run_missing(wanted: Iterable[trainings.Training], console: rich.console.Console) -> bool:
    """Runs the trainings that have no report; returns whether none failed."""
    missing = [training for training in wanted if training.report() is None]
    problem = network_namespaces.why_unavailable()
    if problem and any(training.needs_links for training in missing):
        console.print(f"Nothing is measured on limited links: {problem}.")
        missing = [training for training in missing if not training.needs_links]
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
            except trainings.TrainingFailedError as error:
                failed = True
                progress.console.print(str(error), markup=False, highlight=False)
            progress.advance(task)
    return not failed


def selected(flag: str, names: Sequence[str] | None, choices: Sequence) -> list:
    """Returns the choices of these names, in their own order; all without names.

    Raises:
      UsageError: a name, of what was given as --`flag`, is that of none.
    """
    known = [choice.name for choice in choices]
    unknown = set(names or ()) - set(known)
    if unknown:
        raise app.UsageError(f"--{flag}: no {', '.join(sorted(unknown))}; {', '.join(known)}")
    return [choice for choice in choices if names is None or choice.name in names]


def seconds_to(
    report: dict, metric: str, target: float, higher_is_better: bool = False
) -> float | None:
    """Returns the training time after which the metric is as good as `target`; None if never.

    Between the evaluations of two epochs the metric is taken to change evenly.
    """
    before = None
    for epoch in report["epochs"]:
        is_reached = epoch[metric] >= target if higher_is_better else epoch[metric] <= target
        if is_reached:
            if before is None:
                return epoch["seconds"]
            share = (before[metric] - target) / (before[metric] - epoch[metric])
            return before["seconds"] + share * (epoch["seconds"] - before["seconds"])
        before = epoch
    return None


def write_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    path: pathlib.Path,
    console: rich.console.Console,
) -> None:
    """Prints a table, and writes it to a page; the first column is text, the others are numbers.

    Without rows the page, if there is one, stays as it is.
    """
    if not rows:
        console.print(f"Nothing was measured for {path}, which is left as it is.")
        return
    table = rich.table.Table()
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index == 0 else "right", no_wrap=index == 0)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    lines = [headings, ["---"] + ["---:"] * (len(headings) - 1), *rows]
    path.write_text("".join(f"| {' | '.join(line)} |\n" for line in lines), encoding="utf-8")
