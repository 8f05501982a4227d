"""Trains `digits` and `bytes_lm` with every compressor; writes the tables and figures of docs/.

    sudo python examples/evaluate.py          # all of it: about two hours on two cores
    python examples/evaluate.py --programs digits --systems thc,marsit --seeds 0
    python examples/evaluate.py --report_only # from the runs that are there

Every run is a cluster of its own. Its report goes to a file under --out, and is used again for the
same flags and links. Accuracy comes from whole trainings on the loopback interface; seconds a step
from short ones, on loopback and, with root, on links of --bandwidth.
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
flags.DEFINE_list("systems", None, "Names or pages of SYSTEMS in this file; default: all.")
flags.DEFINE_list("seeds", ["0", "1", "2"], "Of the five systems; others use the first one.")
flags.register_validator("seeds", bool, "one or more")
_MEASURES = ["accuracy", "loopback", "bandwidth"]
flags.DEFINE_multi_enum("measure", _MEASURES, _MEASURES, "What to measure.")
flags.DEFINE_string("out", "results/evaluate", "Directory for the reports of the trainings.")


class System(NamedTuple):
    """One row of the tables."""

    name: str
    title: str
    compressor: str
    page: str | None = None  # of docs/systems, for the five and their variants
    variant: bool = False


# Flags of whole trainings, and of those that are only timed.
ACCURACY_FLAGS = {
    "digits": ("--epochs=20",),
    "bytes_lm": ("--batch_size=8", "--epochs=5", "--steps_per_epoch=32"),
}
evaluations.allow_programs(ACCURACY_FLAGS)
TIMING_FLAGS = {
    "digits": ("--epochs=2", "--steps_per_epoch=15"),
    "bytes_lm": ("--batch_size=8", "--epochs=2", "--steps_per_epoch=12"),
}

SYSTEMS = (
    System("none", "uncompressed", "none", "all"),
    System("3lc", "3LC", "ThreeLC()", "three_lc"),
    System("3lc-1", "3LC, s = 1", "ThreeLC(sparsity_multiplier=1.0)", "three_lc"),
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


def selected_systems() -> list[System]:
    if FLAGS.systems is None:
        return list(SYSTEMS)
    unknown = set(FLAGS.systems) - {name for s in SYSTEMS for name in (s.name, s.page)}
    if unknown:
        raise app.UsageError(f"--systems: no {', '.join(sorted(unknown))}")
    return [s for s in SYSTEMS if {s.name, s.page} & set(FLAGS.systems)]


def trainings_of(program: str, system: System, measure: str) -> list[trainings.Training]:
    """Returns those that make one figure of the table: one for each seed."""
    several = measure == "accuracy" and system.page and not system.variant
    flags_of = ACCURACY_FLAGS if measure == "accuracy" else TIMING_FLAGS
    return [
        trainings.Training(
            program,
            f"{program}, {system.title}, {measure}, seed {seed}",
            pathlib.Path(FLAGS.out, program, f"{system.name}-{measure}-{seed}.json"),
            system.compressor,
            (*flags_of[program], f"--seed={seed}"),
            FLAGS.workers,
            bandwidth=FLAGS.bandwidth if measure == "bandwidth" else None,
        )
        for seed in (FLAGS.seeds if several else FLAGS.seeds[:1])
    ]


def _reports(program, system, measure):
    return trainings.reports(trainings_of(program, system, measure))


def headings(program: str) -> list[str]:
    return [
        program,
        evaluations.METRICS[program].unit,
        "bits up",
        "down",
        "kB a step",
        "s a step, loopback",
        f"s a step, {FLAGS.bandwidth}",
    ]


def rows(program: str) -> list[list[str]]:
    """Returns a line for every system that has been trained."""
    lines = []
    for system in SYSTEMS:
        finals = _reports(program, system, "accuracy")
        if not finals:
            continue
        timings = (_reports(program, system, measure) for measure in ("loopback", "bandwidth"))
        lines.append(
            [
                system.title,
                evaluations.METRICS[program].mean(finals),
                trainings.mean([trainings.bits_per_value(r, "_up") for r in finals], "{:.2f}"),
                trainings.mean([trainings.bits_per_value(r, "_down") for r in finals], "{:.2f}"),
                trainings.mean([trainings.kilobytes_per_step(r) for r in finals], "{:.0f}"),
                *(
                    trainings.mean([r["seconds_per_step"] for r in timed], "{:.3f}")
                    for timed in timings
                ),
            ]
        )
    return lines


def plot(program: str, page: str, path: pathlib.Path) -> None:
    """Draws a page's systems, and uncompressed training: metric against bytes sent."""
    metric = evaluations.METRICS[program]
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
            values = [metric.scale * epoch[metric.name] for epoch in epochs]
            of_page += values if shown else []
            axes.plot(
                [epoch["bytes_sent"] / 1e6 for epoch in epochs],
                values,
                label=system.title if shown and number == 0 else None,
                marker="." if shown else None,
                **style,
            )
    axes.plot([], [], color="#DDDDDD", label="other compressors")
    axes.set(xscale="log", xlabel="megabytes that a worker has sent", ylabel=metric.unit)
    if of_page:
        margin = 0.05 * (max(of_page) - min(of_page))
        axes.set_ylim(min(of_page) - margin, max(of_page) + margin)
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.suptitle(f"{program}, {FLAGS.workers} workers: a point for each epoch")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def report(console: rich.console.Console) -> None:
    """Prints the tables, and writes them and the figures."""
    systems = pathlib.Path(FLAGS.docs, "systems")
    systems.mkdir(parents=True, exist_ok=True)
    pages = sorted({system.page for system in SYSTEMS if system.page not in (None, "all")})
    for program in FLAGS.programs:
        lines = rows(program)
        evaluations.write_table(headings(program), lines, systems / f"{program}.md", console)
        for page in pages if lines else ():
            plot(program, page, systems / f"{page}_{program}.png")
    console.print(f"Written: tables and figures in {systems}")


def wanted_trainings() -> list[trainings.Training]:
    return [
        training
        for measure in FLAGS.measure
        for program in FLAGS.programs
        for system in selected_systems()
        for training in trainings_of(program, system, measure)
    ]


def main(argv):
    return evaluations.run(argv, wanted_trainings, report)


if __name__ == "__main__":
    app.run(main)
