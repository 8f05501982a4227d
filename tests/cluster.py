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
import socket
import subprocess
import sys
import tempfile
import traceback

_TIMEOUT_SECONDS = 240


class WorkerError(RuntimeError):
    """A function failed in a worker; the message holds its traceback."""


class Cluster:
    """Workers 0 ... n - 1 on this machine."""

    def __init__(self, workers, environment=None, absent=()):
        """Starts them, but for those in `absent`, which are in TF_CONFIG all the same."""
        addresses = _free_addresses(workers)
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
        for index, outcome in enumerate(outcomes):
            if isinstance(outcome, Exception):
                raise WorkerError(f"worker {index}: {outcome}\n{self._tail(index)}")
        return outcomes

    def outcomes(self, function, *args, **kwargs):
        """The same, with the exception in place of the result where one was raised."""
        self.begin(function, *args, **kwargs)
        return [self.end(index) for index in self._workers]

    def begin(self, function, *args, **kwargs):
        """Makes all workers begin to run a function."""
        for worker in self._workers.values():
            worker.connection.send((function, args, kwargs))

    def end(self, index):
        """Returns the result, or the exception, of one worker."""
        connection = self._workers[index].connection
        if not connection.poll(_TIMEOUT_SECONDS):
            return TimeoutError(f"no answer in {_TIMEOUT_SECONDS} s\n{self._tail(index)}")
        try:
            return pickle.loads(connection.recv_bytes())
        except EOFError:
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


def _free_addresses(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]


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
