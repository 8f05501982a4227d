"""Where the processes of a cluster listen; docs/security.md says what follows from it."""

import json
import os
import socket
import subprocess
import sys
from unittest import mock

import reliability_programs as programs
from absl.testing import absltest, parameterized

import tf_gc.launch
from tests.cases import some_of
from tests.listening import listening
from tests.waiting import wait_until
from tf_gc.testing.cluster import Cluster

_CHIEF = """
import json
import os
import pathlib

from tests.listening import listening
from tests.waiting import wait_until

launcher = os.getppid()
children = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
servers = [
    pid for pid in children if b"tf_gc.server" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
]
for pid in servers:
    wait_until(lambda: listening(pid), "the server listens")
config = json.loads(os.environ["TF_CONFIG"])
print(json.dumps([config["cluster"], listening(launcher), [listening(pid) for pid in servers]]))
"""

_WORKER = """
import json
import os

import tf_gc
from tests.listening import listening

strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
cluster = strategy.cluster_resolver.cluster_spec().as_dict()
print(json.dumps([cluster["worker"], listening(os.getpid())]))
"""


def _host_and_port(address):
    host, port = address.split(":")
    return host, int(port)


class ListeningTest(parameterized.TestCase):
    def _launch(self, name, text, **processes):
        """Returns the lines that a program has written to its output."""
        program = self.create_tempfile(name, text).full_path
        lines = []
        with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))):
            command = [sys.executable, "-u", program]
            code = tf_gc.launch.launch(command, on_line=lines.append, **processes)
        self.assertEqual(code, 0, lines)
        return [line for line in lines if line.stream == "stdout"]

    def test_a_worker_listens_at_the_port_of_its_address_alone(self):
        with Cluster(2) as cluster:
            for port, sockets in cluster.run(programs.where_it_listens):
                self.assertEqual([port for _, port in sockets], [port])

    def test_the_launcher_listens_nowhere_and_its_servers_at_one_port_each(self):
        lines = self._launch("chief.py", _CHIEF, workers=2, ps=1)
        [line] = [line.text for line in lines if line.process == "chief"]
        cluster, launcher, servers = json.loads(line)
        addresses = {job: [_host_and_port(address) for address in cluster[job]] for job in cluster}
        self.assertEqual({host for job in addresses.values() for host, _ in job}, {"127.0.0.1"})
        self.assertEqual(launcher, [])
        expected = [place for job in ("worker", "ps") for place in addresses[job]]
        found = [tuple(place) for places in servers for place in places]
        self.assertCountEqual(found, expected)

    def test_workers_of_the_launcher_listen_at_one_loopback_port_each(self):
        lines = self._launch("worker.py", _WORKER, workers=2)
        for worker in range(2):
            [line] = [line.text for line in lines if line.process == f"worker {worker}"]
            addresses, sockets = json.loads(line)
            self.assertEqual([tuple(s) for s in sockets], [_host_and_port(addresses[worker])])
            self.assertEqual(sockets[0][0], "127.0.0.1")

    @some_of(
        ("[::1]", "::1"),
        (socket.gethostname(), "::"),
        ("localhost", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.2"),
    )
    def test_a_server_listens_where_its_address_is(self, host, expected):
        [port] = tf_gc.launch.free_ports(1)
        config = {"cluster": {"ps": [f"{host}:{port}"]}, "task": {"type": "ps", "index": 0}}
        server = subprocess.Popen(
            [sys.executable, "-m", "tf_gc.server"],
            env={
                **os.environ,
                "TF_CONFIG": json.dumps(config),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
        )
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        wait_until(lambda: listening(server.pid), "the server listens")
        self.assertEqual(listening(server.pid), [(expected, port)])


if __name__ == "__main__":
    absltest.main()
