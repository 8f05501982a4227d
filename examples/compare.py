"""Trains `digits` uncompressed and with 3LC on the same slow network, and compares them.

    sudo python examples/compare.py
    python examples/compare.py --seeds 0,1,2 --bandwidth 10mbit

Every run is a cluster of its own, started as tf_gc-launch does. Without root, the workers share
the loopback interface, which hides most of what compression is for.
"""

import json
import os
import pathlib
import shlex
import statistics
import sys
import tempfile
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import rich.console
import rich.markup
import rich.progress
import rich.table
import trainings
from absl import app, flags

from tf_gc import network_namespaces

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(trainings)
flags.DEFINE_integer("workers", 4, "Processes of each run.", lower_bound=2)
flags.DEFINE_integer("epochs", 8, "Passes over the data in each run.", lower_bound=1)
flags.DEFINE_list("seeds", ["0"], "Comma-separated; several give means and ranges.")
flags.DEFINE_string("out", "results", "Directory for train.json and train.png.")
flags.register_validator("seeds", bool, "one or more")


class Run(NamedTuple):
    """One row of the table."""

    title: str
    compressor: str
    colour: str  # of Okabe and Ito's palette, which colour-blind people can tell apart
    line: str


RUNS = (
    Run("uncompressed", "none", "#000000", "-"),
    Run("3LC", "ThreeLC()", "#0072B2", "--"),
    Run("3LC (s=1.75)", "ThreeLC(sparsity_multiplier=1.75)", "#009E73", ":"),
)


def train(run: Run, seed: str, on_links: bool, on_epoch) -> dict:
    """Returns the report of one run; calls `on_epoch` with the number of each epoch done."""
    with tempfile.TemporaryDirectory() as directory:
        training = trainings.Training(
            "digits",
            f"{run.title}, seed {seed}",
            pathlib.Path(directory, "report.json"),
            run.compressor,
            (f"--epochs={FLAGS.epochs}", f"--seed={seed}"),
            FLAGS.workers,
            bandwidth=FLAGS.bandwidth if on_links else None,
        )
        training.run(on_epoch)
        return training.report()


def train_all(console: rich.console.Console, on_links: bool) -> dict[str, list[dict]]:
    """Returns the reports of every run, one for each seed."""
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.TextColumn("epoch {task.completed:.0f}/{task.total:.0f}"),
        rich.progress.TimeElapsedColumn(),
    )
    reports = {run.title: [] for run in RUNS}
    with rich.progress.Progress(*columns, console=console) as progress:
        jobs = [
            (run, seed, progress.add_task(_title(run, seed), total=FLAGS.epochs, start=False))
            for seed in FLAGS.seeds
            for run in RUNS
        ]
        for run, seed, task in jobs:
            progress.start_task(task)
            reports[run.title].append(
                train(run, seed, on_links, lambda n, task=task: progress.update(task, completed=n))
            )
            progress.stop_task(task)
    return reports


def _title(run, seed):
    return run.title if len(FLAGS.seeds) == 1 else f"{run.title}, seed {seed}"


def table(reports: dict[str, list[dict]]) -> rich.table.Table:
    """Returns a row for each run: means over the seeds, with the range where there are several.

    Bytes are what one worker sends: counted, but for the uncompressed run, where they are those
    of a ring all-reduce. Trainings of too few steps have no seconds.
    """
    result = rich.table.Table()
    result.add_column("run", no_wrap=True)
    for heading in ("accuracy", "s a step", "kB a step", "bits a value", "ratio", "speed-up"):
        result.add_column(heading, justify="right")
    baseline = _mean(reports[RUNS[0].title], _seconds)
    for title, of_run in reports.items():
        seconds = _mean(of_run, _seconds)
        result.add_row(
            title,
            _mean_and_range(of_run, _accuracy, "{:.1f}") + " %",
            _mean_and_range(of_run, _seconds, "{:.3f}"),
            f"{_mean(of_run, trainings.kilobytes_per_step):.1f}",
            f"{_mean(of_run, trainings.bits_per_value):.2f}",
            f"{_mean(of_run, lambda report: report['traffic']['ratio']):.1f}",
            "-" if seconds is None else f"{baseline / seconds:.1f}",
        )
    return result


def _accuracy(report):
    return 100 * report["final"]["accuracy"]


def _seconds(report):
    return report["seconds_per_step"]


def _mean(reports, value):
    """Returns the mean, or None where a report has no value."""
    values = [value(report) for report in reports]
    return None if None in values else statistics.fmean(values)


def _mean_and_range(reports, value, template):
    mean = _mean(reports, value)
    if mean is None:
        return "-"
    text = template.format(mean)
    if len(reports) == 1:
        return text
    low, high = min(map(value, reports)), max(map(value, reports))
    return f"{text} ({template.format(low)} to {template.format(high)})"


def plot(reports: dict[str, list[dict]], network: str, path: pathlib.Path) -> None:
    """Draws loss and accuracy against time; a line for each seed."""
    figure, (loss, accuracy) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for run in RUNS:
        for number, report in enumerate(reports[run.title]):
            seconds = [epoch["seconds"] for epoch in report["epochs"]]
            style = {
                "color": run.colour,
                "linestyle": run.line,
                "marker": ".",
                "label": run.title if number == 0 else None,
            }
            loss.plot(seconds, [epoch["loss"] for epoch in report["epochs"]], **style)
            accuracy.plot(seconds, [100 * epoch["accuracy"] for epoch in report["epochs"]], **style)
    loss.set(ylabel="training loss", yscale="log")
    accuracy.set(ylabel="test accuracy (%)")
    for axes in (loss, accuracy):
        axes.set(xlabel="seconds of training, without tracing and evaluation", xscale="log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3, which="both")
        axes.legend()
    figure.suptitle(f"digits, {FLAGS.workers} workers, {network}")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    console = rich.console.Console()
    out = pathlib.Path(FLAGS.out)
    try:  # before all the training
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise app.UsageError(f"--out: nothing can be written to {out}: {error.strerror}") from error
    problem = network_namespaces.why_unavailable()
    bandwidth = None if problem else FLAGS.bandwidth
    network = f"{bandwidth} links" if bandwidth else "loopback"
    if problem:
        advice = ""
        if os.geteuid() != 0:
            command = shlex.join(["sudo", os.path.relpath(sys.executable), *sys.argv])
            advice = f" To see links of {FLAGS.bandwidth}: {command}"
        console.print(
            f"No slow links here ({problem}): all workers share the loopback interface.{advice}",
            soft_wrap=True,
            highlight=False,
        )
    console.print(f"digits on {FLAGS.workers} workers, {network}, {FLAGS.epochs} epochs")
    try:
        reports = train_all(console, on_links=problem is None)
    except (trainings.TrainingFailedError, network_namespaces.NetworkNamespaceError) as error:
        console.print(rich.markup.escape(str(error)), soft_wrap=True, highlight=False)
        return 1
    results = {"workers": FLAGS.workers, "bandwidth": bandwidth, "runs": reports}
    (out / "train.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    console.print(table(reports))
    plot(reports, network, out / "train.png")
    console.print(f"Written: {out / 'train.json'} and {out / 'train.png'}")
    return 0


if __name__ == "__main__":
    app.run(main)
