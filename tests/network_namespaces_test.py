"""Rates, delays and changes of the links between network namespaces, on real ones."""

import concurrent.futures
import contextlib
import functools
import hashlib
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

from absl.testing import absltest, parameterized

from tf_gc import network_namespaces
from tf_gc.network_namespaces import NetworkNamespaceError, NetworkNamespaces

_PINGS = 40
_TIMEOUT = 60.0
# Of the least of many round trips: what two switches between processes may take.
_LATE_SECONDS = 5e-3

_needs_namespaces = absltest.skipIf(
    network_namespaces.why_unavailable(),
    f"no network namespaces here: {network_namespaces.why_unavailable()}",
)

# What the far end runs.
_SERVE = f"""
import socket
with socket.create_server(({network_namespaces.SWITCH_ADDRESS!r}, 0)) as listening:
    print(listening.getsockname()[1], flush=True)
    for _ in range(2):
        with listening.accept()[0] as end:
            end.sendall(bytes(500_000))
"""


def _in_namespace(namespace, function):
    """Returns what `function` returns; the sockets that it makes are of this namespace."""

    def run():
        network_namespaces.enter(namespace)
        return function()

    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(run).result()


def _connect(network, client, server):
    """Returns the two ends of a TCP connection between processes of these numbers."""
    address = network.addresses[server]
    listening = _in_namespace(
        network.namespaces[server], lambda: socket.create_server((address, 0))
    )
    with listening:
        ends = (
            _in_namespace(
                network.namespaces[client],
                lambda: socket.create_connection(listening.getsockname(), _TIMEOUT),
            ),
            listening.accept()[0],
        )
    for end in ends:
        end.settimeout(_TIMEOUT)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ends


def _datagrams(network, index):
    """Returns a bound UDP socket of this process."""

    def make():
        end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        end.bind((network.addresses[index], 0))
        end.settimeout(_TIMEOUT)
        return end

    return _in_namespace(network.namespaces[index], make)


def _echo(end):
    while data := end.recv(1):
        end.sendall(data)


@contextlib.contextmanager
def _echoed(network, client, server):
    """Yields a connection to a process that returns what it gets."""
    here, there = _connect(network, client, server)
    with here, there:
        thread = threading.Thread(target=_echo, args=(there,))
        thread.start()
        try:
            yield here
        finally:
            here.shutdown(socket.SHUT_WR)
            thread.join()


def _round_trip(connection):
    """Returns the seconds of the quickest of many."""
    seconds = []
    for _ in range(_PINGS):
        begin = time.monotonic()
        connection.sendall(b"x")
        connection.recv(1)
        seconds.append(time.monotonic() - begin)
    return min(seconds)


def _receive(end, size):
    data = bytearray()
    while len(data) < size and (more := end.recv(min(size - len(data), 1 << 20))):
        data += more
    return bytes(data)


def _transfer(network, client, server, data):
    """Returns what comes of a stream, and its seconds from the first byte on."""
    here, there = _connect(network, client, server)
    with here, there, concurrent.futures.ThreadPoolExecutor(1) as executor:
        sent = executor.submit(here.sendall, data)
        received = _receive(there, 1)
        begin = time.monotonic()
        received += _receive(there, len(data) - 1)
        seconds = time.monotonic() - begin
        sent.result()
    return received, seconds


def _bits_per_second(network, bits):
    """Returns the rate of the quickest of three streams of about 0.4 s each."""
    data = bytes(bits // 20)
    return max(
        8 * len(data) / seconds
        for received, seconds in (_transfer(network, 0, 1, data) for _ in range(3))
        if received == data
    )


class TextTest(parameterized.TestCase):
    @parameterized.parameters(
        ("5ms", 0.005), ("250us", 250e-6), ("0.1s", 0.1), ("0ms", 0.0), ("2MS", 0.002)
    )
    def test_a_time_has_a_unit(self, text, seconds):
        self.assertAlmostEqual(network_namespaces.latency_seconds(text), seconds)

    @parameterized.parameters("5", "ms", "-5ms", "5 ms", "", "1m", "1e3ms")
    def test_what_is_no_time_is_refused(self, text):
        with self.assertRaisesRegex(ValueError, "is not a time such as"):
            network_namespaces.latency_seconds(text)

    @parameterized.parameters(({"bandwidth": "100"},), ({"latency": "5"},))
    def test_arguments_are_checked_before_anything_is_made(self, arguments):
        with self.assertRaisesRegex(ValueError, "such as"):
            NetworkNamespaces(2, **arguments)


@_needs_namespaces
class LatencyTest(parameterized.TestCase):
    def check_round_trip(self, network, client, server, seconds):
        with _echoed(network, client, server) as connection:
            self.assertBetween(_round_trip(connection), seconds, seconds + _LATE_SECONDS)

    @parameterized.parameters(
        ("100mbit", "20ms", 0.04), (None, "7ms", 0.014), ("100mbit", None, 0.0)
    )
    def test_a_round_trip_takes_twice_the_latency(self, bandwidth, latency, seconds):
        with NetworkNamespaces(3, bandwidth, latency) as network:
            self.check_round_trip(network, 0, 1, seconds)
            self.check_round_trip(network, 2, 0, seconds)

    def test_it_changes_for_connections_that_are_open(self):
        with NetworkNamespaces(2, "100mbit") as network, _echoed(network, 0, 1) as connection:
            for latency, seconds in (("0ms", 0.0), ("30ms", 0.06), ("10ms", 0.02), ("0s", 0.0)):
                network.change(latency=latency)
                self.assertBetween(_round_trip(connection), seconds, seconds + _LATE_SECONDS)

    def test_of_many_changes_none_is_lost(self):
        with NetworkNamespaces(3, "100mbit", "1ms") as network:
            for milliseconds in range(100):
                network.change(latency=f"{milliseconds}ms")
            network.change(latency="15ms")
            for client, server in ((0, 1), (1, 2), (2, 0)):
                self.check_round_trip(network, client, server, 0.03)

    def test_one_process_can_have_a_latency_of_its_own(self):
        with NetworkNamespaces(3, "100mbit", "10ms") as network:
            network.change(1, latency="40ms")
            self.check_round_trip(network, 0, 1, 0.05)  # there in 10 ms, back in 40
            self.check_round_trip(network, 1, 2, 0.05)
            self.check_round_trip(network, 0, 2, 0.02)

    def test_every_packet_comes_once_and_in_order_also_when_the_latency_falls(self):
        with (
            NetworkNamespaces(2, latency="60ms") as network,
            _datagrams(network, 0) as here,
            _datagrams(network, 1) as there,
        ):
            for number in range(100):
                if number == 50:
                    network.change(latency="0ms")
                here.sendto(b"%d" % number, there.getsockname())
            received = [there.recvfrom(100) for _ in range(100)]
            self.assertEqual([int(data) for data, _ in received], [*range(100)])
            self.assertEqual({source for _, source in received}, {here.getsockname()})
            there.settimeout(0.2)
            self.assertRaises(TimeoutError, there.recv, 100)

    @parameterized.parameters(None, "1gbit")
    def test_a_stream_in_large_segments_arrives_whole(self, bandwidth):
        data = os.urandom(1 << 24)
        with NetworkNamespaces(2, bandwidth, "5ms") as network:
            received, _ = _transfer(network, 0, 1, data)
        self.assertEqual(hashlib.sha1(received).digest(), hashlib.sha1(data).digest())

    def test_a_process_that_is_cut_off_is_not_reached_and_reaches_none(self):
        with NetworkNamespaces(3, "100mbit", "5ms") as network:
            ends = [_datagrams(network, index) for index in range(3)]
            with contextlib.ExitStack() as stack:
                for end in ends:
                    stack.enter_context(end)
                for end in ends[1:]:  # all addresses are known
                    end.sendto(b"before", ends[0].getsockname())
                    self.assertEqual(ends[0].recv(100), b"before")
                    ends[0].sendto(b"before", end.getsockname())
                    self.assertEqual(end.recv(100), b"before")
                network.cut(1)
                ends[0].sendto(b"lost", ends[1].getsockname())
                ends[1].sendto(b"lost", ends[0].getsockname())
                ends[2].sendto(b"kept", ends[0].getsockname())
                self.assertEqual(ends[0].recv(100), b"kept")
                for end in ends[:2]:
                    end.settimeout(0.2)
                    self.assertRaises(TimeoutError, end.recv, 100)

    def test_what_holds_packets_back_ends_with_the_network(self):
        with NetworkNamespaces(2, latency="5ms") as network:
            relay = pathlib.Path("/proc", str(network._relay.pid))
            self.assertIn("delay_relay.py", (relay / "cmdline").read_text())
        self.assertFalse(relay.exists())

    def test_no_process_holds_packets_back_where_there_is_no_latency(self):
        with NetworkNamespaces(2, "100mbit", "0ms") as network:
            self.assertIsNone(network._relay)

    def test_a_change_after_the_relay_was_killed_is_an_error(self):
        with NetworkNamespaces(2, latency="5ms") as network:
            network._relay.kill()
            network._relay.wait()
            with self.assertRaisesRegex(NetworkNamespaceError, "has ended"):
                network.change(latency="6ms")

    def test_without_tap_devices_it_says_what_is_missing(self):
        script = self.create_tempfile(content="raise OSError('No such file: /dev/net/tun')")
        with (
            absltest.mock.patch.object(
                network_namespaces.delay_relay, "__file__", script.full_path
            ),
            self.assertRaisesRegex(NetworkNamespaceError, "needs TAP devices.*No such file"),
            NetworkNamespaces(2, latency="5ms"),
        ):
            pass
        self.assertEmpty([*pathlib.Path("/run/netns").glob(f"tf_gc-{os.getpid()}-*")])


@_needs_namespaces
class BandwidthTest(parameterized.TestCase):
    @parameterized.parameters(None, "1ms", "10ms")
    def test_a_stream_is_as_fast_as_the_link_also_after_a_change(self, latency):
        with NetworkNamespaces(2, "40mbit", latency) as network:
            for megabits in (40, 8, 40):
                network.change(bandwidth=f"{megabits}mbit")
                self.assertBetween(
                    _bits_per_second(network, megabits * 10**6) / 1e6,
                    0.7 * megabits,
                    1.1 * megabits,
                )

    def test_packets_that_wait_do_not_block_a_link_that_becomes_slower(self):
        """Each is sent as one of 5 KB, for which the bucket of the slow link has no room."""
        message = bytes(5000)
        with NetworkNamespaces(2, "200mbit") as network, contextlib.ExitStack() as stack:
            connections = [_connect(network, 0, 1) for _ in range(100)]
            for end in (end for ends in connections for end in ends):
                stack.enter_context(end)
            for here, _ in connections:
                here.sendall(message)
            network.change(bandwidth="10mbit")
            for _, there in connections:
                self.assertEqual(_receive(there, len(message)), message)

    def test_one_link_can_be_slower_than_the_others(self):
        with NetworkNamespaces(3, "200mbit") as network:
            network.change(2, bandwidth="8mbit")
            data = bytes(500_000)
            for client, server in ((0, 2), (2, 0)):
                _, seconds = _transfer(network, client, server, data)
                self.assertGreater(seconds, 0.4)  # half a second at 8 Mbit/s
            self.assertLess(min(_transfer(network, 0, 1, data)[1] for _ in range(3)), 0.4)

    @parameterized.parameters(None, "5ms")
    def test_the_far_end_of_all_links_is_reached_through_each(self, latency):
        with NetworkNamespaces(2, "200mbit", latency) as network:
            network.change(1, bandwidth="8mbit")
            command = network.switch_command([sys.executable, "-c", _SERVE])
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
                port = int(server.stdout.readline())
                seconds = []
                for namespace in network.namespaces:
                    address = (network_namespaces.SWITCH_ADDRESS, port)
                    with _in_namespace(
                        namespace, functools.partial(socket.create_connection, address, _TIMEOUT)
                    ) as end:
                        begin = time.monotonic()
                        self.assertLen(_receive(end, 500_000), 500_000)
                        seconds.append(time.monotonic() - begin)
        self.assertLess(seconds[0], 0.4)
        self.assertGreater(seconds[1], 0.4)  # half a second at 8 Mbit/s


if __name__ == "__main__":
    absltest.main()
