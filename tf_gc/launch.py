"""Starts the processes of a cluster on this machine, as torchrun does for PyTorch.

    tf_gc-launch --workers 4 train.py --epochs 3
    tf_gc-launch --workers 4 --bandwidth 100mbit -m my_package.train --epochs 3
    tf_gc-launch --workers 4 --ps 1 train.py --epochs 3

Every process gets TF_CONFIG and is otherwise an ordinary run of the program, or with parameter
servers, of `tf_gc.server`: then the program runs once, as the chief. `launch` is the same for use
from Python. TensorFlow is not imported here, so starting costs nothing.
"""

import contextlib
import ctypes
import itertools
import json
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, MutableMapping, Sequence
from typing import BinaryIO, NamedTuple

import rich.console
import rich.text
from absl import flags

from tf_gc import network_namespaces

_USAGE = """\
usage: tf_gc-launch [flags] script.py [arguments of the script]
       tf_gc-launch [flags] -m package.module [arguments of the module]

Runs one program as a cluster of processes on this machine, with TF_CONFIG set for
tf.distribute. Everything after the program's name is passed on to it untouched.

Without --ps, every worker runs the program. With --ps, the workers and the parameter servers
run tf_gc.server, and the program runs once, as the chief.

flags:
{flags}

Ctrl-C is forwarded to all processes that run the program; pressed twice, it kills them. When one
of them fails, the others have --grace seconds to notice and to say so, then they are stopped.
Servers are stopped when the chief has ended. A worker that ends before is started again, and when
it ended too often, training goes on without it. When no worker is left, or a parameter server is
lost, the chief has --grace seconds, too.

exit code: 0 when every process that runs the program returned 0; else that of the first that
failed, or 128 plus the number of the signal that ended it; 128 plus the number of the signal that
stopped the launch; 2 for wrong flags; 1 when the network cannot be set up.

examples:
  tf_gc-launch --workers 2 train.py
  tf_gc-launch --workers 2 --ps 1 train.py
  sudo tf_gc-launch --workers 4 --bandwidth 100mbit train.py --epochs 3
"""

_LAUNCHER = "tf_gc-launch"
_SERVER = (sys.executable, "-u", "-m", "tf_gc.server")
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "red")
_PROXIES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")
# Below the ports that Linux lends to outgoing connections, one of which could otherwise take the
# port of a worker that is still starting.
_PORTS = range(20000, 30000)
_POLL_SECONDS = 0.1
_KILL_SECONDS = 10.0
_DRAIN_SECONDS = 2.0
# The chief should notice that a worker was lost before it meets another one at the same address.
_RESTART_SECONDS = 3.0
_PROGRESS_SECONDS = 1.0
_CHUNK = 1 << 16
_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)


class OutputLine(NamedTuple):
    """One line of output."""

    process: str  # "worker 0", "ps 0" or "chief"; "tf_gc-launch": the launcher's own words
    stream: str  # "stdout" or "stderr"
    text: str


def launch(
    command: Sequence[str],
    *,
    workers: int,
    ps: int = 0,
    bandwidth: str | None = None,
    grace: float = 15.0,
    max_restarts: int = 3,
    log_dir: str | None = None,
    on_line: Callable[[OutputLine], None] | None = None,
) -> int:
    """Runs `command` in the processes of a cluster, and waits for them.

    Without parameter servers, every worker runs it. With them, the workers and the parameter
    servers run `tf_gc.server`, and `command` is run once, as the chief; when it has ended, the
    servers are stopped. A worker that ends before is started again, and when it ended too often,
    training goes on without it.

    While it runs in the main thread, SIGINT, SIGTERM and SIGHUP are forwarded to the processes
    that run `command`.

    Args:
      command: program and arguments, the same for every process.
      workers: number of workers.
      ps: number of parameter servers.
      bandwidth: for instance "100mbit": gives each process a network namespace whose link has
        this limit in each direction. Needs root. None: all share the loopback interface.
      grace: seconds that the others have to end by themselves when one process has failed, and
        that the chief has when a parameter server, or the last worker, is lost.
      max_restarts: how many times each worker that has ended is started again, at the same
        address; only with parameter servers, which themselves are never started again.
      log_dir: directory for a file per process, `worker-<index>.log`, `ps-<index>.log` or
        `chief.log`, which holds exactly what the process wrote.
      on_line: called with each line instead of printing it.

    Returns:
      0 when every process that ran `command` returned 0; else the exit code of the first that
      failed, or 128 plus the number of the signal that ended it or that stopped the launch.

    Raises:
      ValueError: `workers`, `ps`, `max_restarts` or `bandwidth` is out of range.
      NetworkNamespaceError: the namespaces cannot be made; the message says what to do.
    """
    for name, value, least in (
        ("workers", workers, 1),
        ("ps", ps, 0),
        ("max_restarts", max_restarts, 0),
    ):
        if value < least:
            raise ValueError(f"{name} is {value}, must be at least {least}")
    tasks = _tasks(workers, ps)
    with contextlib.ExitStack() as stack:
        interrupts = stack.enter_context(_Interrupts())
        network = stack.enter_context(
            network_namespaces.NetworkNamespaces(len(tasks), bandwidth)
            if bandwidth
            else contextlib.nullcontext()
        )
        job = stack.enter_context(_Job(on_line or _Printer(tasks), grace))
        job.start(tasks, command, network, log_dir, max_restarts)
        return job.supervise(interrupts)


class _Task(NamedTuple):
    """A place in the cluster, in TF_CONFIG's words."""

    type: str
    index: int
    is_server: bool

    @property
    def name(self) -> str:
        return self.type if self.type == "chief" else f"{self.type} {self.index}"


def _tasks(workers: int, ps: int) -> list[_Task]:
    sizes = {"worker": workers, "ps": ps, "chief": 1} if ps else {"worker": workers}
    return [
        _Task(type_, index, is_server=ps > 0 and type_ != "chief")
        for type_, size in sizes.items()
        for index in range(size)
    ]


class _Interrupts:
    """Collects the signals that ask the launch to stop, instead of dying of them."""

    def __init__(self):
        self.received = []
        self.forwarded = False
        self._previous = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                # nohup: a launch that was told to ignore the terminal's end goes on doing so.
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *exc_info):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number, frame):
        del frame
        self.received.append(signal.Signals(number))


class _LineBuffer:
    """Cuts what a process writes into lines.

    A carriage return overwrites the line, as on a terminal, so of a progress bar only the last
    state is a line; while it grows, one state a second is shown.
    """

    _END = re.compile(rb"(\r*\n|\r+(?=[^\r\n]))")

    def __init__(self):
        self._pending = b""
        self._progress_shown = -_PROGRESS_SECONDS

    def feed(self, data: bytes) -> list[str]:
        """Returns the lines that `data` completes."""
        *complete, self._pending = self._END.split(self._pending + data)
        lines = [
            text
            for text, end in zip(complete[::2], complete[1::2], strict=False)
            if end.endswith(b"\n") or (text and self._progress_is_due())
        ]
        if len(self._pending) > _CHUNK:
            lines.append(self._take_pending())
        return [line.decode("utf-8", "replace") for line in lines]

    def flush(self) -> list[str]:
        """Returns the last line when it has no end."""
        rest = self._take_pending().rstrip(b"\r")
        return [rest.decode("utf-8", "replace")] if rest else []

    def _take_pending(self):
        pending, self._pending = self._pending, b""
        return pending

    def _progress_is_due(self):
        now = time.monotonic()
        due = now - self._progress_shown >= _PROGRESS_SECONDS
        if due:
            self._progress_shown = now
        return due


class _Printer:
    """Prints lines to the stream that they came from, behind a coloured name."""

    def __init__(self, tasks: Sequence[_Task]):
        self._streams = {"stdout": sys.stdout, "stderr": sys.stderr}
        styles = {task.name: colour for task, colour in zip(tasks, itertools.cycle(_COLOURS))}
        self._prefixes = {
            (process, name): _prefix(stream, process, style)
            for name, stream in self._streams.items()
            for process, style in {_LAUNCHER: "bold", **styles}.items()
        }

    def __call__(self, line: OutputLine) -> None:
        stream = self._streams[line.stream]
        stream.write(f"{self._prefixes[line.process, line.stream]}{line.text}\n")
        stream.flush()


def _prefix(stream, process: str, style: str) -> str:
    """Returns "[worker 0] ", styled where `stream` shows colours."""
    console = rich.console.Console(file=stream)
    with console.capture() as capture:
        console.print(rich.text.Text(f"[{process}]", style=style), end=" ", soft_wrap=True)
    return capture.get()


class _Process:
    """One process of the cluster, leader of a session and process group of its own."""

    def __init__(
        self,
        task: _Task,
        command: Sequence[str],
        environment: dict[str, str],
        log: BinaryIO | None,
        restarts: int,
    ):
        self.task = task
        self.log = log
        self.restarts = restarts  # how many times it may still be started again
        self.popen: subprocess.Popen | None = None
        self._command = command
        self._environment = environment

    def start(self) -> None:
        """Starts it for the first time, or again after `reap`."""
        self.popen = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_die_with_parent(os.getpid()),
        )

    def has_exited(self) -> bool:
        """Says so without reaping the process, which keeps its process id taken."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.popen.pid, options) is not None

    def signal(self, number: int) -> None:
        """Sends a signal to the process and to those that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)

    def reap(self) -> int:
        """Kills what is left of the process group and returns the exit code of its leader."""
        # Before the wait: while the leader is unreaped no other group can have this number.
        self.signal(signal.SIGKILL)
        return self.popen.wait()

    def describe_end(self) -> str:
        code = self.popen.returncode
        return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"

    def shell_exit_code(self) -> int:
        code = self.popen.returncode
        return code if code >= 0 else 128 - code


class _Job:
    """The processes of one launch and their output; no process survives it.

    Programs run what the user gave, and the job is done when they have ended. Servers, which only
    a cluster with parameter servers has, are there for the program of the chief.
    """

    def __init__(self, on_line: Callable[[OutputLine], None], grace: float):
        self._on_line = on_line
        self._grace = grace
        self._programs: list[_Process] = []
        self._servers: list[_Process] = []
        self._exit_code = 0
        self._signals_due: list[tuple[float, signal.Signals]] = []
        self._restarts_due: list[tuple[float, _Process]] = []
        self._resources = contextlib.ExitStack()
        self._selector = self._resources.enter_context(selectors.DefaultSelector())

    def __enter__(self) -> "_Job":
        return self

    def __exit__(self, *exc_info) -> None:
        for process in self._programs + self._servers:
            process.reap()
        self._resources.close()

    def start(
        self,
        tasks: Sequence[_Task],
        command: Sequence[str],
        network: network_namespaces.NetworkNamespaces | None,
        log_dir: str | None,
        max_restarts: int,
    ) -> None:
        """Starts the processes; without a network they meet on the loopback interface."""
        if network:
            endpoints = [f"{address}:{_PORTS[0]}" for address in network.addresses]
        else:
            endpoints = [f"127.0.0.1:{port}" for port in free_ports(len(tasks))]
        cluster = {}
        for task, endpoint in zip(tasks, endpoints, strict=True):
            cluster.setdefault(task.type, []).append(endpoint)
        for number, task in enumerate(tasks):
            own_command = _SERVER if task.is_server else command
            process = _Process(
                task,
                network.command(number, own_command) if network else own_command,
                _environment(cluster, task),
                self._open_log(log_dir, task),
                max_restarts if task.type == "worker" else 0,
            )
            self._start(process)

    def supervise(self, interrupts: _Interrupts) -> int:
        """Relays output and signals until every process has ended; returns the exit code."""
        while self._programs:
            self._step(interrupts)
            self._restart_servers()
        self._signals_due = _end(signal.SIGTERM, 0.0)
        while self._servers:
            self._step(interrupts)
        deadline = time.monotonic() + _DRAIN_SECONDS
        while self._selector.get_map() and time.monotonic() < deadline:
            self._relay(_POLL_SECONDS)
        return self._exit_code

    def _open_log(self, log_dir, task):
        if not log_dir:
            return None
        os.makedirs(log_dir, exist_ok=True)
        path = os.path.join(log_dir, f"{task.name.replace(' ', '-')}.log")
        return self._resources.enter_context(open(path, "wb", buffering=0))

    def _start(self, process):
        process.start()
        (self._servers if process.task.is_server else self._programs).append(process)
        self._watch(process, "stdout", process.popen.stdout)
        self._watch(process, "stderr", process.popen.stderr)

    def _watch(self, process, name, pipe):
        self._resources.enter_context(pipe)
        buffer = _LineBuffer()

        def relay():
            data = os.read(pipe.fileno(), _CHUNK)
            if process.log:
                process.log.write(data)
            if not data:
                self._selector.unregister(pipe)
            for text in buffer.feed(data) if data else buffer.flush():
                self._on_line(OutputLine(process.task.name, name, text))

        self._selector.register(pipe, selectors.EVENT_READ, relay)

    def _step(self, interrupts):
        self._relay(_POLL_SECONDS)
        self._notice_exits()
        self._notice_interrupts(interrupts)
        self._send_due_signals()

    def _relay(self, timeout):
        for key, _ in self._selector.select(timeout):
            key.data()

    def _notice_exits(self):
        failed = [process for process in _reap_exited(self._programs) if process.popen.returncode]
        if failed and not self._exit_code:
            # Of those seen at the same moment, one that was killed is the cause of the others.
            self._begin_failure(min(failed, key=lambda process: process.popen.returncode > 0))
        lost = _reap_exited(self._servers)
        if self._programs:
            for server in lost:
                self._lose(server)

    def _begin_failure(self, process):
        self._exit_code = process.shell_exit_code()
        self._signals_due = _end(signal.SIGTERM, self._grace)
        first = "" if process.task.type == "chief" else " first"
        self._say(f"{process.task.name} failed{first}: {process.describe_end()}")

    def _lose(self, server):
        if server.restarts:
            server.restarts -= 1
            self._restarts_due.append((time.monotonic() + _RESTART_SECONDS, server))
            outlook = f"it starts again in {_RESTART_SECONDS:g} s"
        elif server.task.type == "worker" and self._has_workers():
            outlook = "a training that has begun goes on without it"
        else:
            outlook = "training cannot go on without it"
            # The chief may not notice, but wait for it for ever, above all while it connects.
            self._signals_due = self._signals_due or _end(signal.SIGTERM, self._grace)
        self._say(f"{server.task.name} ended: {server.describe_end()}; {outlook}")

    def _has_workers(self):
        """Returns whether a worker runs, or will again."""
        restarting = [server for _, server in self._restarts_due]
        return any(server.task.type == "worker" for server in self._servers + restarting)

    def _restart_servers(self):
        while self._restarts_due and self._restarts_due[0][0] <= time.monotonic():
            self._start(self._restarts_due.pop(0)[1])

    def _notice_interrupts(self, interrupts):
        if not interrupts.received:
            return
        number = interrupts.received.pop(0)
        if interrupts.forwarded:
            self._signals_due = [(time.monotonic(), signal.SIGKILL)]
        else:
            self._signals_due = _end(number, 0.0)
        interrupts.forwarded = True
        self._exit_code = self._exit_code or 128 + number

    def _send_due_signals(self):
        while self._signals_due and self._signals_due[0][0] <= time.monotonic():
            _, number = self._signals_due.pop(0)
            if self._programs:
                names = ", ".join(process.task.name for process in self._programs)
                self._say(f"sending {number.name} to {names}")
            # The servers stay until the chief has ended, which may want to save the model.
            for process in self._programs or self._servers:
                process.signal(number)

    def _say(self, text):
        self._on_line(OutputLine(_LAUNCHER, "stderr", text))


def _end(number: signal.Signals, delay: float) -> list[tuple[float, signal.Signals]]:
    """Returns when to send which signal: this one in `delay` seconds, SIGKILL to who stays."""
    due = time.monotonic() + delay
    return [(due, number), (due + _KILL_SECONDS, signal.SIGKILL)]


def _reap_exited(processes: list[_Process]) -> list[_Process]:
    """Takes those that have exited out of `processes`, reaps and returns them."""
    exited = [process for process in processes if process.has_exited()]
    for process in exited:
        process.reap()
        processes.remove(process)
    return exited


def _die_with_parent(parent: int) -> Callable[[], None]:
    """Returns what a child calls so that it is killed when the launcher dies in any way."""

    def prepare():
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)

    return prepare


def _environment(cluster: dict[str, list[str]], task: _Task) -> dict[str, str]:
    """Returns this process's environment with TF_CONFIG, and without proxies."""
    environment = dict(os.environ)
    remove_proxies(environment)
    config = {"cluster": cluster, "task": {"type": task.type, "index": task.index}}
    return {**environment, "TF_CONFIG": json.dumps(config)}


def remove_proxies(environment: MutableMapping[str, str]) -> None:
    """Removes the variables that name proxies; gRPC would look for the cluster behind them."""
    for name in [name for name in environment if name.lower() in _PROXIES]:
        del environment[name]


def free_ports(count: int) -> list[int]:
    """Returns ports of this machine that nothing listens on, and no outgoing connection takes."""
    ports = []
    with contextlib.ExitStack() as stack:
        for port in random.sample(_PORTS, len(_PORTS)):
            if len(ports) == count:
                return ports
            probe = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.append(port)
    raise OSError(f"fewer than {count} free ports in {_PORTS}")


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
        3,
        "With --ps: how many times each worker that has ended is started again, at the same "
        "address. A parameter server never is.",
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


def _command(program: Sequence[str], is_module: bool) -> list[str]:
    """Returns the command of one process.

    Raises:
      flags.Error: there is no program, or not this one.
    """
    if not program:
        raise flags.Error("no program given")
    if is_module:
        return [sys.executable, "-u", "-m", *program]
    if not os.path.exists(program[0]):
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
        command = _command(program, values.module)
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


if __name__ == "__main__":
    sys.exit(main())
