"""The processes of a launch on other machines, which ssh starts.

Each host has this working directory, and this Python with tf_gc, at the same paths. How ssh gets
there (user, port, key, jump hosts) is what ~/.ssh/config says of it.
"""

import collections
import concurrent.futures
import contextlib
import itertools
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import BinaryIO

from tf_gc.launch.processes import LaunchError, Process, Task

_SSH = (
    "ssh",
    *("-o", "BatchMode=yes"),  # never asks
    *("-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=10"),  # a host that is silent for 30 s is lost
)
_SSH_FAILED = 255
_ANSWER_SECONDS = 60.0  # in which a host says which ports are free


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

    def endpoints(self, tasks: Sequence[Task]) -> list[str]:
        """Returns the address of each process, once all hosts have answered.

        Raises:
          LaunchError: a host cannot run tf_gc here, by its name and what it says.
        """
        counts = collections.Counter(map(self._host, tasks))
        with concurrent.futures.ThreadPoolExecutor(len(counts)) as pool:
            found = pool.map(_free_ports, counts.keys(), counts.values())
            ports = {
                host: itertools.count(self._port) if self._port else iter(free)
                for host, free in zip(counts, found, strict=True)
            }
        return [_endpoint(host, next(ports[host])) for host in map(self._host, tasks)]

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


def _free_ports(host: str, count: int) -> list[int]:
    program = f"from tf_gc import launch; print(*launch.free_ports({count}))"
    try:
        result = subprocess.run(
            _command(host, "-c", program),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
            timeout=_ANSWER_SECONDS,
        )
    except FileNotFoundError as error:
        raise LaunchError("ssh not found: apt-get install openssh-client") from error
    except subprocess.TimeoutExpired as error:
        raise LaunchError(
            f"{host} has not answered for {_ANSWER_SECONDS:g} s: `ssh {host} true` must end, and "
            f"{os.getcwd()} be there"
        ) from error
    if not result.returncode:
        return [int(port) for port in result.stdout.split()[-count:]]
    reason = (result.stderr.strip() or f"exit code {result.returncode}").rpartition("\n")[2]
    if result.returncode == _SSH_FAILED:
        advice = f"`ssh {host} true` must work, and ask nothing"
    else:
        advice = f"it must have {os.getcwd()}, and tf_gc in {sys.executable}"
    raise LaunchError(f"host {host}: {reason} ({advice})")


def _endpoint(host: str, port: int) -> str:
    name = host.rpartition("@")[2]
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
