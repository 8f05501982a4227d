"""The command tf_gc-launch."""

import os
import signal
import sys
import textwrap
from collections.abc import Sequence

from absl import flags

from tf_gc import network_namespaces
from tf_gc.launch.supervision import launch

_USAGE = """\
usage: tf_gc-launch [flags] script.py [arguments of the script]
       tf_gc-launch [flags] -m package.module [arguments of the module]
       tf_gc-launch [flags] probe

Runs one program as a cluster of processes on this machine, with TF_CONFIG set for
tf.distribute. Everything after the program's name is passed on to it untouched.

Without --ps, every worker runs the program. With --ps, the workers and the parameter servers
run tf_gc.server, and the program runs once, as the chief.

probe measures the links between the workers, and prints a table of their latencies and bandwidths.
On several machines, run python -m tf_gc.adaptive.probe on each, with its TF_CONFIG.

flags:
{flags}

Ctrl-C is forwarded to all processes that run the program; pressed twice, it kills them. When one
of them fails, the others have --grace seconds to notice and to say so, then they are stopped;
with --max_restarts, all workers start again then, and go on from what the program has saved.
Servers are stopped when the chief has ended. A worker that ends before is started again, and when
it ended too often, training goes on without it. When no worker is left, or a parameter server is
lost, the chief has --grace seconds, too.

exit code: 0 when every process that runs the program returned 0, the last time; else that of the
first that failed, or 128 plus the number of the signal that ended it; 128 plus the number of the
signal that stopped the launch; 2 for wrong flags; 1 when the network cannot be set up.

examples:
  tf_gc-launch --workers 2 train.py
  tf_gc-launch --workers 2 --ps 1 train.py
  sudo tf_gc-launch --workers 4 --bandwidth 100mbit train.py --epochs 3
  sudo tf_gc-launch --workers 4 --bandwidth 100mbit probe
"""


def _define_flags() -> flags.FlagValues:
    """Returns the launcher's flags, apart from absl's global ones, which are the program's."""
    values = flags.FlagValues()
    values.set_gnu_getopt(False)  # what follows the program's name is not ours
    flags.DEFINE_integer(
        "workers", 1, "Number of worker processes.", lower_bound=1, flag_values=values
    )
    flags.DEFINE_integer(
        "ps",
        0,
        "Number of parameter servers. With one or more, the program runs once, as the chief.",
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
    flags.register_validator("bandwidth", _check_bandwidth, flag_values=values)
    return values


def _check_bandwidth(bandwidth: str | None) -> bool:
    try:
        return bandwidth is None or network_namespaces.bits_per_second(bandwidth) > 0
    except ValueError as error:
        raise flags.ValidationError(str(error)) from error


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
    return _USAGE.format(flags="\n".join(entries))


def _command(program: Sequence[str], is_module: bool, ps: int) -> list[str]:
    """Returns the command of one process.

    Raises:
      flags.Error: there is no program, or not this one.
    """
    if not program:
        raise flags.Error("no program given")
    if is_module:
        return [sys.executable, "-u", "-m", *program]
    if not os.path.exists(program[0]):
        if program[0] == "probe" and ps == 0:
            return [sys.executable, "-u", "-m", "tf_gc.adaptive.probe", *program[1:]]
        if program[0] == "probe":
            raise flags.Error("probe measures the links between workers: leave out --ps")
        raise flags.Error(f"no such file: {program[0]}")
    return [sys.executable, "-u", *program]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line `argv`, by default that of this process; returns the exit code."""
    values = _define_flags()
    try:
        program = values(list(argv or sys.argv))[1:]
        if values.help:
            print(_usage(values), end="")
            return 0
        command = _command(program, values.module, values.ps)
    except flags.Error as error:
        print(f"tf_gc-launch: {error}\nTry tf_gc-launch --help.", file=sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # a terminal need not know every character
    try:
        return launch(
            command,
            workers=values.workers,
            ps=values.ps,
            bandwidth=values.bandwidth,
            grace=values.grace,
            max_restarts=values.max_restarts,
            log_dir=values.log_dir,
        )
    except network_namespaces.NetworkNamespaceError as error:
        print(f"tf_gc-launch: --bandwidth: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
