"""Waiting for the other workers to start."""

import contextlib
import socket
import threading
from unittest import mock

import tensorflow as tf
from absl.testing import absltest, parameterized
from tf_gc.strategy import peers
from tf_gc.strategy.peers import wait_for_peers

from tests.waiting import wait_until
from tf_gc.launch import free_ports


def _answers(address):
    try:
        socket.create_connection(address).close()
    except ConnectionRefusedError:
        return False
    return True


@contextlib.contextmanager
def _waiting_at(host):
    """Yields the port of a worker at this host that waits for another one; and ends its wait."""
    own, other = free_ports(2)
    workers = [f"[{host}]:{own}" if ":" in host else f"{host}:{own}", f"127.0.0.1:{other}"]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": workers}), task_type="worker", task_id=0
    )
    waiting = threading.Thread(target=wait_for_peers, args=(resolver, 60))
    waiting.start()
    try:
        yield own
        assert waiting.is_alive()
    finally:
        with socket.create_server(("127.0.0.1", other)):
            waiting.join(60)
    assert not waiting.is_alive()


class WaitForPeersTest(parameterized.TestCase):
    @parameterized.parameters("127.0.0.1", "localhost", "::1")
    def test_a_worker_answers_until_the_other_one_does(self, host):
        with _waiting_at(host) as port:
            wait_until(lambda: _answers((host, port)), "the worker answers")

    def test_it_answers_at_its_own_address_alone(self):
        with _waiting_at("127.0.0.1") as port:
            wait_until(lambda: _answers(("127.0.0.1", port)), "the worker answers")
            self.assertFalse(_answers(("127.0.0.2", port)))

    def test_it_answers_everywhere_if_its_address_is_none_of_this_machine(self):
        with _waiting_at("192.0.2.1") as port:
            wait_until(lambda: _answers(("127.0.0.2", port)), "the worker answers")

    def test_it_answers_however_many_call_and_frees_the_address(self):
        threads = threading.active_count()
        with _waiting_at("127.0.0.1") as port:
            wait_until(lambda: _answers(("127.0.0.1", port)), "the worker answers")
            for _ in range(300):  # more than the server's queue takes
                socket.create_connection(("127.0.0.1", port), timeout=30).close()
        self.assertEqual(threading.active_count(), threads)
        socket.create_server(("127.0.0.1", port)).close()

    def test_a_warning_names_who_is_missing(self):
        with mock.patch.object(peers, "_QUIET_SECONDS", 0.0), self.assertLogs("absl") as logs:
            with _waiting_at("127.0.0.1"):
                wait_until(lambda: logs.output, "it has said something")
            [line] = logs.output  # and not with every call
        self.assertRegex(line, r"waits for \d+ s: not started: worker 1 \(127.0.0.1:\d+\)")

    @parameterized.named_parameters(
        ("loopback", [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]),
        ("unknown", socket.gaierror()),
    )
    def test_it_answers_everywhere_if_its_name_has_no_address_for_others(self, found):
        resolve = socket.getaddrinfo

        def look_up(host, *args, **kwargs):
            if host != "machine":
                return resolve(host, *args, **kwargs)
            if isinstance(found, Exception):
                raise found
            return found

        with mock.patch.object(socket, "getaddrinfo", look_up), _waiting_at("machine") as port:
            wait_until(lambda: _answers(("127.0.0.2", port)), "the worker answers")


if __name__ == "__main__":
    absltest.main()
