"""Trains with Adam and with SGD, and every system that docs/adam.md speaks of; writes its tables.

    sudo python examples/evaluate_adam.py                        # all of it: many hours
    python examples/evaluate_adam.py --tasks bytes_lm-160 --systems none,3lc --seeds 0
    python examples/evaluate_adam.py --report_only               # from the trainings that are there

Every training is a cluster of its own. Its report goes to a file under --out, and is used again
for the same flags and links. The learning rates are the best of uncompressed training with Keras's
own optimizer, and the same for all systems. On links, with root, the same trainings tell how long
a system takes to the loss that uncompressed training ends with.
"""

import pathlib
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")

import evaluations
import matplotlib.pyplot as plt
import rich.console
import trainings
from absl import app, flags

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(evaluations)
flags.DEFINE_integer("workers", 4, "Processes of each training.", lower_bound=2)
flags.DEFINE_list("tasks", None, "Names of TASKS in this file; default: all.")
flags.DEFINE_list("systems", None, "Names of SYSTEMS in this file; default: all.")
flags.DEFINE_list("seeds", ["0", "1", "2"], "Of the trainings on the loopback interface.")
flags.register_validator("seeds", bool, "one or more")
flags.DEFINE_multi_enum(
    "measure", ["quality", "time"], ["quality", "time"], "On loopback, or on links."
)
flags.DEFINE_string("out", "results/evaluate_adam", "Directory for the reports of the trainings.")
FLAGS.set_default("programs", ["digits", "fashion_mnist", "bytes_lm"])
evaluations.allow_programs(evaluations.METRICS)


class System(NamedTuple):
    """One row of the tables."""

    name: str
    title: str
    # START stands for a tenth of the steps, in which the learning rate rises, FIFTHS for two
    # fifths, HALF for a half, LATE for all but the last third, which is cut to a multiple of 50,
    # and BETA for the optimizer's momentum.
    compressor: str
    line: str = "-"


class Task(NamedTuple):
    """What is trained: an example with these flags."""

    name: str
    program: str
    title: str
    epochs: int
    steps_per_epoch: int
    flags: tuple[str, ...]
    # Where quality is measured against time, too.
    links: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        return self.epochs * self.steps_per_epoch


_LM = ("--batch_size=8", "--learning_rate=0.004")
_MANUALS = ("--text=manuals", "--layers=7", "--width=256", "--batch_size=4")
_MNIST = ("--batch_size=64",)
_ADAM = ("--optimizer=adam", "--learning_rate=0.001")
TASKS = (
    Task("bytes_lm-160", "bytes_lm", "160 steps", 8, 20, _LM, ("10mbit",)),
    Task("bytes_lm-480", "bytes_lm", "480 steps", 8, 60, _LM, ("100mbit",)),
    Task("bytes_lm-2000", "bytes_lm", "2000 steps", 5, 400, _LM),
    Task(
        "manuals",
        "bytes_lm",
        "5.7 million parameters, 400 steps",
        *(5, 80),
        (*_MANUALS, "--learning_rate=0.002"),
    ),
    Task("digits-sgd", "digits", "digits, SGD", 20, 11, ()),
    Task("digits-adam", "digits", "digits, Adam", 20, 11, _ADAM),
    Task("fashion_mnist-sgd", "fashion_mnist", "Fashion-MNIST, SGD", 4, 234, _MNIST),
    Task("fashion_mnist-adam", "fashion_mnist", "Fashion-MNIST, Adam", 4, 234, (*_MNIST, *_ADAM)),
)

SYSTEMS = (
    System("none", "uncompressed", "none"),
    System("3lc", "3LC", "ThreeLC()"),
    System("3lc-8", "3LC, 8 units", "ThreeLC(unit_multiplier=8.0)"),
    System("ar_top_k-1", "AR-Topk, 1 %", "ARTopK(0.01, overshoot=1.0, start_step=START)", "--"),
    System("ar_top_k", "AR-Topk, 5 %", "ARTopK(0.05, overshoot=1.0, start_step=START)", "--"),
    System("ar_top_k-20", "AR-Topk, 20 %", "ARTopK(0.2, overshoot=1.0, start_step=START)", "--"),
    System(
        "scale_com-1",
        "ScaleCom, 1 of 100",
        "ScaleCom(100, overshoot=1.0, strided=True, start_step=START)",
        "--",
    ),
    System(
        "scale_com",
        "ScaleCom, 1 of 20",
        "ScaleCom(20, overshoot=1.0, strided=True, start_step=START)",
        "--",
    ),
    System(
        "scale_com-5",
        "ScaleCom, 1 of 5",
        "ScaleCom(5, overshoot=1.0, strided=True, start_step=START)",
        "--",
    ),
    System(
        "marsit",
        "Marsit",
        "Marsit(units='second_moment', mean_multiplier=1.4, prediction=BETA, start_step=START)",
        ":",
    ),
    System(
        "ef_sign",
        "EF-signSGD",
        "EFSignSGD(units='second_moment', prediction=BETA, start_step=START)",
        ":",
    ),
    System("thc", "THC", "THC()", "-."),
    System(
        "thc-nearest",
        "THC, p = 1 / 128",
        "THC(p=0.0078125, rounding='nearest', units='second_moment')",
        "-.",
    ),
    System(
        "diloco-none",
        "DiLoCo, 50 inner steps, uncompressed",
        "DiLoCo(50, OuterSGD(1.0, 0.5), start_step=START)",
        "-.",
    ),
    System(
        "diloco",
        "DiLoCo, 50 inner steps, 3LC",
        "DiLoCo(50, OuterSGD(1.0, 0.5), ThreeLC(units='gradient'), start_step=START)",
        "-.",
    ),
    System(
        "diloco-half",
        "DiLoCo, 50 inner steps, 3LC, after a half with 3LC",
        "DiLoCo(50, OuterSGD(1.0, 0.5), ThreeLC(units='gradient', mean_multiplier=1.5),"
        " start_step=HALF, start_compression=ThreeLC())",
        "-.",
    ),
    System(
        "diloco-late",
        "DiLoCo, 50 inner steps, 3LC, after two thirds with 3LC",
        "DiLoCo(50, OuterSGD(1.3, 0.0), ThreeLC(units='gradient', mean_multiplier=1.5),"
        " start_step=LATE, start_compression=ThreeLC())",
        "-.",
    ),
    System(
        "diloco-4",
        "DiLoCo, 4 inner steps, 3LC, after two fifths with 3LC",
        "DiLoCo(4, OuterSGD(1.3, 0.0), ThreeLC(units='gradient', mean_multiplier=1.5),"
        " start_step=FIFTHS, start_compression=ThreeLC())",
        "-.",
    ),
)


def tasks() -> list[Task]:
    """Returns the tasks that the flags ask for."""
    named = evaluations.selected("tasks", FLAGS.tasks, TASKS)
    return [task for task in named if task.program in FLAGS.programs]


def trainings_of(
    task: Task, system: System, bandwidth: str | None = None
) -> list[trainings.Training]:
    """Returns one for each seed; on links, one."""
    where = bandwidth or "loopback"
    return [
        trainings.Training(
            task.program,
            f"{task.name}, {system.title}, {where}, seed {seed}",
            pathlib.Path(FLAGS.out, task.name, f"{system.name}-{where}-{seed}.json"),
            system.compressor.replace("START", str(task.steps // 10))
            .replace("FIFTHS", str(2 * task.steps // 5))
            .replace("HALF", str(task.steps // 2))
            .replace("LATE", str(task.steps - task.steps // 150 * 50))
            .replace("BETA", "0.8" if task.name.endswith("-sgd") else "0.9"),
            (
                f"--epochs={task.epochs}",
                f"--steps_per_epoch={task.steps_per_epoch}",
                *task.flags,
                f"--seed={seed}",
            ),
            FLAGS.workers,
            bandwidth=bandwidth,
        )
        for seed in (FLAGS.seeds[:1] if bandwidth else FLAGS.seeds)
    ]


def wanted_trainings() -> list[trainings.Training]:
    systems = evaluations.selected("systems", FLAGS.systems, SYSTEMS)
    wanted = []
    if "quality" in FLAGS.measure:
        wanted += [(task, system, None) for task in tasks() for system in systems]
    if "time" in FLAGS.measure:
        wanted += [
            (task, system, link) for task in tasks() for link in task.links for system in systems
        ]
    return [training for arguments in wanted for training in trainings_of(*arguments)]


def bits_per_value(report: dict, direction: str) -> float:
    """Returns the bits of one value in one step, those included in which nothing is exchanged."""
    bits = trainings.bits_per_value(report, direction)
    if report["compressor"] == "none":
        return bits
    workers, traffic = report["workers"], report["traffic"]
    values = 2 * (workers - 1) / workers * report["parameters"] * report["epochs"][-1]["steps"]
    return bits * traffic["values_sent"] / values


def quality_rows(task: Task) -> list[list[str]]:
    """Returns for every system that was trained what it ends with, and what it sent.

    The change is against uncompressed training with the same seeds.
    """
    metric = evaluations.METRICS[task.program]
    lines, exact = [], {}
    for system in SYSTEMS:
        reports = trainings.reports(trainings_of(task, system))
        if not reports:
            continue
        final = {report["seed"]: report["final"][metric.name] for report in reports}
        if system.compressor == "none":
            exact = final
        both = exact.keys() & final.keys()
        ratio = sum(final[seed] for seed in both) / (sum(exact[seed] for seed in both) or 1)
        lines.append(
            [
                system.title,
                metric.mean(reports),
                f"{100 * (ratio - 1):+.1f} %" if both else "-",
                trainings.mean([bits_per_value(r, "_up") for r in reports], "{:.2f}"),
                trainings.mean([bits_per_value(r, "_down") for r in reports], "{:.2f}"),
            ]
        )
    return lines


def time_rows(task: Task, link: str) -> list[list[str]]:
    """Returns for every system how long it takes to the end of uncompressed training."""
    metric = evaluations.METRICS[task.program].name
    lines, target, whole = [], None, None
    for system in SYSTEMS:
        for report in trainings.reports(trainings_of(task, system, link)):
            if system.compressor == "none":
                # What it ends with, to within what the table allows.
                target = 1.01 * report["epochs"][-1][metric]
                whole = evaluations.seconds_to(report, metric, target)
            seconds = None if target is None else evaluations.seconds_to(report, metric, target)
            lines.append(
                [
                    system.title,
                    trainings.mean([report["seconds_per_step"]], "{:.3f}"),
                    "-" if seconds is None else f"{seconds:.0f}",
                    "-" if seconds is None else f"{whole / seconds:.1f}",
                ]
            )
    return lines


def plot(task: Task, link: str, path: pathlib.Path) -> None:
    """Draws the metric against the seconds of training on links."""
    metric = evaluations.METRICS[task.program]
    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    for system in SYSTEMS:
        for report in trainings.reports(trainings_of(task, system, link)):
            axes.plot(
                [epoch["seconds"] for epoch in report["epochs"]],
                [metric.scale * epoch[metric.name] for epoch in report["epochs"]],
                system.line,
                label=system.title,
                color="#000000" if system.name == "none" else None,
            )
    axes.set(xscale="log", xlabel="seconds of training", ylabel=metric.unit)
    axes.grid(alpha=0.3, which="both")
    figure.legend(loc="outside lower center", ncols=2)
    figure.suptitle(f"{task.name}, {FLAGS.workers} workers on links of {link}")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def report(console: rich.console.Console) -> None:
    """Prints the tables, and writes them and the figures."""
    directory = pathlib.Path(FLAGS.docs, "adam")
    directory.mkdir(parents=True, exist_ok=True)
    for task in tasks():
        unit = evaluations.METRICS[task.program].unit
        lines = quality_rows(task)
        if lines:
            headings = [task.title, unit, "change", "bits up", "down"]
            evaluations.write_table(headings, lines, directory / f"{task.name}.md", console)
        for link in task.links:
            lines = time_rows(task, link)
            if lines:
                headings = [f"{task.title}, {link}", "s a step", "s to the end", "times sooner"]
                name = f"{task.name}-{link}"
                evaluations.write_table(headings, lines, directory / f"{name}.md", console)
                plot(task, link, directory / f"{name}.png")
    console.print(f"Written: tables and figures in {directory}")


def main(argv):
    return evaluations.run(argv, wanted_trainings, report)


if __name__ == "__main__":
    app.run(main)
