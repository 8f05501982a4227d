"""Clusters with parameter servers: servers that may be killed and stopped, and a chief."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile

from tf_gc.launch import free_ports
from tf_gc.testing.cluster import Cluster


class ServerCluster:
    """Real processes on this machine: workers, parameter servers, and a chief that runs functions.

    Args:
      workers: their number.
      ps: the number of parameter servers.
      environment: variables that all processes get, besides those of this one.
      ps_program: what parameter servers run, as arguments of Python.
    """

    def __init__(self, workers, ps=1, environment=None, ps_program=("-m", "tf_gc.server")):
        ports = iter(free_ports(workers + ps + 1))
        self._cluster = {
            job: [f"127.0.0.1:{next(ports)}" for _ in range(count)]
            for job, count in (("worker", workers), ("ps", ps), ("chief", 1))
        }
        self._environment = environment or {}
        self._programs = {"worker": ("-m", "tf_gc.server"), "ps": ps_program}
        self._servers = {}
        with contextlib.ExitStack() as resources:
            self._logs = resources.enter_context(tempfile.TemporaryDirectory())
            resources.callback(self._stop)
            for job in ("worker", "ps"):
                for index in range(len(self._cluster[job])):
                    self.start(job, index)
            chief = {**self._environment, "TF_CONFIG": self._config("chief", 0)}
            self._chief = resources.enter_context(Cluster(1, chief))
            self._resources = resources.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    @property
    def broken(self):
        return self._chief.broken or any(s.poll() is not None for s in self._servers.values())

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
        environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            **self._environment,
            "TF_CONFIG": self._config(job, index),
        }
        with open(self.log(job, index), "a", encoding="utf-8") as output:
            self._servers[job, index] = subprocess.Popen(
                [sys.executable, "-P", *self._programs[job]],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def kill(self, job, index):
        """kill -9."""
        self._servers[job, index].kill()
        self._servers[job, index].wait()

    def stop(self, job, index):
        """Stops a server, as a machine that hangs does."""
        self._servers[job, index].send_signal(signal.SIGSTOP)

    def resume(self, job, index):
        self._servers[job, index].send_signal(signal.SIGCONT)

    def log(self, job, index):
        return os.path.join(self._logs, f"{job}-{index}.log")

    def close(self):
        """Ends all processes."""
        self._resources.close()

    def _stop(self):
        for server in self._servers.values():
            server.kill()
        for server in self._servers.values():
            server.wait()

    def _config(self, job, index):
        return json.dumps({"cluster": self._cluster, "task": {"type": job, "index": index}})
