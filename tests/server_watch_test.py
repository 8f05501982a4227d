"""Processes that are silent, and their connections."""

import socket
import threading
from unittest import mock

from absl.testing import absltest, parameterized

from tests.waiting import wait_until
from tf_gc import server_watch


class ServerWatchTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(mock.patch.object(server_watch, "SILENCE_SECONDS", 0.5))
        self.enter_context(mock.patch.object(server_watch, "_INTERVAL_SECONDS", 0.1))

    def listen(self, family=socket.AF_INET, host="127.0.0.1"):
        """A server whose connections the kernel makes; returns it and its address."""
        server = self.enter_context(socket.create_server((host, 0), family=family, backlog=100))
        host, port = server.getsockname()[:2]
        return server, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def connect(self, address):
        return self.enter_context(socket.create_connection(server_watch.host_and_port(address)))

    def wait_until_closed(self, connection):
        connection.settimeout(60)
        self.assertEqual(connection.recv(1), b"")

    @parameterized.parameters((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
    def test_connections_to_one_that_never_answers_are_closed(self, family, host):
        _, address = self.listen(family, host)
        _, other = self.listen(family, host)
        connection, untouched = self.connect(address), self.connect(other)
        with self.assertLogs(level="ERROR") as logs:
            server_watch.watch({"ps 3": address})
            self.wait_until_closed(connection)
            # Other tests' servers are still watched, and silent.
            wait_until(lambda: f"ps 3 ({address})" in " ".join(logs.output), "it is logged")
        untouched.sendall(b"still there")

    def test_connections_as_of_grpc_of_ipv4_within_ipv6_are_closed(self):
        _, address = self.listen()
        connection = self.enter_context(socket.socket(socket.AF_INET6))
        host, port = server_watch.host_and_port(address)
        connection.connect((f"::ffff:{host}", port))
        server_watch.watch({"ps 0": address})
        self.wait_until_closed(connection)

    def test_those_to_one_that_answers_stay_till_it_does_no_more(self):
        server, address = self.listen()
        answers = threading.Event()
        answers.set()
        greetings = []

        def serve():
            while answers.is_set():
                peer, _ = server.accept()
                with peer:
                    greetings.append(peer.recv(100))
                    if greetings[-1]:
                        peer.sendall(b"settings")

        connection = self.connect(address)
        first, _ = server.accept()
        self.enter_context(first)
        threading.Thread(target=serve, daemon=True).start()
        server_watch.watch({"worker 0": address})
        # Longer than it may be silent.
        wait_until(lambda: len(greetings) > 20, "it is called")
        connection.sendall(b"still there")
        self.assertEqual(first.recv(100), b"still there")
        self.assertTrue(greetings[0].startswith(b"PRI * HTTP/2.0"))
        answers.clear()
        self.wait_until_closed(connection)


if __name__ == "__main__":
    absltest.main()
