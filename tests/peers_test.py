"""Waiting for the other workers to start."""

import socket
import threading

import tensorflow as tf
from absl.testing import absltest, parameterized
from tf_gc.strategy.peers import wait_for_peers

from tests.waiting import wait_until
from tf_gc.launch import free_ports


def _answers(address):
    try:
        socket.create_connection(address).close()
    except ConnectionRefusedError:
        return False
    return True


class WaitForPeersTest(parameterized.TestCase):
    @parameterized.parameters("127.0.0.1", "localhost", "::1")
    def test_a_worker_answers_until_the_other_one_does(self, host):
        ports = free_ports(2)
        workers = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for port in ports]
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": workers}), task_type="worker", task_id=0
        )
        waiting = threading.Thread(target=wait_for_peers, args=(resolver, 60))
        waiting.start()
        wait_until(lambda: _answers((host, ports[0])), "the worker answers")
        self.assertTrue(waiting.is_alive())
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, ports[1]), family=family):
            waiting.join(60)
        self.assertFalse(waiting.is_alive())


if __name__ == "__main__":
    absltest.main()
