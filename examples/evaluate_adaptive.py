"""Trains on links that change, with every fixed choice and Auto, and writes tables.

They are for docs/adaptive_evaluation.md.

    sudo python examples/evaluate_adaptive.py                    # all of it: many hours
    sudo python examples/evaluate_adaptive.py --measure changes --tasks digits --patterns c1 \\
      --systems none,3lc --seeds 0
    python examples/evaluate_adaptive.py --report_only           # from what is there

`changes`: C1 and C2 of Tyagi and Swany (figure 6), with bandwidths a hundredth of theirs. Links
change at the ends of epochs, so that all systems have the same steps of the same links.
`networks`: the time of a step, by network and number of parameters, of step_benchmark.py, in which
all systems take turns. With 50 million parameters each takes about 3 GB, and all at once: name few.

Every run is a cluster of its own. Its report goes to a file under --out, and is used again for the
same flags and links. A training has come to its end when it is as good as uncompressed training
at its last step, but for one point of accuracy, or 1 % of the bits a byte.
"""

import pathlib
from typing import NamedTuple

import evaluations
import rich.console
import trainings
from absl import app, flags

from tf_gc import adaptive

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(evaluations)
FLAGS.set_default("programs", ["digits", "fashion_mnist", "bytes_lm"])
flags.DEFINE_integer("workers", 4, "Processes of each training.", lower_bound=2)
flags.DEFINE_list("tasks", None, "Names of TASKS in this file; default: all.")
flags.DEFINE_list("patterns", None, "Names of PATTERNS in this file; default: all.")
flags.DEFINE_list("systems", None, "Names of SYSTEMS in this file; default: all.")
flags.DEFINE_list("seeds", ["0", "1", "2"], "Of the trainings.")
flags.register_validator("seeds", bool, "one or more")
flags.DEFINE_list(
    "networks", ["10mbit", "100mbit", "1gbit", "10gbit", "loopback"], "Where steps are timed."
)
flags.DEFINE_list("parameters", ["0.1", "1", "10"], "Of the models, in millions.")
flags.DEFINE_multi_enum(
    "measure", ["changes", "networks"], ["changes", "networks"], "What to measure."
)
flags.DEFINE_string("out", "results/evaluate_adaptive", "Directory for the reports.")
evaluations.allow_programs(evaluations.METRICS)


class System(NamedTuple):
    """One row of the tables."""

    name: str
    title: str
    compressor: str  # START stands for a tenth of the steps, in which the learning rate rises


class Task(NamedTuple):
    """What is trained: an example with these flags."""

    name: str
    program: str
    title: str
    epochs: int
    steps_per_epoch: int
    flags: tuple[str, ...] = ()


class Pattern(NamedTuple):
    """How the links change: from which of 50 epochs on, bandwidth and latency."""

    name: str
    title: str
    phases: tuple[trainings.Phase, ...]

    def scaled(self, epochs: int) -> tuple[trainings.Phase, ...]:
        """Returns the phases of a training of so many epochs."""
        return tuple(
            phase._replace(epoch=1 + round((phase.epoch - 1) * epochs / _PATTERN_EPOCHS))
            for phase in self.phases
        )


_PATTERN_EPOCHS = 50
_HIGH, _MODERATE, _LOW = "250mbit", "50mbit", "10mbit"  # the paper's: 25 and 1 Gbit/s
_NEAR, _BETWEEN, _FAR = "1ms", "10ms", "50ms"
PATTERNS = (
    Pattern(
        "c1",
        "C1",
        (
            trainings.Phase(1, _HIGH, _NEAR),
            trainings.Phase(13, _LOW, _NEAR),
            trainings.Phase(25, _LOW, _FAR),
            trainings.Phase(37, _HIGH, _FAR),
        ),
    ),
    Pattern(
        "c2",
        "C2",
        (
            trainings.Phase(1, _HIGH, _NEAR),
            trainings.Phase(13, _MODERATE, _BETWEEN),
            trainings.Phase(21, _LOW, _FAR),
            trainings.Phase(29, _MODERATE, _BETWEEN),
            trainings.Phase(37, _HIGH, _NEAR),
        ),
    ),
)
TASKS = (
    Task("digits", "digits", "digits", 25, 11),
    Task("digits-long", "digits", "digits, 100 epochs", 100, 11),
    Task("fashion_mnist", "fashion_mnist", "Fashion-MNIST", 16, 58, ("--batch_size=64",)),
    Task("bytes_lm", "bytes_lm", "bytes_lm", 16, 30, ("--batch_size=8", "--learning_rate=0.004")),
)
_SPARSE = "overshoot=1.0, start_step=START"
SYSTEMS = (
    System("none", "uncompressed", "none"),
    System("3lc", "3LC", "ThreeLC()"),
    System("thc", "THC", "THC()"),
    System("marsit", "Marsit", "Marsit(units='second_moment', start_step=START)"),
    *(
        System(f"ring-{ratio:g}", f"AR-Topk, ring, {ratio:g}", f"ARTopK({ratio:g}, {_SPARSE})")
        for ratio in adaptive.CANDIDATES
    ),
    System(
        "sharded-0.011",
        "AR-Topk, sharded, 0.011",
        f"ARTopK(0.011, topology='sharded', {_SPARSE})",
    ),
    System("tree-0.011", "AR-Topk, tree, 0.011", f"ARTopK(0.011, topology='tree', {_SPARSE})"),
    System("scalecom", "ScaleCom, 0.011", "ScaleCom(91, start_step=START)"),
    System("top_k", "top-k, all-gather, 0.011", "TopK(0.011, start_step=START)"),
    System("auto", "auto", "Auto()"),
)


def _systems():
    return evaluations.selected("systems", FLAGS.systems, SYSTEMS)


def tasks() -> list[Task]:
    named = evaluations.selected("tasks", FLAGS.tasks, TASKS)
    return [task for task in named if task.program in FLAGS.programs]


def patterns() -> list[Pattern]:
    return evaluations.selected("patterns", FLAGS.patterns, PATTERNS)


def trainings_of(task: Task, pattern: Pattern, system: System) -> list[trainings.Training]:
    """Returns one for each seed."""
    start_step = str(task.epochs * task.steps_per_epoch // 10)
    return [
        trainings.Training(
            task.program,
            f"{task.title}, {pattern.title}, {system.title}, seed {seed}",
            pathlib.Path(FLAGS.out, task.name, f"{system.name}-{pattern.name}-{seed}.json"),
            system.compressor.replace("START", start_step),
            (
                f"--epochs={task.epochs}",
                f"--steps_per_epoch={task.steps_per_epoch}",
                *task.flags,
                f"--seed={seed}",
                "--timeout_seconds=600",  # heartbeats wait behind gradients where links are slow
            ),
            FLAGS.workers,
            phases=pattern.scaled(task.epochs),
        )
        for seed in FLAGS.seeds
    ]


def benchmark_of(network: str, millions: str) -> trainings.Training:
    """Returns the benchmark of one model, in which all systems take turns."""
    names = "+".join(system.name for system in _systems())
    first, *others = (system.compressor.replace("START", "0") for system in _systems())
    return trainings.Training(
        "../benchmarks/step_benchmark",
        f"steps, {network}, {millions} million parameters",
        pathlib.Path(FLAGS.out, "steps", f"{network}-{millions}-{names}.json"),
        first,
        (f"--parameters={millions}", *(f"--compressor={other}" for other in others)),
        FLAGS.workers,
        bandwidth=None if network == "loopback" else network,
    )


def wanted_trainings() -> list[trainings.Training]:
    wanted = []
    if "networks" in FLAGS.measure:
        models = FLAGS.parameters
        wanted += [benchmark_of(network, m) for network in FLAGS.networks for m in models]
    if "changes" in FLAGS.measure:
        wanted += [
            training
            for task in tasks()
            for pattern in patterns()
            for system in _systems()
            for training in trainings_of(task, pattern, system)
        ]
    return wanted


def phase_seconds(report: dict, phases: tuple[trainings.Phase, ...]) -> list[float]:
    """Returns the seconds of a step in each phase, of which the first has no first step."""
    ends = [(phase.epoch - 1) for phase in phases[1:]] + [len(report["epochs"])]
    seconds, steps, begin = [], 1, 0.0
    for end in ends:
        epoch = report["epochs"][end - 1]
        seconds.append((epoch["seconds"] - begin) / (epoch["steps"] - steps))
        begin, steps = epoch["seconds"], epoch["steps"]
    return seconds


def target_of(task: Task, reports: list[dict]) -> float:
    """Returns what is as good as the mean of these trainings at their ends."""
    metric = evaluations.METRICS[task.program]
    final = sum(report["final"][metric.name] for report in reports) / len(reports)
    return final - 0.01 if metric.higher_is_better else 1.01 * final


def change_rows(task: Task, pattern: Pattern) -> list[list[str]]:
    """Returns for every system that was trained its quality and times, means over the seeds."""
    metric = evaluations.METRICS[task.program]
    phases = pattern.scaled(task.epochs)
    lines, target = [], None
    for system in SYSTEMS:
        reports = trainings.reports(trainings_of(task, pattern, system))
        if not reports:
            continue
        if system.compressor == "none":
            target = target_of(task, reports)
        reached = [
            None
            if target is None
            else evaluations.seconds_to(report, metric.name, target, metric.higher_is_better)
            for report in reports
        ]
        by_phase = zip(*(phase_seconds(report, phases) for report in reports), strict=True)
        lines.append(
            [
                system.title,
                # Seeds that do not get there have no time.
                "-" if None in reached else trainings.mean(reached, "{:.1f}"),
                trainings.mean([r["epochs"][-1]["seconds"] for r in reports], "{:.1f}"),
                metric.mean(reports),
                *(trainings.mean([1000 * s for s in phase], "{:.0f}") for phase in by_phase),
            ]
        )
    return lines


def network_rows(network: str) -> list[list[str]]:
    """Returns for every system the milliseconds of a step, by model."""
    reports = [benchmark_of(network, millions).report() for millions in FLAGS.parameters]
    if not any(reports):
        return []
    columns = [
        [f"{1000 * row['median_seconds']:.4g}" for row in report["models"][0]["figures"]]
        if report
        else ["-"] * len(_systems())
        for report in reports
    ]
    titles = [system.title for system in _systems()]
    return [list(row) for row in zip(titles, *columns, strict=True)]


def report(console: rich.console.Console) -> None:
    """Prints the tables, and writes them."""
    directory = pathlib.Path(FLAGS.docs, "adaptive")
    directory.mkdir(parents=True, exist_ok=True)
    for task in tasks():
        for pattern in patterns():
            lines = change_rows(task, pattern)
            headings = [
                f"{task.title}, {pattern.title}",
                "s to the end",
                "s in all",
                evaluations.METRICS[task.program].unit,
                *(f"{p.bandwidth}, {p.latency}: ms a step" for p in pattern.phases),
            ]
            if lines:
                path = directory / f"{task.name}-{pattern.name}.md"
                evaluations.write_table(headings, lines, path, console)
    for network in FLAGS.networks:
        lines = network_rows(network)
        if lines:
            headings = [f"{network}: ms a step", *(f"{m} M parameters" for m in FLAGS.parameters)]
            evaluations.write_table(headings, lines, directory / f"{network}.md", console)
    console.print(f"Written: tables in {directory}")


def main(argv):
    return evaluations.run(argv, wanted_trainings, report)


if __name__ == "__main__":
    app.run(main)
