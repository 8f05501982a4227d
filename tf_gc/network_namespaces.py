"""A private network for the processes of one launch, with a rate limit and a delay on every link.

Each process has a network namespace of its own, linked to a bridge that lives in one more
namespace, so nothing of the host's own network is touched:

    worker's namespace                switch's namespace
    eth0 (uplink limit)  <-- veth --> port0 (downlink limit) --+
                                                               +-- bridge
    eth0 (uplink limit)  <-- veth --> port1 (downlink limit) --+

The limits are tc's token buckets (tbf). A delay is the work of one process of ours, as tc's netem
is not in every kernel (`delay_relay`). It serves a TAP device on the bridge. Ports with a delay
redirect IP packets that come from their process to this device, from where they enter the bridge:

    eth0 --> port0 --> delay, held back there --> bridge --> port1 --> eth0

A namespace outlives the program that made it, so names carry the owner's process id and start
time: the next launch removes those whose owner was killed before it could clean up.
"""

import contextlib
import ctypes
import ipaddress
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

from tf_gc import delay_relay

# Bridges of different launches never meet, so all may use the same addresses.
_SUBNET = ipaddress.ip_network("10.77.0.0/16")
# Of a process in the switch's namespace (`NetworkNamespaces.switch_command`).
SWITCH_ADDRESS = str(_SUBNET[-2])
_RATES = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_NAME = re.compile(r"tf_gc-(?P<pid>\d+)-(?P<start>\d+)-\d+-(?:switch|worker\d+)")

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000  # of <sched.h>
_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21  # of <linux/capability.h>
_IN_A_CONTAINER = "a container needs docker run --cap-add=SYS_ADMIN --cap-add=NET_ADMIN"

_serial = itertools.count()


class NetworkNamespaceError(RuntimeError):
    """The namespaces cannot be made on this machine, or not by this user."""


def bits_per_second(bandwidth: str) -> int:
    """Returns the rate that a text such as "100mbit" or "2.5gbit" means.

    Raises:
      ValueError: the text is not a positive number followed by kbit, mbit or gbit.
    """
    bits = round(_number(bandwidth, _RATES))
    if bits <= 0:
        raise ValueError(f"bandwidth {bandwidth!r} is not a rate such as 10mbit, 100mbit or 1gbit")
    return bits


def latency_seconds(latency: str) -> float:
    """Returns the time that a text such as "5ms", "250us" or "0.1s" means.

    Raises:
      ValueError: the text is not a number followed by us, ms or s.
    """
    seconds = _number(latency, _TIMES)
    if seconds < 0:
        raise ValueError(f"latency {latency!r} is not a time such as 250us, 5ms or 0.1s")
    return seconds


def _number(text, units):
    """Returns the number that `text` means, negative where it means none."""
    match = re.fullmatch(rf"(\d+(?:\.\d+)?)({'|'.join(units)})", text.lower())
    return float(match[1]) * units[match[2]] if match else -1.0


def why_unavailable() -> str | None:
    """Returns what to do before namespaces can be made here, or None when they can."""
    missing = [name for name in ("ip", "tc") if not _tool(name)]
    if missing:
        return f"{' and '.join(missing)} not found: apt-get install iproute2"
    if os.geteuid() != 0:
        return 'network namespaces need root: run with sudo, as sudo "$(which tf_gc-launch)"'
    if not _has_capabilities():
        return f"network namespaces need more here: {_IN_A_CONTAINER}"
    return None


def _has_capabilities() -> bool:
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    effective = int(re.search(r"^CapEff:\s*(\w+)", status, re.MULTILINE)[1], 16)
    return all(effective >> bit & 1 for bit in (_CAP_NET_ADMIN, _CAP_SYS_ADMIN))


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

    def __init__(self, size: int, bandwidth: str | None = None, latency: str | None = None):
        """Checks the arguments; the namespaces are made on entry.

        Args:
          size: number of processes.
          bandwidth: limit of each link in each direction, for instance "100mbit"; None: no limit.
          latency: how long each packet is on its way from one process to another, for instance
            "5ms": half of a round trip; None: no longer than it takes.
        """
        for text, parse in ((bandwidth, bits_per_second), (latency, latency_seconds)):
            if text is not None:
                parse(text)
        self._bandwidth, self._latency = bandwidth, latency
        self.addresses = [str(_SUBNET[i + 1]) for i in range(size)]
        prefix = f"tf_gc-{os.getpid()}-{_start_time(os.getpid())}-{next(_serial)}"
        self._switch = f"{prefix}-switch"
        self.namespaces = [f"{prefix}-worker{i}" for i in range(size)]
        self._relay: subprocess.Popen | None = None  # once there has been a latency
        self._delayed: set[int] = set()  # processes
        self._buckets: dict[tuple[str, str], tuple[int, int]] = {}  # handles and bytes, by device

    def __enter__(self) -> "NetworkNamespaces":
        problem = why_unavailable()
        if problem:
            raise NetworkNamespaceError(problem)
        remove_stale()
        with contextlib.ExitStack() as cleanup:
            self._cleanup = cleanup
            self._make_switch(cleanup)
            for index, namespace in enumerate(self.namespaces):
                self._make_worker(cleanup, namespace)
                self._link(index)
            self.change(bandwidth=self._bandwidth, latency=self._latency)
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *exc_info) -> None:
        self._cleanup.close()

    def command(self, index: int, command: Sequence[str]) -> list[str]:
        """Returns the command that runs `command` in the namespace of process `index`."""
        return [_tool("ip"), "netns", "exec", self.namespaces[index], *command]

    def switch_command(self, command: Sequence[str]) -> list[str]:
        """Returns the command that runs `command` at the far end of all links.

        It has SWITCH_ADDRESS, and no link of its own: no limit, and no latency of what it sends.
        """
        return [_tool("ip"), "netns", "exec", self._switch, *command]

    def change(
        self, index: int | None = None, *, bandwidth: str | None = None, latency: str | None = None
    ) -> None:
        """Changes the links of all processes, or of process `index`, from now on.

        Args:
          index: of the process whose link changes; None: all links.
          bandwidth: limit in each direction; None: as it was.
          latency: how long what the process sends is on its way to any other; None: as it was.

        Raises:
          ValueError: a text is not a rate, or not a time.
          NetworkNamespaceError: the kernel refuses, or what holds packets back has ended.
        """
        for i in range(len(self.namespaces)) if index is None else [index]:
            if bandwidth is not None:
                self._limit(self.namespaces[i], "eth0", bits_per_second(bandwidth))
                self._limit(self._switch, f"port{i}", bits_per_second(bandwidth))
            if latency is not None:
                self._delay(i, latency_seconds(latency))

    def cut(self, index: int) -> None:
        """Drops what process `index` sends and what is sent to it; neither end is told."""
        if index in self._delayed:
            _run("tc", "-n", self._switch, "qdisc", "del", "dev", f"port{index}", "ingress")
        _run("ip", "-n", self._switch, "link", "set", f"port{index}", "nomaster")

    def _make_switch(self, cleanup: contextlib.ExitStack) -> None:
        _add(self._switch, cleanup)
        # It learns addresses from ARP alone where packets are delayed, so it must not forget them.
        _run(
            *("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge"),
            *("ageing_time", "100000000"),
        )
        address = f"{SWITCH_ADDRESS}/{_SUBNET.prefixlen}"
        _run("ip", "-n", self._switch, "address", "add", address, "dev", "bridge")
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
        _run("ip", "-n", worker, "link", "set", "eth0", "up")
        _run("ip", "-n", self._switch, "link", "set", port, "up")

    def _limit(self, namespace: str, device: str, rate: int) -> None:
        """Limits what leaves `namespace` through `device`, now or anew."""
        # Short bursts, so that small messages are slowed as on a real link; at high rates the
        # bucket must last from one timer interrupt to the next.
        burst = max(4000, rate // 8 // 4000)
        # A bucket that shrinks is a new one, without the packets that wait: one that is larger than
        # the bucket would wait for ever.
        handle, old_burst = self._buckets.get((namespace, device), (1, burst))
        handle += burst < old_burst
        self._buckets[namespace, device] = handle, burst
        _run(
            *("tc", "-n", namespace, "qdisc", "replace", "dev", device),
            *("root", "handle", f"{handle:x}:", "tbf"),
            *("rate", f"{rate}bit", "burst", f"{burst}b", "latency", "400ms"),
        )

    def _delay(self, index: int, seconds: float) -> None:
        """Sets how long what process `index` sends is held back."""
        if not seconds and index not in self._delayed:
            return
        self._relay = self._relay or self._start_relay()
        try:
            self._relay.stdin.write(f"{self.addresses[index]} {seconds}\n".encode())
        except BrokenPipeError as error:
            raise NetworkNamespaceError("the relay that holds packets back has ended") from error
        if index not in self._delayed:
            self._redirect(index)
            self._delayed.add(index)

    def _start_relay(self) -> subprocess.Popen:
        relay = subprocess.Popen(
            [
                *(_tool("ip"), "netns", "exec", self._switch),
                *(sys.executable, "-I", delay_relay.__file__, "delay"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C in the terminal must not stop it
        )
        self._cleanup.callback(_end_relay, relay)
        if not relay.stdout.readline():
            message = relay.stderr.read().decode().strip().rpartition("\n")[2]
            raise NetworkNamespaceError(f"a latency needs TAP devices (/dev/net/tun): {message}")
        # Nothing but what is redirected may reach the relay.
        _run("ip", "-n", self._switch, "link", "set", "delay", "txqueuelen", "10000")
        _run("ip", "-n", self._switch, "link", "set", "delay", "master", "bridge")
        _run(
            *("ip", "-n", self._switch, "link", "set", "delay", "type", "bridge_slave"),
            *("learning", "off", "flood", "off", "mcast_flood", "off", "bcast_flood", "off"),
        )
        _run("ip", "-n", self._switch, "link", "set", "delay", "up")
        return relay

    def _redirect(self, index: int) -> None:
        """Makes the IP packets that come from process `index` pass the relay."""
        port = ("dev", f"port{index}")
        _run("tc", "-n", self._switch, "qdisc", "add", *port, "ingress")
        _run(
            *("tc", "-n", self._switch, "filter", "add", *port, "ingress", "protocol", "ip"),
            *("u32", "match", "u32", "0", "0"),
            *("action", "mirred", "egress", "redirect", "dev", "delay"),
        )


def _end_relay(relay: subprocess.Popen) -> None:
    with relay:  # which closes its standard input, and waits
        pass


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
            f"`{' '.join(command)}` failed: {result.stderr.strip()} ({_IN_A_CONTAINER})"
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
