"""Worker processes that tests share: each runs functions, all at the same time.

    with Cluster(2) as cluster:
        first, second = cluster.run(programs.train, compressor)

The processes are real ones with TF_CONFIG set, and talk gRPC. They find a function,
and the classes of its arguments, by module and name, as `multiprocessing` does: they
import the program's main module, too, whose last lines must stand under

    if __name__ == "__main__":
"""

import contextlib
import json
import multiprocessing.connection
import os
import pickle
import signal
import tempfile
import time
import traceback

from tf_gc.launch import free_ports
from tf_gc.network_namespaces import NetworkNamespaces
from tf_gc.testing.forked import ForkedProcess

_TIMEOUT_SECONDS = 240
_GRACE_SECONDS = 30
_NETWORK_PORT = 20000


class WorkerError(RuntimeError):
    """A function failed in a worker; the message holds its traceback."""


class Cluster:
    """Workers 0 ... n - 1 on this machine.

    Attributes:
      workers: their number.
      broken: whether it is of no more use, as a function has failed or did not end.
      network: its `NetworkNamespaces`, or None without a bandwidth.
    """

    def __init__(self, workers, environment=None, absent=(), bandwidth=None):
        """Starts the processes.

        Args:
          workers: their number.
          environment: variables that they get, besides those of this process.
          absent: indices of workers that are not started, but in TF_CONFIG all the same.
          bandwidth: for instance "100mbit": each gets a network namespace whose only link
            has this limit in each direction; see `tf_gc.network_namespaces`.

        Raises:
          NetworkNamespaceError: namespaces cannot be made here, or not by this user.
        """
        self.workers = workers
        self.broken = False
        with contextlib.ExitStack() as resources:
            self._logs = resources.enter_context(tempfile.TemporaryDirectory())
            self.network = None
            if bandwidth:
                self.network = resources.enter_context(NetworkNamespaces(workers, bandwidth))
                self._addresses = [f"{host}:{_NETWORK_PORT}" for host in self.network.addresses]
            else:
                self._addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
            self._environment = environment or {}
            self._workers = {}
            resources.callback(self._stop)
            for index in range(workers):
                if index not in absent:
                    self.start(index)
            self._resources = resources.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def run(self, function, *args, **kwargs):
        """Returns the results of function(*args, **kwargs), in the workers' order.

        Raises:
          WorkerError: it raised in some worker, or a worker died.
        """
        self.begin(function, *args, **kwargs)
        return self.results()

    def results(self, indices=None):
        """Returns the results of what was begun, of all workers or of some.

        Raises:
          WorkerError: it raised in one of them, or that worker died.
        """
        indices = list(self._workers) if indices is None else list(indices)
        outcomes = self.end(indices)
        failures = [
            f"worker {index}: {type(outcome).__name__}: {outcome}\n{self._tail(index)}"
            for index, outcome in zip(indices, outcomes, strict=True)
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
            with contextlib.suppress(ConnectionError):  # of one that has died, as `end` says
                worker.connection.send_bytes(pickle.dumps((function, args, kwargs)))

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

    @property
    def pids(self):
        """The process ids of the workers, by index."""
        return {index: worker.process.pid for index, worker in self._workers.items()}

    def start(self, index):
        """Starts a worker that was absent, or that was killed, at its address."""
        self._workers[index] = _Worker(
            index, self._addresses, self._environment, self.log(index), self.network
        )

    def kill(self, index):
        """kill -9."""
        self._workers[index].process.kill()

    def stop(self, index):
        """Stops a worker, as a machine that hangs does."""
        self._workers[index].process.signal(signal.SIGSTOP)

    def close(self):
        """Ends all processes."""
        self._resources.close()

    def _stop(self):
        for worker in self._workers.values():
            worker.connection.close()  # ends an idle worker's loop
        for worker in self._workers.values():
            worker.process.stop()

    def log(self, index):
        """The file that has a worker's output."""
        return os.path.join(self._logs, f"{index}.log")

    def _tail(self, index):
        with open(self.log(index), encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-30:])


class _Worker:
    """One process, and the pipe to it."""

    def __init__(self, index, addresses, environment, log, network):
        self.connection, theirs = multiprocessing.Pipe()
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        self.process = ForkedProcess(
            _serve,
            theirs,
            environment={"TF_CONFIG": json.dumps(config), **environment},
            log=log,
            namespace=network and network.namespaces[index],
        )
        theirs.close()


def _serve(connection):
    """Runs in the worker: one function after the other, until the pipe is closed."""
    with contextlib.suppress(EOFError):
        while True:
            request = connection.recv_bytes()
            try:
                function, args, kwargs = pickle.loads(request)
                result = pickle.dumps(function(*args, **kwargs))
            except Exception as error:
                traceback.print_exc()
                result = pickle.dumps(_portable(error))
            connection.send_bytes(result)


def _portable(error):
    """The exception itself if pickle can carry it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return WorkerError(f"{type(error).__name__}: {error}")
    return error
