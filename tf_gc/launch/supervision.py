"""Starts the processes of a launch, and stays until all of them have ended."""

import collections
import contextlib
import os
import pathlib
import selectors
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

from tf_gc import network_namespaces
from tf_gc.launch import gpus, summary
from tf_gc.launch.guard import Guard
from tf_gc.launch.link_changes import LinkChange
from tf_gc.launch.output import CHUNK, LAUNCHER, LineBuffer, OutputLine, Piece, Printer
from tf_gc.launch.processes import (
    PORTS,
    LaunchError,
    Process,
    Task,
    cluster_tasks,
    free_ports,
    share_of_cores,
    task_environment,
)
from tf_gc.launch.ssh import Hosts

_SERVER = (sys.executable, "-u", "-m", "tf_gc.server")
_POLL_SECONDS = 0.1
_KILL_SECONDS = 10.0
# Of a shell that ends, and of `timeout`, the same signal comes twice.
_REPEAT_SECONDS = 1.0
_DRAIN_SECONDS = 2.0
# The chief should notice that a worker was lost before it meets another one at the same address.
_RESTART_SECONDS = 3.0


def launch(
    command: Sequence[str],
    *,
    workers: int,
    ps: int = 0,
    hosts: Sequence[str] = (),
    port: int | None = None,
    gpus_per_worker: int | None = None,
    bandwidth: str | None = None,
    latency: str | None = None,
    link_changes: Sequence[LinkChange] = (),
    grace: float = 15.0,
    max_restarts: int | None = None,
    log_dir: str | None = None,
    on_line: Callable[[OutputLine], None] | None = None,
    on_network: Callable[[network_namespaces.NetworkNamespaces], None] | None = None,
) -> int:
    """Runs `command` in the processes of a cluster, and waits for them.

    Without parameter servers, every worker runs it. When one fails, none can go on: all are ended,
    and with `max_restarts` all are started again, to go on from what the program has saved.

    With parameter servers, they and the workers run `tf_gc.server`, and `command` is run once, as
    the chief; when it has ended, the servers are stopped. A worker that ends before is started
    again, and when it ended too often, training goes on without it.

    While it runs in the main thread, SIGINT, SIGTERM and SIGHUP are forwarded to the processes
    that run `command`, which have the time that they need. A second SIGINT, or any other signal a
    second later or more, kills them.

    Args:
      command: program and arguments, the same for every process.
      workers: number of workers.
      ps: number of parameter servers.
      hosts: machines to run the processes on, as ssh takes their names: process i of each kind on
        host i, modulo their number. They must find each other by these names, and have this
        working directory and this Python, with tf_gc, at the same paths. Empty: this machine.
      port: with hosts, that of the first process of each of them; others there have the next
        ones. None: free ones.
      gpus_per_worker: how many GPUs each worker sees, in its CUDA_VISIBLE_DEVICES: no two the same,
        of those that this process's own CUDA_VISIBLE_DEVICES names, or else of all; the other
        processes see none. None: all processes see what this one does.
      bandwidth: for instance "100mbit": gives each process a network namespace whose link has
        this limit in each direction. Needs root. None, without latency and changes: all share the
        loopback interface.
      latency: for instance "5ms": how long a packet is on its way from one process to another.
        Needs root.
      link_changes: when links change while the job runs; see `read_link_changes`. Needs root.
      grace: seconds that the others have to end by themselves when one process has failed, and
        that the chief has when a parameter server, or the last worker, is lost.
      max_restarts: how many times a worker that has failed is started again, at the same address:
        with parameter servers, which never are, that worker alone, 3 times by default, and without
        them all workers together, by default not at all.
      log_dir: directory for a file per process, `worker-<index>.log`, `ps-<index>.log` or
        `chief.log`, which holds exactly what the process wrote. If it cannot be written any more,
        as on a full disk, a line says so, and the processes go on.
      on_line: called with each line instead of printing it.
      on_network: called once with the network, where there is one, before the processes start:
        its `change` may be called at any time while they run, for instance by `on_line`.

    Returns:
      0 when every process that ran `command` returned 0, the last time; else the exit code of the
      first that failed, or 128 plus the number of the signal that ended it or that stopped the
      launch.

    Raises:
      ValueError: `workers`, `ps`, `gpus_per_worker`, `max_restarts`, `bandwidth` or `latency` is
        out of range, there are too few GPUs, a change is of a process that does not exist, or an
        argument is not for hosts, or for hosts alone.
      LaunchError: a host cannot be reached, or cannot run tf_gc, or `log_dir` cannot be written;
        the message says what to do.
      NetworkNamespaceError: the namespaces cannot be made; the message says what to do.
    """
    if max_restarts is None:
        max_restarts = 3 if ps else 0
    for name, value, least in (
        ("workers", workers, 1),
        ("ps", ps, 0),
        ("gpus_per_worker", gpus_per_worker, 0),
        ("max_restarts", max_restarts, 0),
    ):
        if value is not None and value < least:
            raise ValueError(f"{name} is {value}, must be at least {least}")
    if port is not None and not hosts:
        raise ValueError("port is for processes on hosts: leave it out")
    if hosts:
        _refuse_on_hosts(
            gpus_per_worker=gpus_per_worker,
            bandwidth=bandwidth,
            latency=latency,
            link_changes=link_changes or None,
        )
    tasks = cluster_tasks(workers, ps)
    changes = _LinkSchedule(link_changes, tasks)
    visible = {} if gpus_per_worker is None else gpus.gpus_of_tasks(tasks, gpus_per_worker)
    with contextlib.ExitStack() as stack:
        interrupts = stack.enter_context(_Interrupts())
        network = stack.enter_context(
            network_namespaces.NetworkNamespaces(len(tasks), bandwidth, latency)
            if bandwidth or latency or link_changes
            else contextlib.nullcontext()
        )
        if network and on_network:
            on_network(network)
        if on_line is None:
            on_line = Printer((task.name for task in tasks), lambda: interrupts.has_come)
        job = stack.enter_context(_Job(interrupts, on_line, grace))
        changes.start(network)
        machines = Hosts(hosts, port) if hosts else None
        job.start(tasks, command, network, machines, visible, log_dir, max_restarts)
        return job.supervise(changes)


def _refuse_on_hosts(**arguments):
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} is for processes on this machine, not on hosts: leave it out")


class _LinkSchedule:
    """The changes of links that are still to come."""

    def __init__(self, link_changes: Sequence[LinkChange], tasks: Sequence[Task]):
        self._changes = sorted(link_changes, key=lambda change: change.seconds)
        self._indices = {task.name: index for index, task in enumerate(tasks)}
        for change in link_changes:
            if change.process is not None and change.process not in self._indices:
                raise ValueError(
                    f"link_changes: one is of {change.process!r}, which is none of the processes: "
                    f"{', '.join(self._indices)}"
                )

    def start(self, network: network_namespaces.NetworkNamespaces | None) -> None:
        """Begins to count the seconds, and makes the changes of second 0."""
        self._network = network
        self._begin = time.monotonic()
        self.make_due()

    def make_due(self) -> list[LinkChange]:
        """Makes, and returns, the changes whose time has come."""
        due = []
        while self._changes and self._begin + self._changes[0].seconds <= time.monotonic():
            change = self._changes.pop(0)
            index = self._indices.get(change.process)
            self._network.change(index, bandwidth=change.bandwidth, latency=change.latency)
            due.append(change)
        return due


class _Interrupts:
    """Collects the signals that ask the launch to stop, instead of dying of them."""

    def __init__(self):
        self.received = []
        self.forwarded = None  # when the first was
        self._previous = {}

    @property
    def has_come(self) -> bool:
        """Whether there was one."""
        return bool(self.received) or self.forwarded is not None

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                # nohup: a launch that was told to ignore the terminal's end goes on doing so.
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._receive)
            # Where it is ignored, as some daemons do, the kernel throws away exit codes.
            if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
                self._previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return self

    def __exit__(self, *exc_info):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number, frame):
        del frame
        self.received.append(signal.Signals(number))


class _Output:
    """One stream of a process."""

    def __init__(self, process: Process, name: str, pipe: BinaryIO):
        self.process = process
        self.pipe = pipe
        self._name = name
        self._buffer = LineBuffer()

    def lines(self, data: bytes) -> list[OutputLine]:
        """Returns the lines that `data` completes; empty data are the end of all."""
        texts = self._buffer.feed(data) if data else self._buffer.flush()
        return [OutputLine(self.process.task.name, self._name, text) for text in texts]


class _Job:
    """The processes of one launch and their output; no process survives it.

    Programs run what the user gave, and the job is done when they have ended. Servers, which only
    a cluster with parameter servers has, are there for the program of the chief.
    """

    def __init__(
        self, interrupts: _Interrupts, on_line: Callable[[OutputLine], None], grace: float
    ):
        self._interrupts = interrupts
        self._on_line = on_line
        prints = isinstance(on_line, Printer)
        self._is_ready = on_line.is_ready if prints else lambda: True
        self._pieces = on_line.pieces if prints else lambda line: [line]
        self._unprinted: collections.deque[OutputLine | Piece] = collections.deque()
        self._grace = grace
        self._programs: list[Process] = []
        self._servers: list[Process] = []
        self._exit_code = 0
        self._signals_due: list[tuple[float, signal.Signals]] = []
        self._restarts_due: list[tuple[float, Process]] = []
        self._ended: list[Process] = []  # programs
        self._resources = contextlib.ExitStack()
        self._selector = self._resources.enter_context(selectors.DefaultSelector())
        # For what the processes have exchanged.
        self._summaries = pathlib.Path(
            self._resources.enter_context(tempfile.TemporaryDirectory(prefix="tf_gc-"))
        )
        self._guard = self._resources.enter_context(Guard(str(self._summaries)))

    def __enter__(self) -> "_Job":
        return self

    def __exit__(self, *exc_info) -> None:
        for process in self._programs + self._servers:
            process.reap()
        self._resources.close()

    def start(
        self,
        tasks: Sequence[Task],
        command: Sequence[str],
        network: network_namespaces.NetworkNamespaces | None,
        hosts: Hosts | None,
        visible_gpus: Mapping[Task, str],
        log_dir: str | None,
        max_restarts: int,
    ) -> None:
        """Starts the processes; without a network or hosts they meet on the loopback interface.

        A signal that comes while hosts are asked is the end: none is started.
        """
        if hosts:
            endpoints = hosts.endpoints(tasks, lambda: self._interrupts.has_come)
            if endpoints is None:
                self._exit_code = 128 + self._interrupts.received[0]
                return
        elif network:
            endpoints = [f"{address}:{PORTS[0]}" for address in network.addresses]
        else:
            endpoints = [f"127.0.0.1:{port}" for port in free_ports(len(tasks))]
        cluster = {}
        for task, endpoint in zip(tasks, endpoints, strict=True):
            cluster.setdefault(task.type, []).append(endpoint)
        for number, task in enumerate(tasks):
            own_command = _SERVER if task.is_server else command
            log = self._open_log(log_dir, task)
            restarts = max_restarts if task.type == "worker" else 0
            if hosts:
                self._say(f"{task.name} is at {endpoints[number]}")
                self._start(hosts.process(cluster, task, own_command, log, restarts))
                continue
            variables = {
                summary.VARIABLE: str(self._summaries / task.name),
                **share_of_cores(sum(task.type != "chief" for task in tasks)),
            }
            if visible_gpus:
                variables[gpus.VISIBLE] = visible_gpus[task]
            process = Process(
                task,
                network.command(number, own_command) if network else own_command,
                task_environment(cluster, task, variables),
                log,
                restarts,
            )
            self._start(process)

    def supervise(self, link_changes: _LinkSchedule) -> int:
        """Relays output and signals until every process has ended; returns the exit code."""
        while self._programs:
            self._step()
            for change in link_changes.make_due():
                self._say(str(change))
            self._restart_servers()
            if not self._programs and self._interrupts.forwarded is None:
                self._restart_programs()
        self._signals_due = _end(signal.SIGTERM, 0.0)
        while self._servers:
            self._step()
        self._finish()
        return self._exit_code

    def _finish(self):
        """Relays what is left, and says last what the processes have exchanged."""
        self._relay_until(lambda: not self._unprinted and not self._selector.get_map())
        for key in list(self._selector.get_map().values()):  # pipes that other processes hold
            self._selector.unregister(key.fileobj)
            for line in key.data.lines(b""):
                self._print(line)
        exchanged = summary.read_summary(self._summaries)
        if exchanged:
            self._say(exchanged)
        self._relay_until(lambda: not self._unprinted)

    def _relay_until(self, is_done):
        """Waits for a slow reader, and for pipes a while; after a signal for neither for long."""
        last = time.monotonic()
        while not is_done() and not self._interrupts.received:
            waits_for_reader = self._unprinted and not self._interrupts.has_come
            if not waits_for_reader and time.monotonic() > last + _DRAIN_SECONDS:
                break
            if self._relay(_POLL_SECONDS):
                last = time.monotonic()

    def _open_log(self, log_dir, task):
        if not log_dir:
            return None
        path = os.path.join(log_dir, f"{task.name.replace(' ', '-')}.log")
        try:
            os.makedirs(log_dir, exist_ok=True)
            return self._resources.enter_context(open(path, "wb", buffering=0))
        except OSError as error:
            raise LaunchError(
                f"cannot write {error.filename}: {error.strerror}: --log_dir must be a folder "
                "that this user may write to"
            ) from error

    def _write_log(self, process, data):
        """Adds to a process's log, or gives it up: the processes do not need it."""
        try:
            while process.log and data:
                data = data[process.log.write(data) :]
        except OSError as error:
            path, process.log = process.log.name, None
            self._say(
                f"{process.task.name}: its log {path} is not written any more: {error.strerror}"
            )

    def _start(self, process):
        process.start()
        (self._servers if process.task.is_server else self._programs).append(process)
        self._guard.watch(self._programs + self._servers)
        for name in ("stdout", "stderr"):
            pipe = self._resources.enter_context(getattr(process.popen, name))
            self._selector.register(pipe, selectors.EVENT_READ, _Output(process, name, pipe))

    def _step(self):
        self._relay(_POLL_SECONDS)
        self._notice_exits()
        self._notice_interrupts()
        self._send_due_signals()

    def _relay(self, timeout):
        """Returns whether anything was read or printed."""
        unprinted = len(self._unprinted)
        self._print_unprinted()
        if self._unprinted:  # nobody reads: no more is taken from the processes
            time.sleep(timeout)
            return len(self._unprinted) < unprinted
        ready = self._selector.select(timeout)
        for key, _ in ready:
            self._read(key.data)
        return bool(ready or unprinted)

    def _read(self, output):
        data = os.read(output.pipe.fileno(), CHUNK)
        self._write_log(output.process, data)
        if not data:
            self._selector.unregister(output.pipe)
            output.pipe.close()
        for line in output.lines(data):
            self._print(line)

    def _print(self, line):
        self._unprinted.extend(self._pieces(line))
        self._print_unprinted()

    def _print_unprinted(self):
        while self._unprinted and self._is_ready():
            self._on_line(self._unprinted.popleft())

    def _notice_exits(self):
        ended = _reap_exited(self._programs)
        lost = _reap_exited(self._servers)
        if ended or lost:
            self._guard.watch(self._programs + self._servers)
        self._ended += ended
        failed = [process for process in ended if process.popen.returncode]
        if failed and not self._exit_code:
            # Of those seen at the same moment, one that was killed is the cause of the others.
            self._begin_failure(min(failed, key=lambda process: process.popen.returncode > 0))
        elif failed and not self._signals_due:  # after a forwarded signal
            self._signals_due = _end(signal.SIGTERM, self._grace)
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

    def _restart_programs(self):
        """Starts the workers that ran the program again, where it has failed and they may."""
        if not self._exit_code or not all(process.restarts for process in self._ended):
            return
        self._say("all workers start again")
        self._exit_code, self._signals_due = 0, []
        ended, self._ended = self._ended, []
        for process in sorted(ended, key=lambda process: process.task):
            process.restarts -= 1
            self._start(process)

    def _notice_interrupts(self):
        interrupts = self._interrupts
        if not interrupts.received:
            return
        number = interrupts.received.pop(0)
        now = time.monotonic()
        if interrupts.forwarded is None:
            interrupts.forwarded = now
            self._signals_due.insert(0, (now, number))
            self._exit_code = self._exit_code or 128 + number
            self._say(f"{number.name}: it is forwarded; a second one kills what does not end")
        elif number == signal.SIGINT or now - interrupts.forwarded > _REPEAT_SECONDS:
            self._signals_due = [(now, signal.SIGKILL)]

    def _send_due_signals(self):
        while self._signals_due and self._signals_due[0][0] <= time.monotonic():
            _, number = self._signals_due.pop(0)
            # The servers stay until the chief has ended, which may want to save the model.
            for process in self._programs or self._servers:
                process.signal(number)
            if self._programs:
                names = ", ".join(process.task.name for process in self._programs)
                self._say(f"sending {number.name} to {names}")

    def _say(self, text):
        self._print(OutputLine(LAUNCHER, "stderr", text))


def _end(number: signal.Signals, delay: float) -> list[tuple[float, signal.Signals]]:
    """Returns when to send which signal: this one in `delay` seconds, SIGKILL to who stays."""
    due = time.monotonic() + delay
    return [(due, number), (due + _KILL_SECONDS, signal.SIGKILL)]


def _reap_exited(processes: list[Process]) -> list[Process]:
    """Takes those that have exited out of `processes`, reaps and returns them."""
    exited = [process for process in processes if process.has_exited()]
    for process in exited:
        process.reap()
        processes.remove(process)
    return exited
