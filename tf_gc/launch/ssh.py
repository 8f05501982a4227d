"""The processes of a launch on other machines, which ssh starts.

Each host has this working directory, and this Python with tf_gc, at the same paths. How ssh gets
there (user, port, key, jump hosts) is what ~/.ssh/config says of it.
"""

import collections
import contextlib
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO

from tf_gc.launch.processes import LaunchError, Process, Task

_SSH = (
    "ssh",
    *("-o", "BatchMode=yes"),  # never asks
    *("-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=10"),  # a host that is silent for 30 s is lost
    # A process has a connection of its own, and what ~/.ssh/config has for a person's stays out.
    *("-o", "ControlPath=none"),
    *("-o", "ClearAllForwardings=yes"),
    "-T",
)
_SSH_FAILED = 255
_ANSWER_SECONDS = 60.0  # in which a host says which ports are free
_POLL_SECONDS = 0.05
_LAST_PORT = 65535


class Hosts:
    """The machines of a launch. Process i of each kind is on host i, modulo their number."""

    def __init__(self, names: Sequence[str], port: int | None):
        """Asks nothing yet.

        Args:
          names: as ssh takes them, `user@` included. The hosts must find each other by the same
            names, without the user.
          port: of the first process of each host; others there have the next ones. None: free ones.
        """
        self._names = names
        self._port = port

    def endpoints(
        self, tasks: Sequence[Task], is_interrupted: Callable[[], bool]
    ) -> list[str] | None:
        """Returns the address of each process, once all hosts have answered.

        Args:
          tasks: the places of all processes.
          is_interrupted: is asked again and again, and if true, the result is None.

        Raises:
          LaunchError: a host cannot run tf_gc here, by its name and what it says.
          ValueError: `port` leaves too few ports for the processes of a host.
        """
        by_name = {}  # ssh's name of each machine, whatever the user
        for host in map(self._host, tasks):
            by_name.setdefault(_machine(host), host)
        counts = collections.Counter(_machine(self._host(task)) for task in tasks)
        if self._port and self._port + max(counts.values()) - 1 > _LAST_PORT:
            raise ValueError(
                f"port is {self._port}, and processes of a host would need those up to "
                f"{self._port + max(counts.values()) - 1}: {_LAST_PORT} is the last one"
            )
        with contextlib.ExitStack() as stack:
            questions = {
                name: stack.enter_context(_Question(by_name[name], count))
                for name, count in counts.items()
            }
            while not all(question.is_answered() for question in questions.values()):
                if is_interrupted():
                    return None
                time.sleep(_POLL_SECONDS)
            ports = {name: question.free_ports() for name, question in questions.items()}
        if is_interrupted():
            return None
        taken = {
            name: itertools.count(self._port) if self._port else iter(free)
            for name, free in ports.items()
        }
        return [
            f"[{name}]:{next(taken[name])}" if ":" in name else f"{name}:{next(taken[name])}"
            for name in (_machine(self._host(task)) for task in tasks)
        ]

    def process(
        self,
        cluster: dict[str, list[str]],
        task: Task,
        command: Sequence[str],
        log: BinaryIO | None,
        restarts: int,
    ) -> "_SshProcess":
        """Returns the process of this place, which has not started."""
        host = self._host(task)
        order = json.dumps({"cluster": cluster, "task": task, "command": command})
        run = _command(host, "-m", "tf_gc.launch.remote", order)
        return _SshProcess(host, task, run, dict(os.environ), log, restarts)

    def _host(self, task):
        return self._names[task.index % len(self._names)]


class _SshProcess(Process):
    """This end of ssh; at the other one, `remote` passes signals on and ends with ssh."""

    def __init__(self, host, *args):
        super().__init__(*args)
        self._host = host

    def start(self) -> None:
        super().start(stdin=subprocess.PIPE)

    def signal(self, number: int) -> None:
        with contextlib.suppress(BrokenPipeError):  # ssh has ended
            os.write(self.popen.stdin.fileno(), bytes([number]))
        if number == signal.SIGKILL:  # the other end may not answer; it ends with ssh, too
            super().signal(number)

    def reap(self) -> int:
        self.popen.stdin.close()
        return super().reap()

    def describe_end(self) -> str:
        lost = ", or lost" if self.popen.returncode == _SSH_FAILED else ""
        return f"{super().describe_end()} on {self._host}{lost}"


def _command(host: str, *arguments: str) -> list[str]:
    """Returns the command that runs Python with these arguments on a host."""
    python = shlex.join([sys.executable, "-u", *arguments])
    return [*_SSH, "--", host, f"cd {shlex.quote(os.getcwd())} && exec {python}"]


class _Question:
    """Asks a host for free ports; no answer is waited for any more at its end."""

    def __init__(self, host: str, count: int):
        self._host = host
        self._count = count
        program = f"from tf_gc import launch; print(*launch.free_ports({count}))"
        # Files take any number of bytes, where nobody reads a pipe yet.
        self._files = [tempfile.TemporaryFile("w+", errors="replace") for _ in range(2)]  # noqa: SIM115
        self._deadline = time.monotonic() + _ANSWER_SECONDS
        try:
            self._popen = subprocess.Popen(
                _command(host, "-c", program),
                stdin=subprocess.DEVNULL,
                stdout=self._files[0],
                stderr=self._files[1],
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise LaunchError("ssh not found: apt-get install openssh-client") from error

    def __enter__(self) -> "_Question":
        return self

    def __exit__(self, *exc_info) -> None:
        self._popen.kill()
        self._popen.wait()
        for file in self._files:
            file.close()

    def is_answered(self) -> bool:
        """Raises LaunchError when the host has had its time."""
        if self._popen.poll() is None and time.monotonic() > self._deadline:
            raise LaunchError(
                f"{self._host} has not answered for {_ANSWER_SECONDS:g} s: `ssh {self._host} true` "
                f"must end, and {os.getcwd()} be there"
            )
        return self._popen.poll() is not None

    def free_ports(self) -> list[int]:
        """Returns those of the answer; raises LaunchError if it is none."""
        for file in self._files:
            file.seek(0)
        output, errors = (file.read() for file in self._files)
        code = self._popen.returncode
        if not code:
            return [int(port) for port in output.split()[-self._count :]]
        reason = (errors.strip() or f"exit code {code}").rpartition("\n")[2]
        if code == _SSH_FAILED:
            advice = f"`ssh {self._host} true` must work, and ask nothing"
        else:
            advice = f"it must have {os.getcwd()}, and tf_gc in {sys.executable}"
        raise LaunchError(f"host {self._host}: {reason} ({advice})")


def _machine(host: str) -> str:
    """Returns the name by which the other hosts find it."""
    return host.rpartition("@")[2]
