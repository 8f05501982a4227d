"""Takes many steps with every system, and watches what the processes need.

    make soak                                       # 20,000 steps of each: minutes each
    python tests/soak.py --steps 1000 --systems THC

Writes a table, of the processes of each system together: their resident memory, threads and open
files after a warm-up and at the end. Ends with an error if one of them has grown.
"""

import pathlib
import sys
from typing import NamedTuple

_ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "tests")]  # as a program, too

import psutil  # noqa: E402
import rich.console  # noqa: E402
import rich.progress  # noqa: E402
import server_clusters  # noqa: E402
import soak_programs as programs  # noqa: E402
from absl import app, flags  # noqa: E402

import tf_gc  # noqa: E402
from tf_gc.testing.cluster import Cluster  # noqa: E402

FLAGS = flags.FLAGS
WORKERS = 3
# Memory may grow by so much, of one process: an allocator's caches are filled by and by. A leak of
# one gradient for each step would be 40 times as much in 1000 steps.
MOST_GROWTH = 8 << 20
# Of one process: pools begin a thread where all are busy, which happens late once in a while.
MOST_THREADS = 2
MOST_FILES = 1  # of one process: a call of `server_watch`
_CALLS = 20  # of a run, each of which takes a part of the steps


class Usage(NamedTuple):
    """What the processes of a cluster use, together."""

    memory: int  # resident, in bytes
    threads: int
    files: int


class Run(NamedTuple):
    """What a system needed after the warm-up, and at the end."""

    warm: Usage
    end: Usage

    def grown(self):
        """Returns in what a run has grown that should not, a list of words."""
        limits = {
            "memory": WORKERS * MOST_GROWTH,
            "threads": WORKERS * MOST_THREADS,
            "files": WORKERS * MOST_FILES,
        }
        return [
            name
            for name, limit in limits.items()
            if getattr(self.end, name) - getattr(self.warm, name) > limit
        ]


def usage(pids):
    """Returns what processes use now."""
    memory = threads = files = 0
    for pid in pids:
        process = psutil.Process(pid)
        with process.oneshot():
            memory += process.memory_info().rss
            threads += process.num_threads()
            files += process.num_fds()
    return Usage(memory, threads, files)


def workers(compressor):
    """Returns a cluster, and a function of it that takes steps."""
    cluster = Cluster(WORKERS)
    return cluster, lambda steps: cluster.run(programs.workers, compressor, steps)


def servers(compressor, synchronous):
    """The same with a parameter server."""
    cluster = server_clusters.ServerCluster(WORKERS)
    return cluster, lambda steps: cluster.run(programs.chief, compressor, synchronous, steps)


SYSTEMS = {
    "3LC": lambda: workers(tf_gc.ThreeLC()),
    "THC": lambda: workers(tf_gc.THC()),
    "Marsit": lambda: workers(tf_gc.Marsit()),
    "AR-Topk": lambda: workers(tf_gc.ARTopK(0.01)),
    "ScaleCom": lambda: workers(tf_gc.ScaleCom(100)),
    "3LC, servers": lambda: servers(tf_gc.ThreeLC(), synchronous=False),
    "THC, servers": lambda: servers(tf_gc.THC(), synchronous=False),
    "3LC, servers, synchronous": lambda: servers(tf_gc.ThreeLC(), synchronous=True),
    "THC, servers, synchronous": lambda: servers(tf_gc.THC(), synchronous=True),
}


def soak(system, steps, warm_up, progress=lambda steps: None):
    """Returns the `Run` of a system.

    Args:
      system: a name in `SYSTEMS`.
      steps: how many to take.
      warm_up: after how many of them things should grow no more.
      progress: is called with a number of steps that were taken.
    """
    cluster, take = SYSTEMS[system]()
    with cluster:
        take(warm_up)
        progress(warm_up)
        warm = usage(cluster.pids.values())
        for taken in range(warm_up, steps, (steps - warm_up) // _CALLS):
            part = min((steps - warm_up) // _CALLS, steps - taken)
            take(part)
            progress(part)
        return Run(warm, usage(cluster.pids.values()))


def table(runs, steps, warm_up):
    """Returns the lines of a Markdown table."""
    lines = [
        f"| {steps:,} steps, 3 workers | MB after {warm_up:,} | at the end | threads | files |",
        "|---|---:|---:|---:|---:|",
    ]
    for system, (warm, end) in runs.items():
        lines.append(
            f"| {system} | {warm.memory / 1e6:.0f} | {end.memory / 1e6:.0f} "
            f"| {warm.threads}, {end.threads} | {warm.files}, {end.files} |"
        )
    return lines


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"what is {argv[1]!r}?")
    unknown = set(FLAGS.systems or ()) - set(SYSTEMS)
    if unknown:
        raise app.UsageError(f"--systems: no {', '.join(sorted(unknown))}")
    systems = FLAGS.systems or list(SYSTEMS)
    warm_up = FLAGS.steps // 20
    runs = {}
    console = rich.console.Console()
    with rich.progress.Progress(
        *rich.progress.Progress.get_default_columns(),
        rich.progress.TimeElapsedColumn(),
        console=console,
    ) as progress:
        for system in systems:
            task = progress.add_task(system, total=FLAGS.steps)
            runs[system] = soak(
                system, FLAGS.steps, warm_up, lambda steps, task=task: progress.advance(task, steps)
            )
    lines = table(runs, FLAGS.steps, warm_up)
    path = pathlib.Path(FLAGS.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    console.print(*lines, f"Written: {path}", sep="\n")
    grown = {system: run.grown() for system, run in runs.items() if run.grown()}
    for system, names in grown.items():
        console.print(f"{system}: {', '.join(names)} should not have grown")
    return 1 if grown else 0


if __name__ == "__main__":
    flags.DEFINE_integer("steps", 20000, "Of each system.", lower_bound=100)
    flags.DEFINE_list("systems", None, "Names of SYSTEMS in this file; default: all.")
    flags.DEFINE_string("out", "docs/reliability/soak.md", "The table's file.")
    app.run(main)
