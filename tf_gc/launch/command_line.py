"""The command tf_gc-launch."""

import importlib
import math
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

from absl import flags

from tf_gc import network_namespaces
from tf_gc.launch.link_changes import LinkChange, read_link_changes
from tf_gc.launch.processes import LaunchError
from tf_gc.launch.supervision import launch

_USAGE = """\
usage: tf_gc-launch [flags] script.py [arguments of the script]
       tf_gc-launch [flags] -m package.module [arguments of the module]
{subcommands}

Runs one program as a cluster of processes, with TF_CONFIG set for tf.distribute: on this
machine, or with --hosts, by ssh, on others. Everything after the program's name is passed on to
it untouched.

Without --hosts, processes share this machine's cores: unless TF_NUM_INTRAOP_THREADS is set, it is
the number of cores divided by that of workers and parameter servers, but at least 1. Processes keep
freed memory for the next step (MALLOC_TOP_PAD_, MALLOC_MMAP_THRESHOLD_), unless MALLOC_... or
GLIBC_TUNABLES is set.

Without --ps, every worker runs the program. With --ps, the workers and the parameter servers
run tf_gc.server, and the program runs once, as the chief.

flags:
{flags}

--link_changes is a CSV file. Its first line names the columns, an empty field stands for no change,
or for all processes, and seconds count from the start of the processes:

  seconds,bandwidth,latency,process
  0,100mbit,1ms,
  60,10mbit,,
  90,,20ms,worker 1

Ctrl-C, SIGTERM and SIGHUP are forwarded to all processes that run the program; a second Ctrl-C, or
another signal a second later or more, kills them. When one of them fails, the others have --grace
seconds to notice and to say so, then they are stopped; with --max_restarts, all workers start again
then, and go on from what the program has saved. Servers are stopped when the chief has ended. A
worker that ends before is started again, and when it ended too often, training goes on without it.
When no worker is left, or a parameter server is lost, the chief has --grace seconds, too.

exit code: 0 when every process that runs the program returned 0, the last time; else that of the
first that failed, or 128 plus the number of the signal that ended it; 128 plus the number of the
signal that stopped the launch; 2 for wrong flags; 1 when the network cannot be set up,
or processes cannot be started.

examples:
  tf_gc-launch --workers 2 train.py
  tf_gc-launch --workers 2 --ps 1 train.py
  tf_gc-launch --hosts machine1,machine2 --port 2222 train.py
  tf_gc-launch --workers 4 --gpus_per_worker 2 train.py
  sudo "$(which tf_gc-launch)" --workers 4 --bandwidth 100mbit --latency 5ms train.py --epochs 3
  sudo "$(which tf_gc-launch)" --workers 4 --link_changes links.csv train.py --epochs 3
  sudo "$(which tf_gc-launch)" --workers 4 --bandwidth 100mbit probe
  tf_gc-launch --hosts machine1,machine2 probe
  tf_gc-launch report run.json
  tf_gc-launch versions

A script in the working directory that is called as a subcommand is run as ./probe, for instance.
"""


class _Subcommand(NamedTuple):
    """What stands in place of a program, and is a module of ours."""

    usage: str
    summary: str
    module: str
    # Whether all workers run it; else this process calls its main(argv), which returns the exit
    # code, with argv from the subcommand's name on.
    on_workers: bool


_SUBCOMMANDS = {
    "probe": _Subcommand(
        "[flags] probe [--timeout_seconds 60]",
        "measures the links between the workers, and prints their latencies and bandwidths",
        "tf_gc.adaptive.probe",
        on_workers=True,
    ),
    "report": _Subcommand(
        "report [--output run.png] run.json",
        "draws what a run did, from the file of tf_gc.Auto(record=...)",
        "tf_gc.launch.report",
        on_workers=False,
    ),
    "versions": _Subcommand(
        "versions",
        "prints what a bug report needs: versions, the machine, and what is in use of it",
        "tf_gc.versions",
        on_workers=False,
    ),
}


def _define_flags() -> flags.FlagValues:
    """Returns the launcher's flags, apart from absl's global ones, which are the program's."""
    values = flags.FlagValues()
    values.set_gnu_getopt(False)  # what follows the program's name is not ours
    flags.DEFINE_integer(
        "workers",
        None,
        "Number of worker processes. Default: the number of --hosts, or 1.",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "ps",
        0,
        "Number of parameter servers. With one or more, the program runs once, as the chief.",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_list(
        "hosts",
        None,
        "Machines to run the processes on, for instance a,b or me@10.0.0.1,me@10.0.0.2: process i "
        "of each kind on host i, modulo their number. Each must be reached by ssh without a "
        "question, find the others by these names, and have this working directory and this "
        "Python, with tf_gc, at the same paths. Default: all run on this machine.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "port",
        None,
        "With --hosts: the port of the first process of each host; others there have the next "
        "ones. Default: free ones between 20000 and 29999.",
        lower_bound=1,
        upper_bound=65535,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "gpus_per_worker",
        None,
        "How many GPUs each worker sees, and no other one does: in its CUDA_VISIBLE_DEVICES, of "
        "those that the launcher's own names, or else of all of the machine's. The other processes "
        "see none. Default: all processes see what the launcher does.",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_string(
        "bandwidth",
        None,
        "Limit of each process's link in each direction, for instance 10mbit, 100mbit or 1gbit. "
        "Every process gets a network namespace of its own; needs root, and ip and tc (Debian's "
        "package iproute2). Default: no limit, all on the loopback interface.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "latency",
        None,
        "How long each packet is on its way from one process to another, half of a round trip, for "
        "instance 500us or 5ms. Needs what --bandwidth needs, and /dev/net/tun. Default: no longer "
        "than it takes.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "link_changes",
        None,
        "File that says when bandwidth and latency change while the job runs, see below. What it "
        "does not say of second 0 is as --bandwidth and --latency have it.",
        flag_values=values,
    )
    flags.DEFINE_float(
        "grace",
        15.0,
        "Seconds that the others have to end by themselves when one process has failed.",
        lower_bound=0.0,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "max_restarts",
        None,
        "How many times a worker that has failed is started again, at the same address: with --ps "
        "that worker alone (default: 3; a parameter server never is), without it all workers "
        "together (default: 0).",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_string(
        "log_dir",
        None,
        "Directory for one file per process with all that it writes: worker-<index>.log, "
        "ps-<index>.log, chief.log.",
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "module",
        False,
        "Run the program as a module, as python -m does.",
        short_name="m",
        flag_values=values,
    )
    flags.DEFINE_boolean("help", False, "Show this text.", short_name="h", flag_values=values)
    flags.register_validator(
        "hosts",
        lambda hosts: hosts is None or (hosts and all(hosts)),
        "one of the names is empty",
        flag_values=values,
    )
    flags.register_validator(
        "grace", lambda grace: not math.isnan(grace), "is not a number", flag_values=values
    )
    for name, parse in (
        ("bandwidth", network_namespaces.bits_per_second),
        ("latency", network_namespaces.latency_seconds),
    ):
        flags.register_validator(name, _parses(parse), flag_values=values)
    return values


def _parses(parse: Callable[[str], object]) -> Callable[[str | None], bool]:
    """Returns a validator of texts that `parse` takes."""

    def check(text):
        try:
            if text is not None:
                parse(text)
        except ValueError as error:
            raise flags.ValidationError(str(error)) from error
        return True

    return check


def _usage(values: flags.FlagValues) -> str:
    entries = []
    for flag in {values[name].name: values[name] for name in values}.values():
        title = f"--{flag.name}" + (f", -{flag.short_name}" if flag.short_name else "")
        has_default = flag.default is not None and flag.default is not False
        default = f" Default: {flag.default}." if has_default else ""
        indent = " " * 6
        text = textwrap.fill(
            flag.help + default, 90, initial_indent=indent, subsequent_indent=indent
        )
        entries.append(f"  {title}\n{text}")
    subcommands = [
        f"       tf_gc-launch {subcommand.usage}\n           {subcommand.summary}"
        for subcommand in _SUBCOMMANDS.values()
    ]
    return _USAGE.format(flags="\n".join(entries), subcommands="\n".join(subcommands))


def _command(program: Sequence[str], is_module: bool, ps: int) -> list[str]:
    """Returns the command of one process.

    Raises:
      flags.Error: there is no program, or not this one.
    """
    if not program:
        raise flags.Error("no program given")
    if is_module:
        return [sys.executable, "-u", "-m", *program]
    if program[0] in _SUBCOMMANDS:
        if ps:
            raise flags.Error(f"{program[0]} measures the links between workers: leave out --ps")
        return [sys.executable, "-u", "-m", _SUBCOMMANDS[program[0]].module, *program[1:]]
    if not os.path.exists(program[0]):
        raise flags.Error(f"no such file: {program[0]}")
    return [sys.executable, "-u", *program]


def _refuse_flags(values: flags.FlagValues, subcommand: str) -> None:
    """Raises flags.Error where a flag is given that is of processes."""
    given = [f"--{name}" for name in values if values[name].present]
    if given:
        raise flags.Error(f"{subcommand} runs here alone: leave out {', '.join(given)}")


def _link_changes(path: str | None) -> Sequence[LinkChange]:
    """Reads the changes, once: the file may be a pipe.

    Raises:
      flags.Error: it cannot be read, or a line is wrong.
    """
    try:
        return read_link_changes(path) if path is not None else ()
    except (OSError, ValueError) as error:
        raise flags.Error(str(error)) from error


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line `argv`, by default that of this process; returns the exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # whoever started this has closed it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    values = _define_flags()
    try:
        program = values(list(argv or sys.argv))[1:]
        if values.help:
            print(_usage(values), end="")
            return 0
        subcommand = _SUBCOMMANDS.get(program[0]) if program and not values.module else None
        if subcommand and not subcommand.on_workers:
            _refuse_flags(values, program[0])
            return importlib.import_module(subcommand.module).main(program)
        if subcommand and {"-h", "--help"} & set(program):
            print(f"usage: tf_gc-launch {subcommand.usage}\n\n{subcommand.summary}")
            return 0
        command = _command(program, values.module, values.ps)
        link_changes = _link_changes(values.link_changes)
    except flags.Error as error:
        print(f"tf_gc-launch: {error}\nTry tf_gc-launch --help.", file=sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # a terminal need not know every character
    hosts = values.hosts or ()
    try:
        return launch(
            command,
            workers=values.workers or len(hosts) or 1,
            ps=values.ps,
            hosts=hosts,
            port=values.port,
            gpus_per_worker=values.gpus_per_worker,
            bandwidth=values.bandwidth,
            latency=values.latency,
            link_changes=link_changes,
            grace=values.grace,
            max_restarts=values.max_restarts,
            log_dir=values.log_dir,
        )
    except network_namespaces.NetworkNamespaceError as error:
        print(f"tf_gc-launch: limited links: {error}", file=sys.stderr)
        return 1
    except LaunchError as error:
        print(f"tf_gc-launch: {error}", file=sys.stderr)
        return 1
    except ValueError as error:  # too few GPUs, or a change of a process that does not exist
        print(f"tf_gc-launch: --{error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read the output has gone
        for stream in (sys.stdout, sys.stderr):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 128 + signal.SIGPIPE
