"""Trains `digits` and `bytes_lm` on parameter servers; writes the tables of docs/.

    sudo python examples/evaluate_servers.py  # all of it: about two hours on two cores
    python examples/evaluate_servers.py --programs digits --settings none,3lc --seeds 0
    python examples/evaluate_servers.py --report_only # from the trainings that are there

With TensorFlow's strategy and with tf_gc's, asynchronous and synchronous, with each number of
servers: always the same number of updates. Each is a cluster of its own; its report goes to a file
under --out, and is used again for the same flags and links. Seconds an update are measured on
loopback in the whole training with the first seed and, with root, in short ones on links of
--bandwidth.
"""

import pathlib
from typing import NamedTuple

import evaluations
import rich.console
import trainings
from absl import app, flags

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(evaluations)
flags.DEFINE_integer("workers", 3, "Worker processes of each training.", lower_bound=1)
flags.DEFINE_multi_integer("servers", [1, 2], "Number of parameter servers.", lower_bound=1)
flags.DEFINE_list("settings", None, "Names of SETTINGS in this file; default: all.")
flags.DEFINE_list("seeds", ["0", "1", "2"], "Trainings with each setting.")
flags.register_validator("seeds", bool, "one or more")
flags.DEFINE_multi_enum(
    "measure", ["accuracy", "bandwidth"], ["accuracy", "bandwidth"], "What to measure."
)
flags.DEFINE_string("out", "results/evaluate_servers", "Directory for the trainings' reports.")


class Setting(NamedTuple):
    """One row of the tables, for a number of servers."""

    name: str
    title: str
    compressor: str
    synchronous: bool = False

    @property
    def measures(self) -> tuple[str, ...]:
        """What is measured: the short trainings on links would end before `start_step`."""
        return ("accuracy",) if "start_step" in self.compressor else ("accuracy", "bandwidth")


_COMPRESSORS = (
    ("float32", "float32", "Uncompressed()"),
    ("3lc", "3LC", "ThreeLC()"),
    ("thc", "THC, nearest", "THC(p=0.0078125, rounding='nearest')"),
    ("int8", "8-bit integers", "Int8()"),
)
SETTINGS = (
    Setting("none", "TensorFlow", "none"),
    *(Setting(name, title, compressor) for name, title, compressor in _COMPRESSORS),
    Setting("3lc-start", "3LC, start_step = 80", "ThreeLC(start_step=80)"),
    *(
        Setting(f"{name}-synchronous", f"{title}, synchronous", compressor, synchronous=True)
        for name, title, compressor in _COMPRESSORS
    ),
)

# steps_per_epoch are updates.
ACCURACY_FLAGS = {
    "digits": ("--epochs=12", "--steps_per_epoch=44"),
    "bytes_lm": ("--batch_size=4", "--epochs=6", "--steps_per_epoch=80"),
}
evaluations.allow_programs(ACCURACY_FLAGS)
TIMING_FLAGS = {
    "digits": ("--epochs=2", "--steps_per_epoch=12"),
    "bytes_lm": ("--batch_size=4", "--epochs=2", "--steps_per_epoch=12"),
}


def trainings_of(
    program: str, setting: Setting, servers: int, measure: str
) -> list[trainings.Training]:
    """Returns those that make one figure of the table: one for each seed."""
    flags_of = ACCURACY_FLAGS if measure == "accuracy" else TIMING_FLAGS
    mode = ("--synchronous",) if setting.synchronous else ()
    return [
        trainings.Training(
            program,
            f"{program}, {setting.title}, {servers} servers, {measure}, seed {seed}",
            pathlib.Path(FLAGS.out, program, f"{setting.name}-{servers}-{measure}-{seed}.json"),
            setting.compressor,
            (*flags_of[program], f"--seed={seed}", *mode),
            FLAGS.workers,
            servers=servers,
            bandwidth=FLAGS.bandwidth if measure == "bandwidth" else None,
        )
        for seed in (FLAGS.seeds if measure == "accuracy" else FLAGS.seeds[:1])
    ]


def headings(program: str) -> list[str]:
    return [
        program,
        "servers",
        evaluations.METRICS[program].unit,
        "bits pushed",
        "pulled",
        "updates",
        "ms an update, loopback",
        f"ms an update, {FLAGS.bandwidth}",
    ]


def rows(program: str) -> list[list[str]]:
    """Returns a line for every setting that has been trained."""
    lines = []
    for servers in FLAGS.servers:
        for setting in SETTINGS:
            finals = trainings.reports(trainings_of(program, setting, servers, "accuracy"))
            if not finals:
                continue
            on_links = trainings.reports(trainings_of(program, setting, servers, "bandwidth"))
            lines.append(
                [
                    setting.title,
                    str(servers),
                    evaluations.METRICS[program].mean(finals),
                    trainings.mean(
                        [trainings.bits_per_value(report, "_pushed") for report in finals], "{:.2f}"
                    ),
                    trainings.mean(
                        [trainings.bits_per_value(report, "_pulled") for report in finals], "{:.2f}"
                    ),
                    trainings.mean([r["epochs"][-1]["updates"] for r in finals], "{:.0f}"),
                    *(
                        trainings.mean([1000 * r["seconds_per_update"] for r in timed], "{:.0f}")
                        for timed in (finals[:1], on_links)
                    ),
                ]
            )
    return lines


def wanted_trainings() -> list[trainings.Training]:
    return [
        training
        for measure in FLAGS.measure
        for program in FLAGS.programs
        for servers in FLAGS.servers
        for setting in evaluations.selected("settings", FLAGS.settings, SETTINGS)
        if measure in setting.measures
        for training in trainings_of(program, setting, servers, measure)
    ]


def report(console: rich.console.Console) -> None:
    """Prints the tables, and writes them."""
    pages = pathlib.Path(FLAGS.docs, "parameter_server")
    pages.mkdir(parents=True, exist_ok=True)
    for program in FLAGS.programs:
        evaluations.write_table(headings(program), rows(program), pages / f"{program}.md", console)
    console.print(f"Written: tables in {pages}")


def main(argv):
    return evaluations.run(argv, wanted_trainings, report)


if __name__ == "__main__":
    app.run(main)
