"""Trains `digits` and `bytes_lm` with every compressor; writes the tables and figures of docs/.

    sudo python examples/evaluate.py          # all of it: about two hours on two cores
    python examples/evaluate.py --programs digits --systems thc,marsit --seeds 0
    python examples/evaluate.py --report_only # from the runs that are there

Every run is a cluster of its own. Its report goes to a file under --out, and a run whose file is
there is not done again. Accuracy comes from whole trainings on the loopback interface; seconds a
step from short ones, on loopback and, with root, on links of --bandwidth.
"""

import collections
import json
import pathlib
import statistics
import sys
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import rich.console
import rich.progress
import rich.table
from absl import app, flags

from tf_gc import launch, network_namespaces

FLAGS = flags.FLAGS
flags.DEFINE_integer("workers", 4, "Processes of each run.", lower_bound=2)
flags.DEFINE_string("bandwidth", "100mbit", "Limit of each worker's link, where time is measured.")
flags.DEFINE_list("programs", ["digits", "bytes_lm"], "What to train.")
flags.DEFINE_list("systems", None, "Names or pages of SYSTEMS in this file; default: all.")
flags.DEFINE_list("seeds", ["0", "1", "2"], "Of the five systems; others use the first one.")
flags.DEFINE_list("measure", ["accuracy", "loopback", "bandwidth"], "What to measure.")
flags.DEFINE_bool("report_only", False, "Train nothing.")
flags.DEFINE_string("out", "results/evaluate", "Directory for the reports of the runs.")
flags.DEFINE_string("docs", "docs", "Directory for the tables and figures; systems/ within it.")

_HERE = pathlib.Path(__file__).parent
_LAST_LINES = 60


class Program(NamedTuple):
    """An example, and how it is run here."""

    name: str
    metric: str
    unit: str
    scale: float
    accuracy_flags: tuple[str, ...]
    timing_flags: tuple[str, ...]


class System(NamedTuple):
    """One row of the tables."""

    name: str
    title: str
    compressor: str
    page: str | None = None  # of docs/systems, for the five and their variants
    variant: bool = False


PROGRAMS = {
    program.name: program
    for program in (
        Program(
            "digits",
            "accuracy",
            "test accuracy (%)",
            100,
            ("--epochs=20",),
            ("--epochs=2", "--steps_per_epoch=15"),
        ),
        Program(
            "bytes_lm",
            "bits_per_byte",
            "bits a byte",
            1,
            ("--batch_size=8", "--epochs=5", "--steps_per_epoch=32"),
            ("--batch_size=8", "--epochs=2", "--steps_per_epoch=12"),
        ),
    )
}

SYSTEMS = (
    System("none", "uncompressed", "none", "all"),
    System("3lc", "3LC, s = 1", "ThreeLC()", "three_lc"),
    System("3lc-1.75", "3LC, s = 1.75", "ThreeLC(sparsity_multiplier=1.75)", "three_lc"),
    System("thc", "THC", "THC()", "thc"),
    System(
        "uniform-thc-ring", "Uniform THC, ring", "UniformTHC(topology='ring')", "thc", variant=True
    ),
    System("marsit", "Marsit", "Marsit()", "marsit"),
    System(
        "marsit-torus",
        "Marsit, 2x2 torus",
        "Marsit(topology='torus', rows=2)",
        "marsit",
        variant=True,
    ),
    System("ar-topk", "AR-Topk, staleness", "ARTopK()", "ar_top_k"),
    System(
        "ar-topk-variance",
        "AR-Topk, variance",
        "ARTopK(selection='variance')",
        "ar_top_k",
        variant=True,
    ),
    System("scalecom", "ScaleCom", "ScaleCom()", "scale_com"),
    System("topk", "top-k", "TopK()"),
    System("lwtopk", "top-k, per variable", "TopK(per_variable=True)"),
    System("float16", "float16", "Float16()"),
    System("bfloat16", "bfloat16", "BFloat16()"),
    System("int8", "8-bit integers", "Int8()"),
    System("stochastic-ternary", "stochastic ternary", "StochasticTernary()"),
    System("terngrad", "TernGrad", "TernGrad()"),
    System("one-bit", "1-bit, two scales", "OneBit()"),
    System("sampled-topk-25", "sampled top-k, 25 %", "SampledTopK(ratio=0.25)"),
    System("sampled-topk-5", "sampled top-k, 5 %", "SampledTopK(ratio=0.05)"),
    System("local-steps", "2 local steps", "LocalSteps()"),
    System("qsgd", "QSGD", "QSGD()"),
    System("signsgd", "signSGD, majority vote", "SignSGD()"),
    System("ef-signsgd", "EF-signSGD", "EFSignSGD()"),
    System("ssdm", "SSDM", "SSDM()"),
    System("cascading-ssdm", "cascading SSDM", "CascadingSSDM()"),
    System("dgc", "DGC, 1 %, without momentum", "DGC(ratio=0.01, momentum=0)"),
    System("random-k", "random-k, 1 %", "RandomK()"),
    System("mstopk", "MSTopk, 1 %", "MSTopK()"),
    System("powersgd", "PowerSGD, rank 2", "PowerSGD()"),
)


class RunFailedError(RuntimeError):
    """A run did not end well; the message holds its last lines."""


class Run(NamedTuple):
    """One training."""

    program: Program
    system: System
    measure: str  # "accuracy", "loopback" or "bandwidth"
    seed: str

    @property
    def path(self) -> pathlib.Path:
        name = f"{self.system.name}-{self.measure}-{self.seed}.json"
        return pathlib.Path(FLAGS.out, self.program.name, name)

    def report(self) -> dict | None:
        """Returns what was measured, or None if it has not been."""
        if not self.path.exists():
            return None
        report = json.loads(self.path.read_text(encoding="utf-8"))
        return report if report["compressor"] == self.system.compressor else None


def selected_systems() -> list[System]:
    if FLAGS.systems is None:
        return list(SYSTEMS)
    unknown = set(FLAGS.systems) - {name for s in SYSTEMS for name in (s.name, s.page)}
    if unknown:
        raise app.UsageError(f"--systems: no {', '.join(sorted(unknown))}")
    return [s for s in SYSTEMS if {s.name, s.page} & set(FLAGS.systems)]


def runs(program: Program, system: System, measure: str) -> list[Run]:
    """Returns the runs that make one figure of the table: one for each seed."""
    several = measure == "accuracy" and system.page and not system.variant
    seeds = FLAGS.seeds if several else FLAGS.seeds[:1]
    return [Run(program, system, measure, seed) for seed in seeds]


def train(run: Run) -> None:
    """Runs a cluster, which writes the run's report.

    Raises:
      RunFailedError: it failed.
    """
    last_lines = collections.deque(maxlen=_LAST_LINES)
    extra = run.program.accuracy_flags if run.measure == "accuracy" else run.program.timing_flags
    command = [
        *(sys.executable, "-u", str(_HERE / f"{run.program.name}.py")),
        *(f"--compressor={run.system.compressor}", f"--seed={run.seed}", f"--json={run.path}"),
        *extra,
    ]
    code = launch.launch(
        command,
        workers=FLAGS.workers,
        bandwidth=FLAGS.bandwidth if run.measure == "bandwidth" else None,
        on_line=lambda line: last_lines.append(f"{line.process}: {line.text}"),
    )
    if code:
        raise RunFailedError(f"{run}: exit code {code}\n" + "\n".join(last_lines))


def train_all(console: rich.console.Console) -> bool:
    """Does all runs that are missing; returns whether none failed."""
    measures = list(FLAGS.measure)
    problem = network_namespaces.why_unavailable()
    if problem and "bandwidth" in measures:
        console.print(f"Nothing is measured on links of {FLAGS.bandwidth}: {problem}.")
        measures.remove("bandwidth")
    missing = [
        run
        for measure in measures
        for name in FLAGS.programs
        for system in selected_systems()
        for run in runs(PROGRAMS[name], system, measure)
        if run.report() is None
    ]
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
        for run in missing:
            description = f"{run.program.name}, {run.system.title}, {run.measure}, seed {run.seed}"
            progress.update(task, description=description)
            try:
                train(run)
            except RunFailedError as error:
                failed = True
                progress.console.print(str(error), markup=False, highlight=False)
            progress.advance(task)
    return not failed


class Row(NamedTuple):
    """A line of the table, as text."""

    title: str
    metric: str
    bits_up: str
    bits_down: str
    kilobytes: str
    loopback: str
    bandwidth: str


def row(program: Program, system: System) -> Row | None:
    """Returns a system's line, or None where no training has been done."""
    finals = _reports(program, system, "accuracy")
    if not finals:
        return None
    return Row(
        system.title,
        _mean_and_all([program.scale * r["final"][program.metric] for r in finals], program),
        _mean([_bits(r, "up") for r in finals], "{:.2f}"),
        _mean([_bits(r, "down") for r in finals], "{:.2f}"),
        _mean([_kilobytes_per_step(r) for r in finals], "{:.0f}"),
        *(
            _mean([r["seconds_per_step"] for r in _reports(program, system, measure)], "{:.3f}")
            for measure in ("loopback", "bandwidth")
        ),
    )


def _reports(program, system, measure):
    reports = [run.report() for run in runs(program, system, measure)]
    return [report for report in reports if report is not None]


def _kilobytes_per_step(report):
    last = report["epochs"][-1]
    return last["bytes_sent"] / last["steps"] / 1000


def _bits(report, direction):
    return (
        32 if report["compressor"] == "none" else report["traffic"][f"bits_per_value_{direction}"]
    )


def _mean(values, template):
    return template.format(statistics.fmean(values)) if values else "-"


def _mean_and_all(values, program):
    template = "{:.1f}" if program.scale == 100 else "{:.3f}"
    text = _mean(values, template)
    if len(values) == 1:
        return text
    return f"{text} ({', '.join(template.format(v) for v in values)})"


def headings(program: Program) -> list[str]:
    network = f"s a step, {FLAGS.bandwidth}"
    return [
        program.name,
        program.unit,
        "bits up",
        "down",
        "kB a step",
        "s a step, loopback",
        network,
    ]


def table(program: Program) -> rich.table.Table:
    """Returns the table for the terminal."""
    result = rich.table.Table()
    for index, heading in enumerate(headings(program)):
        result.add_column(heading, justify="left" if index == 0 else "right", no_wrap=index == 0)
    for line in _rows(program):
        result.add_row(*line)
    return result


def markdown(program: Program) -> str:
    """Returns the same for a page."""
    lines = [headings(program), ["---"] + ["---:"] * (len(headings(program)) - 1)]
    lines += [list(line) for line in _rows(program)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _rows(program):
    lines = (row(program, system) for system in SYSTEMS)
    return [line for line in lines if line is not None]


def plot(program: Program, page: str, path: pathlib.Path) -> None:
    """Draws a page's systems, and uncompressed training: metric against bytes sent."""
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    colours = iter(("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7"))
    of_page = []  # values that the axis must hold
    for system in SYSTEMS:
        reports = _reports(program, system, "accuracy")
        if not reports:
            continue
        shown = system.page in (page, "all")
        style = {"color": next(colours) if shown else "#DDDDDD", "zorder": 2 if shown else 1}
        for number, report in enumerate(reports if shown else reports[:1]):
            epochs = report["epochs"]
            values = [program.scale * epoch[program.metric] for epoch in epochs]
            of_page += values if shown else []
            axes.plot(
                [epoch["bytes_sent"] / 1e6 for epoch in epochs],
                values,
                label=system.title if shown and number == 0 else None,
                marker="." if shown else None,
                **style,
            )
    axes.plot([], [], color="#DDDDDD", label="other compressors")
    axes.set(xscale="log", xlabel="megabytes that a worker has sent", ylabel=program.unit)
    if of_page:
        margin = 0.05 * (max(of_page) - min(of_page))
        axes.set_ylim(min(of_page) - margin, max(of_page) + margin)
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.suptitle(f"{program.name}, {FLAGS.workers} workers: a point for each epoch")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def report(console: rich.console.Console) -> None:
    """Prints the tables, and writes them and the figures."""
    systems = pathlib.Path(FLAGS.docs, "systems")
    systems.mkdir(parents=True, exist_ok=True)
    pages = sorted({system.page for system in SYSTEMS if system.page not in (None, "all")})
    for name in FLAGS.programs:
        program = PROGRAMS[name]
        console.print(table(program))
        (systems / f"{name}.md").write_text(markdown(program), encoding="utf-8")
        for page in pages:
            plot(program, page, systems / f"{page}_{name}.png")
    console.print(f"Written: tables and figures in {systems}")


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument: {argv[1]}")
    console = rich.console.Console(width=None if sys.stdout.isatty() else 140)
    succeeded = FLAGS.report_only or train_all(console)
    report(console)
    return 0 if succeeded else 1


if __name__ == "__main__":
    app.run(main)
