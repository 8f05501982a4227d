"""Clusters with parameter servers: servers that may be killed and stopped, and a chief."""

import contextlib
import json
import os
import signal
import tempfile

from tf_gc import server
from tf_gc.launch import free_ports
from tf_gc.testing.cluster import Cluster
from tf_gc.testing.forked import ForkedProcess


def serve():
    """What workers and parameter servers run, as `python -m tf_gc.server` does."""
    server.main(["tf_gc.server"])


class ServerCluster:
    """Real processes on this machine: workers, parameter servers, and a chief that runs functions.

    Args:
      workers: their number.
      ps: the number of parameter servers.
      ps_program: the function that parameter servers run.
      worker_program: the function that workers run.
    """

    def __init__(self, workers, ps=1, ps_program=serve, worker_program=serve):
        ports = iter(free_ports(workers + ps + 1))
        self._cluster = {
            job: [f"127.0.0.1:{next(ports)}" for _ in range(count)]
            for job, count in (("worker", workers), ("ps", ps), ("chief", 1))
        }
        self._programs = {"worker": worker_program, "ps": ps_program}
        self._servers = {}
        with contextlib.ExitStack() as resources:
            self._logs = resources.enter_context(tempfile.TemporaryDirectory())
            resources.callback(self._stop)
            for job in ("worker", "ps"):
                for index in range(len(self._cluster[job])):
                    self.start(job, index)
            chief = {"TF_CONFIG": self._config("chief", 0)}
            self._chief = resources.enter_context(Cluster(1, chief))
            self._resources = resources.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    @property
    def broken(self):
        return self._chief.broken or not all(s.running for s in self._servers.values())

    @property
    def pids(self):
        """The process ids, by job and index."""
        servers = {key: process.pid for key, process in self._servers.items()}
        return {**servers, ("chief", 0): self._chief.pids[0]}

    def run(self, function, *args, **kwargs):
        """Returns the result of function(*args, **kwargs) in the chief."""
        return self._chief.run(function, *args, **kwargs)[0]

    def begin(self, function, *args, **kwargs):
        """Makes the chief begin to run a function."""
        self._chief.begin(function, *args, **kwargs)

    def result(self):
        """Returns the result of what was begun."""
        return self._chief.results()[0]

    def outcome(self, function, *args, **kwargs):
        """The same as `run`, with the exception in place of the result where one was raised."""
        return self._chief.outcomes(function, *args, **kwargs)[0]

    def start(self, job, index):
        """Starts a server, or starts it again at the same address."""
        self._servers[job, index] = ForkedProcess(
            self._programs[job],
            environment={"TF_CONFIG": self._config(job, index)},
            log=self.log(job, index),
        )

    def kill(self, job, index):
        """kill -9."""
        self._servers[job, index].kill()

    def restart_chief(self):
        """kill -9, and a new process in its place."""
        self._chief.kill(0)
        self._chief.start(0)

    def stop(self, job, index):
        """Stops a server, as a machine that hangs does."""
        self._servers[job, index].signal(signal.SIGSTOP)

    def resume(self, job, index):
        self._servers[job, index].signal(signal.SIGCONT)

    def processor_seconds(self, job, index):
        """The processor time that a server has taken since it was started."""
        return self._servers[job, index].processor_seconds

    def log(self, job, index):
        return os.path.join(self._logs, f"{job}-{index}.log")

    def close(self):
        """Ends all processes."""
        self._resources.close()

    def _stop(self):
        for process in self._servers.values():
            process.kill()

    def _config(self, job, index):
        return json.dumps({"cluster": self._cluster, "task": {"type": job, "index": index}})
