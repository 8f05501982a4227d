"""Processes that have imported TensorFlow when they begin.

TensorFlow takes seconds to import. A process that has done so, and nothing else, is started once
for each program; the others are its forks. TensorFlow starts its threads when it is first used, not
when it is imported, so that it may be forked until then. For the same reason that process is
itself a fork of the program, if the program has not used TensorFlow yet: it imports nothing again.
"""

import contextlib
import ctypes
import faulthandler
import gc
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import pathlib
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from unittest import mock

from tf_gc import network_namespaces

_PRELOADED = ["tf_gc.ops", "tf_gc.strategy", "tf_gc.testing.programs"]
_ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
_M_MMAP_THRESHOLD = -3  # <malloc.h>


class ForkedProcess:
    """Calls a function in a process of its own, and ends with it."""

    def __init__(
        self,
        function: Callable[..., None],
        *args,
        environment: Mapping[str, str],
        log: str,
        namespace: str | None = None,
    ):
        """Starts it.

        Args:
          function: of a module that the process can import.
          args: of the function. Connections may be among them.
          environment: variables that the process gets, besides those of this one.
          log: the file to which it appends its output.
          namespace: the network namespace in which it is, or None for this one's.
        """
        forks = multiprocessing.get_context("forkserver")
        forks.set_forkserver_preload(_PRELOADED)
        environment = {**os.environ, **_ENVIRONMENT, **environment}
        # The first fork starts the process that imports TensorFlow, which must find all that this
        # one does, and nothing in the current folder.
        path = os.pathsep.join(filter(None, sys.path))
        with (
            mock.patch.dict(os.environ, _ENVIRONMENT, PYTHONPATH=path, PYTHONSAFEPATH="1"),
            _forked_server() if _may_be_forked() else contextlib.nullcontext(),
        ):
            self._process = forks.Process(
                target=_begin, args=(function, args, environment, log, namespace), daemon=True
            )
            self._process.start()

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def processor_seconds(self) -> float:
        """The processor time that it has taken so far."""
        stat = pathlib.Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """kill -9, and waits until it is dead."""
        self._process.kill()
        self._process.join()

    def stop(self) -> None:
        """Gives it a second to end by itself."""
        self._process.join(timeout=1)
        self.kill()


def _may_be_forked():
    """Whether this process has one thread that runs Python, and has not used TensorFlow yet.

    Nor `tf.keras`: which Keras that is, the environment of each process says.
    """
    if "tensorflow" in sys.modules:
        context = sys.modules["tensorflow.python.eager.context"]._context
        keras = vars(sys.modules["tensorflow"])["keras"]
        if getattr(context, "_context_handle", None) or not hasattr(keras, "_tfll_initialized"):
            return False
    return threading.active_count() == 1


@contextlib.contextmanager
def _forked_server():
    """multiprocessing's server of forks, if it is started here, is a fork of this process."""
    multiprocessing.resource_tracker.ensure_running()  # which is no fork
    with mock.patch.object(multiprocessing.util, "spawnv_passfds", _fork):
        yield


def _fork(_, arguments, descriptors):
    """A fork that runs the code at the arguments' end; of what is open it keeps the descriptors."""
    pid = os.fork()
    if pid == 0:
        try:
            kept = {0, 1, 2, *descriptors}
            for descriptor in {int(name) for name in os.listdir("/proc/self/fd")} - kept:
                with contextlib.suppress(OSError):  # of the one that listed them
                    os.close(descriptor)
            exec(arguments[-1], {})
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(0)
    return pid


def _begin(function, args, environment, log, namespace):
    with open(log, "a", encoding="utf-8") as output:
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
    gc.freeze()  # TensorFlow's modules, which collections need not look through
    # glibc gives blocks of this size back when they are freed: resident memory is memory in use.
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 2**18)
    faulthandler.enable()  # shows where a process has crashed
    os.environ.clear()
    os.environ.update(environment)
    if namespace:
        network_namespaces.enter(namespace)
    function(*args)
    sys.stdout.flush()
    os._exit(0)  # not waiting for workers that have died
