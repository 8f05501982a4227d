"""A private network for the processes of one launch, with a rate limit on every link.

Each process has a network namespace of its own, linked to a bridge that lives in one more
namespace, so nothing of the host's own network is touched:

    worker's namespace                switch's namespace
    eth0 (uplink limit)  <-- veth --> port0 (downlink limit) --+
                                                               +-- bridge
    eth0 (uplink limit)  <-- veth --> port1 (downlink limit) --+

A namespace outlives the program that made it, so names carry the owner's process id and start
time: the next launch removes those whose owner was killed before it could clean up.
"""

import contextlib
import ctypes
import ipaddress
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence

# Bridges of different launches never meet, so all may use the same addresses.
_SUBNET = ipaddress.ip_network("10.77.0.0/16")
_UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_NAME = re.compile(r"tf_gc-(?P<pid>\d+)-(?P<start>\d+)-\d+-(?:switch|worker\d+)")

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000  # of <sched.h>

_serial = itertools.count()


class NetworkNamespaceError(RuntimeError):
    """The namespaces cannot be made on this machine, or not by this user."""


def bits_per_second(bandwidth: str) -> int:
    """Returns the rate that a text such as "100mbit" or "2.5gbit" means.

    Raises:
      ValueError: the text is not a positive number followed by kbit, mbit or gbit.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", bandwidth.lower())
    bits = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not bits:
        raise ValueError(f"bandwidth {bandwidth!r} is not a rate such as 10mbit, 100mbit or 1gbit")
    return bits


def why_unavailable() -> str | None:
    """Returns what to do before namespaces can be made here, or None when they can."""
    missing = [name for name in ("ip", "tc") if not _tool(name)]
    if missing:
        return f"{' and '.join(missing)} not found: apt-get install iproute2"
    if os.geteuid() != 0:
        return "network namespaces need root: run with sudo"
    return None


def _tool(name: str) -> str | None:
    # Where they are, but not on every PATH.
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def remove_stale() -> None:
    """Removes the namespaces of launches that are gone."""
    for line in _run("ip", "netns", "list").splitlines():
        name = line.split()[0]
        match = _NAME.fullmatch(name)
        if match and _start_time(int(match["pid"])) != match["start"]:
            _delete(name)


class NetworkNamespaces:
    """Context manager that makes one namespace a process and removes them all at the end.

    Attributes:
      addresses: the IP address of each process.
      namespaces: the name of each process's namespace.
    """

    def __init__(self, size: int, bandwidth: str):
        """Checks the arguments; the namespaces are made on entry.

        Args:
          size: number of processes.
          bandwidth: limit of each link in each direction, for instance "100mbit".
        """
        self._bits_per_second = bits_per_second(bandwidth)
        self.addresses = [str(_SUBNET[i + 1]) for i in range(size)]
        prefix = f"tf_gc-{os.getpid()}-{_start_time(os.getpid())}-{next(_serial)}"
        self._switch = f"{prefix}-switch"
        self.namespaces = [f"{prefix}-worker{i}" for i in range(size)]

    def __enter__(self) -> "NetworkNamespaces":
        problem = why_unavailable()
        if problem:
            raise NetworkNamespaceError(problem)
        remove_stale()
        with contextlib.ExitStack() as cleanup:
            self._make_switch(cleanup)
            for index, namespace in enumerate(self.namespaces):
                self._make_worker(cleanup, namespace)
                self._link(index)
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *exc_info) -> None:
        self._cleanup.close()

    def command(self, index: int, command: Sequence[str]) -> list[str]:
        """Returns the command that runs `command` in the namespace of process `index`."""
        return [_tool("ip"), "netns", "exec", self.namespaces[index], *command]

    def cut(self, index: int) -> None:
        """Drops what process `index` sends and what is sent to it; neither end is told."""
        _run("ip", "-n", self._switch, "link", "set", f"port{index}", "nomaster")

    def _make_switch(self, cleanup: contextlib.ExitStack) -> None:
        _add(self._switch, cleanup)
        _run("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self._switch, "link", "set", "bridge", "up")

    def _make_worker(self, cleanup: contextlib.ExitStack, namespace: str) -> None:
        _add(namespace, cleanup)
        _run("ip", "-n", namespace, "link", "set", "lo", "up")

    def _link(self, index: int) -> None:
        worker, port = self.namespaces[index], f"port{index}"
        address = f"{self.addresses[index]}/{_SUBNET.prefixlen}"
        _run(
            *("ip", "link", "add", "name", "eth0", "netns", worker, "type", "veth"),
            *("peer", "name", port, "netns", self._switch),
        )
        _run("ip", "-n", worker, "address", "add", address, "dev", "eth0")
        _run("ip", "-n", self._switch, "link", "set", port, "master", "bridge")
        self._limit(worker, "eth0")
        self._limit(self._switch, port)
        _run("ip", "-n", worker, "link", "set", "eth0", "up")
        _run("ip", "-n", self._switch, "link", "set", port, "up")

    def _limit(self, namespace: str, device: str) -> None:
        """Limits what leaves `namespace` through `device`."""
        # Short bursts, so that small messages are slowed as on a real link; at high rates the
        # bucket must last from one timer interrupt to the next.
        burst = max(4000, self._bits_per_second // 8 // 4000)
        _run(
            *("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf"),
            *("rate", f"{self._bits_per_second}bit", "burst", f"{burst}b", "latency", "400ms"),
        )


def enter(namespace: str) -> None:
    """Moves this thread, and those that it starts, to a namespace.

    Unlike in a process of `command`, /sys shows the network that it has left; /proc/net does not.
    """
    with open(f"/run/netns/{namespace}", "rb") as file:
        if _LIBC.setns(file.fileno(), _CLONE_NEWNET):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), namespace)


def _add(namespace: str, cleanup: contextlib.ExitStack) -> None:
    cleanup.callback(_delete, namespace)
    _run("ip", "netns", "add", namespace)


def _delete(namespace: str) -> None:
    # It may be gone: two launches may remove the same stale one.
    _call("ip", "netns", "delete", namespace)


def _run(*command: str) -> str:
    """Returns the output of `command`, which must succeed."""
    result = _call(*command)
    if result.returncode:
        raise NetworkNamespaceError(
            f"`{' '.join(command)}` failed: {result.stderr.strip()} "
            "(a container needs the capabilities SYS_ADMIN and NET_ADMIN)"
        )
    return result.stdout


def _call(tool: str, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [_tool(tool), *arguments],
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # Ctrl-C in the terminal must not stop a clean-up
    )


def _start_time(pid: int) -> str | None:
    """Returns when process `pid` started, in clock ticks since boot; None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            after_name = stat.read().rpartition(")")[2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return after_name.split()[19]
