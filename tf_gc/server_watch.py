"""Notices that a process of a cluster is silent, though its connections are there.

When a process ends, its machine closes its connections, and TensorFlow tells whoever waits for it.
One that hangs or is cut off leaves them open, and with parameter servers TensorFlow, which has no
heartbeat there, waits for ever. This closes them in its place.
"""

import ipaddress
import os
import socket
import stat
import threading
import time
from collections.abc import Mapping

from absl import logging

# How long a process may be silent.
SILENCE_SECONDS = 30.0

_INTERVAL_SECONDS = 5.0
# What begins a connection of HTTP/2, and its first frame, which is empty: gRPC's servers answer it
# with theirs, whatever the program does (RFC 9113, sections 3.4 and 6.5).
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])

_watched = set()  # addresses, by strategies before too


def watch(addresses: Mapping[str, str]) -> None:
    """Closes this process's connections to others that are silent for `SILENCE_SECONDS`.

    What waits for such a process then ends with `tf.errors.UnavailableError`, as when it was
    killed. Goes on in threads of its own, one for each address, until this process ends.

    Args:
      addresses: of gRPC servers, "host:port", by the names that the log has for them.
    """
    for name, address in addresses.items():
        if address in _watched:
            continue
        _watched.add(address)
        threading.Thread(
            target=_watch, args=(name, address), name=f"watch {name}", daemon=True
        ).start()


def host_and_port(address: str) -> tuple[str, int]:
    """Returns the parts of an address, of which an IPv6 host may be in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _watch(name, address):
    heard = time.monotonic()
    while True:
        begin = time.monotonic()
        if _answers(address):
            heard = begin
        elif time.monotonic() - heard > SILENCE_SECONDS:
            closed = _close_connections(address)
            if closed:
                logging.error(
                    "tf_gc: %s (%s) has been silent for %.0f s, and is taken for dead: %d"
                    " connections to it are closed. End its process where it hangs",
                    name,
                    address,
                    time.monotonic() - heard,
                    closed,
                )
        time.sleep(_INTERVAL_SECONDS)


def _answers(address):
    try:
        with socket.create_connection(host_and_port(address), timeout=SILENCE_SECONDS) as peer:
            peer.sendall(_GREETING)
            return bool(peer.recv(1))
    except OSError:
        return False


def _close_connections(address):
    """Returns how many there were."""
    host, port = host_and_port(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return 0
    peers = {_end(sockaddr) for *_, sockaddr in found}
    return sum(_close_if(int(descriptor), peers) for descriptor in os.listdir("/proc/self/fd"))


def _close_if(descriptor, peers):
    """Closes a connection to one of the peers; returns whether it is one."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            is_internet = connection.family in (socket.AF_INET, socket.AF_INET6)
            if not is_internet or _end(connection.getpeername()) not in peers:
                return False
            connection.shutdown(socket.SHUT_RDWR)  # which is the original's, too
            return True
    except OSError:  # not connected, or closed meanwhile
        return False


def _end(sockaddr):
    """Returns address and port, the same for IPv4 within IPv6."""
    address = ipaddress.ip_address(sockaddr[0].partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address, sockaddr[1]
