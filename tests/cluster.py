"""Worker processes that tests share: each runs functions, all at the same time.

    with Cluster(2) as cluster:
        first, second = cluster.run(programs.train, compressor)

The processes are real ones with TF_CONFIG set, and talk gRPC; a function is found
by its module and name, so it must not be defined in the test's main module.
"""

import contextlib
import json
import multiprocessing.connection
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from tf_gc.launch import free_ports

_TIMEOUT_SECONDS = 240
_GRACE_SECONDS = 30


class WorkerError(RuntimeError):
    """A function failed in a worker; the message holds its traceback."""


class Cluster:
    """Workers 0 ... n - 1 on this machine."""

    def __init__(self, workers, environment=None, absent=()):
        """Starts them, but for those in `absent`, which are in TF_CONFIG all the same."""
        addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
        self.broken = False
        self._logs = tempfile.TemporaryDirectory()
        self._workers = {
            index: _Worker(index, addresses, environment or {}, self._log(index))
            for index in range(workers)
            if index not in absent
        }

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def run(self, function, *args, **kwargs):
        """Returns the results of function(*args, **kwargs), in the workers' order.

        Raises:
          WorkerError: it raised in some worker, or a worker died.
        """
        outcomes = self.outcomes(function, *args, **kwargs)
        failures = [
            f"worker {index}: {outcome}\n{self._tail(index)}"
            for index, outcome in zip(self._workers, outcomes, strict=True)
            if isinstance(outcome, Exception)
        ]
        if failures:
            self.broken = True  # TensorFlow's collectives may be
            raise WorkerError("\n".join(failures))
        return outcomes

    def outcomes(self, function, *args, **kwargs):
        """The same, with the exception in place of the result where one was raised."""
        self.begin(function, *args, **kwargs)
        return self.end()

    def begin(self, function, *args, **kwargs):
        """Makes all workers begin to run a function."""
        for worker in self._workers.values():
            worker.connection.send((function, args, kwargs))

    def end(self, indices=None):
        """Returns the results, or the exceptions, of all workers or of some.

        When one has failed, the others have _GRACE_SECONDS to end as well; after
        a time-out the cluster is of no more use.
        """
        indices = list(self._workers) if indices is None else list(indices)
        waiting = {self._workers[index].connection: index for index in indices}
        outcomes = {}
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while waiting:
            ready = multiprocessing.connection.wait(waiting, deadline - time.monotonic())
            if not ready:
                self.broken = True
                for index in waiting.values():
                    outcomes[index] = TimeoutError(f"no answer\n{self._tail(index)}")
                break
            for connection in ready:
                index = waiting.pop(connection)
                outcomes[index] = self._receive(index)
                if isinstance(outcomes[index], Exception):
                    deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
        return [outcomes[index] for index in indices]

    def _receive(self, index):
        try:
            return pickle.loads(self._workers[index].connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            self.broken = True
            return WorkerError(f"the process died\n{self._tail(index)}")

    def kill(self, index):
        """kill -9."""
        self._workers[index].process.kill()

    def close(self):
        for worker in self._workers.values():
            worker.stop()
        self._logs.cleanup()

    def _log(self, index):
        return os.path.join(self._logs.name, f"{index}.log")

    def _tail(self, index):
        with open(self._log(index), encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-30:])


class _Worker:
    """One process, and the pipe to it."""

    def __init__(self, index, addresses, environment, log):
        self.connection, theirs = multiprocessing.connection.Pipe()
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TF_CONFIG": json.dumps(config),
            "TF_CPP_MIN_LOG_LEVEL": "2",
            **environment,
        }
        with open(log, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), str(theirs.fileno())],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        theirs.close()

    def stop(self):
        self.connection.close()  # ends an idle worker's loop
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=1)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def _serve(connection):
    """Runs in the worker: one function after the other, until the pipe is closed."""
    with contextlib.suppress(EOFError):
        while True:
            function, args, kwargs = connection.recv()
            try:
                result = pickle.dumps(function(*args, **kwargs))
            except Exception as error:
                traceback.print_exc()
                sys.stdout.flush()
                result = pickle.dumps(_portable(error))
            connection.send_bytes(result)
    os._exit(0)  # not waiting for workers that have died


def _portable(error):
    """The exception itself if pickle can carry it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return WorkerError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    _serve(multiprocessing.connection.Connection(int(sys.argv[1])))
