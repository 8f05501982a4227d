"""The processes of a cluster: their places, addresses and environments."""

import collections
import contextlib
import ctypes
import ipaddress
import json
import os
import random
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import BinaryIO, NamedTuple

# Below the ports that Linux lends to outgoing connections, one of which could otherwise take the
# port of a worker that is still starting.
PORTS = range(20000, 30000)

_PRELOADED = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "preloaded.so"))

# How many threads one of TensorFlow's ops may use, unless the program itself says so.
_THREADS = "TF_NUM_INTRAOP_THREADS"

# What glibc keeps at the end of each heap, as large as heaps of threads become, so that none is
# given back; and the size from which on a block is taken from the system by itself, the largest
# that glibc allows. Nothing is taken from the system before it is used.
_KEPT_MEMORY = {"MALLOC_TOP_PAD_": str(64 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}

_PROXIES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")
_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)


class LaunchError(RuntimeError):
    """Processes cannot be started; the message says what to do."""


class Task(NamedTuple):
    """A place in the cluster, in TF_CONFIG's words."""

    type: str
    index: int
    is_server: bool

    @property
    def name(self) -> str:
        return self.type if self.type == "chief" else f"{self.type} {self.index}"


def cluster_tasks(workers: int, ps: int) -> list[Task]:
    """Returns the places of so many workers and parameter servers and, with these, a chief."""
    sizes = {"worker": workers, "ps": ps, "chief": 1} if ps else {"worker": workers}
    return [
        Task(type_, index, is_server=ps > 0 and type_ != "chief")
        for type_, size in sizes.items()
        for index in range(size)
    ]


class Process:
    """One process of the cluster, leader of a session and process group of its own."""

    def __init__(
        self,
        task: Task,
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

    def start(self, stdin: int = subprocess.DEVNULL, output: int | None = subprocess.PIPE) -> None:
        """Starts it for the first time, or again after `reap`; streams are as `Popen` has them."""
        self.popen = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=stdin,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_die_with_parent(os.getpid()),
        )

    def has_exited(self) -> bool:
        """Says so without reaping the process, which keeps its process id taken."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.popen.pid, options) is not None

    def signal(self, number: int) -> None:
        """Sends a signal to the process and to those that it started."""
        self._signal_group(number)

    def reap(self) -> int:
        """Kills what is left of the process group and returns the exit code of its leader."""
        # Before the wait: while the leader is unreaped no other group can have this number.
        self._signal_group(signal.SIGKILL)
        return self.popen.wait()

    def _signal_group(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)

    def describe_end(self) -> str:
        code = self.popen.returncode
        if code >= 0:
            return f"exit code {code}"
        named = {number.value: number.name for number in signal.Signals}
        return f"killed by {named.get(-code, f'signal {-code}')}"

    def shell_exit_code(self) -> int:
        code = self.popen.returncode
        return code if code >= 0 else 128 - code


def _die_with_parent(parent: int) -> Callable[[], None]:
    """Returns what a child calls so that it is killed when the launcher dies in any way."""

    def prepare():
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)

    return prepare


def task_environment(
    cluster: dict[str, list[str]], task: Task, variables: Mapping[str, str]
) -> dict[str, str]:
    """Returns this process's environment with TF_CONFIG and `variables`, without proxies, and with
    memory kept (see `keep_memory`).
    """
    environment = {**os.environ, **variables}
    keep_memory(environment)
    remove_proxies(environment)
    config = {"cluster": cluster, "task": {"type": task.type, "index": task.index}}
    environment["TF_CONFIG"] = json.dumps(config)
    keep_to_loopback(environment, cluster[task.type][task.index])
    return environment


def share_of_cores(processes: int) -> dict[str, str]:
    """Returns the variables that give each of so many processes its share of this machine's cores,
    one or more; none for one process, or where this process's environment has one.

    TensorFlow gives each process a thread for every core. Threads of several processes, which wait
    for each other in every step, take the cores from each other.
    """
    if processes == 1 or _THREADS in os.environ:
        return {}
    return {_THREADS: str(max(1, len(os.sched_getaffinity(0)) // processes))}


def keep_memory(environment: MutableMapping[str, str]) -> None:
    """Has glibc keep the memory of one step for the next, unless the environment tunes it already.

    By itself glibc gives the end of a heap back to the system as soon as it is free. TensorFlow
    frees a step's tensors and allocates them again: each page of them, each step, is a page fault.
    What is preloaded, if it can be, sees to it that TensorFlow leaves this as it is.
    """
    if not any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in environment):
        environment.update(_KEPT_MEMORY)
        if os.path.exists(_PRELOADED) and _can_be_preloaded():
            _preload(environment)


def keep_to_loopback(environment: MutableMapping[str, str], address: str) -> bool:
    """Has a process's TensorFlow server listen on the loopback interface alone, if its address is
    there; TensorFlow's own choice is all addresses of the machine.

    Args:
      environment: that the process is to be started with.
      address: the process's own, in TF_CONFIG.

    Returns:
      Whether that has changed the environment.

    Raises:
      LaunchError: the library that does it is missing, or its path cannot be preloaded.
    """
    host, _, port = address.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.strip("[]")
    variables = {"TF_GC_LOOPBACK_HOST": host, "TF_GC_LOOPBACK_PORT": port}
    if not _is_loopback(host) or variables.items() <= environment.items():
        return False
    if not os.path.exists(_PRELOADED):
        raise LaunchError(
            f"{_PRELOADED} is missing, which keeps servers on the loopback interface: run "
            "./setup.sh in a clone, or install tf_gc again"
        )
    if not _can_be_preloaded():
        raise LaunchError(
            f"{_PRELOADED} keeps servers on the loopback interface, but cannot be preloaded: "
            "install tf_gc in a folder whose path has no space and no colon"
        )
    environment.update(variables)
    _preload(environment)
    return True


def _can_be_preloaded():
    """Whether the library's path has nothing where ld.so splits LD_PRELOAD, without an escape."""
    return not any(separator in _PRELOADED for separator in " :")


def _preload(environment):
    others = [name for name in environment.get("LD_PRELOAD", "").split(":") if name]
    environment["LD_PRELOAD"] = ":".join([*{**dict.fromkeys(others), _PRELOADED: None}])


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def remove_proxies(environment: MutableMapping[str, str]) -> None:
    """Removes the variables that name proxies; gRPC would look for the cluster behind them."""
    for name in [name for name in environment if name.lower() in _PROXIES]:
        del environment[name]


# Abstract addresses that tell of the ports that this process has given out. Whoever got the oldest
# ones has come to listen by now.
_claims = collections.deque()
_MOST_CLAIMS = 256


def free_ports(count: int) -> list[int]:
    """Returns ports of this machine that nothing listens on, and no outgoing connection takes.

    Nor are they those that another launch, which has not come to listen yet, has got from this.
    """
    ports = []
    with contextlib.ExitStack() as stack:
        for port in random.sample(PORTS, len(PORTS)):
            if len(ports) == count:
                return ports
            probe = stack.enter_context(socket.socket())
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                probe.bind(("", port))
                claim.bind(f"\0tf_gc port {port}")
            except OSError:
                claim.close()
                continue
            ports.append(port)
            _claims.append(claim)
            if len(_claims) > _MOST_CLAIMS:
                _claims.popleft().close()
    raise OSError(f"fewer than {count} free ports in {PORTS}")
