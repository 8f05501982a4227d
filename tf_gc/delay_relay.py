"""Holds back the packets of a network for a time: netem's delay, where the kernel has no netem.

`tf_gc.network_namespaces` runs this file as a program, in the namespace of its switch:

    python delay_relay.py DEVICE

It makes the TAP device DEVICE, and writes a line when that is there. Every IPv4 packet that the
kernel sends through DEVICE comes back out of it after the delay of its source address. Standard
input sets delays, one a line: an address and seconds, such as "10.77.0.1 0.005". The program ends,
and DEVICE is gone, at the end of its standard input.

Packets keep their virtio header, so that large TCP segments stay whole and checksums are left to
whoever needs them. Those of one source stay in order, also when its delay becomes shorter.
"""

import contextlib
import fcntl
import heapq
import io
import os
import select
import socket
import struct
import sys
import time

# Of <linux/if_tun.h>.
_TUNSETIFF = 0x400454CA
_TUNSETOFFLOAD = 0x400454D0
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4, _TUN_F_TSO6, _TUN_F_TSO_ECN = 1, 2, 4, 8

_LARGEST_PACKET = 1 << 17
_PACKETS_AT_ONCE = 64
_VIRTIO_HEADER, _ETHERNET_HEADER = 10, 14
_TYPE = slice(_VIRTIO_HEADER + 12, _VIRTIO_HEADER + 14)
_SOURCE = slice(_VIRTIO_HEADER + _ETHERNET_HEADER + 12, _VIRTIO_HEADER + _ETHERNET_HEADER + 16)
_IPV4 = b"\x08\x00"


class _Relay:
    """The packets that are on their way."""

    def __init__(self, tap: int):
        self._tap = tap
        self._delays: dict[bytes, float] = {}  # by address
        self._last_due: dict[bytes, float] = {}
        self._held: list[tuple[float, int, bytes]] = []  # a heap: when due, number, packet
        self._number = 0

    def set_delay(self, command: bytes) -> None:
        address, seconds = command.decode().split()
        self._delays[socket.inet_aton(address)] = float(seconds)

    def seconds_to_next(self) -> float | None:
        """Returns how long to wait for packets; None when no packet is held."""
        return max(0.0, self._held[0][0] - time.monotonic()) if self._held else None

    def take(self) -> None:
        """Reads what has come."""
        now = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            for _ in range(_PACKETS_AT_ONCE):
                packet = os.read(self._tap, _LARGEST_PACKET)
                if packet[_TYPE] == _IPV4:
                    self._hold(packet, now)

    def _hold(self, packet, now):
        source = packet[_SOURCE]
        due = now + self._delays.get(source, 0.0)
        due = self._last_due[source] = max(due, self._last_due.get(source, 0.0))
        self._number += 1
        heapq.heappush(self._held, (due, self._number, packet))

    def send(self) -> None:
        """Writes what is due."""
        now = time.monotonic()
        while self._held and self._held[0][0] <= now:
            packet = heapq.heappop(self._held)[2]
            with contextlib.suppress(OSError):  # a lost packet, as on any network
                os.write(self._tap, packet)


def _open_tap(device: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", device.encode(), flags))
    fcntl.ioctl(tap, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4 | _TUN_F_TSO6 | _TUN_F_TSO_ECN)
    return tap


def main() -> None:
    tap = _open_tap(sys.argv[1])
    with contextlib.suppress(OSError):  # where it may not, packets are late when all cores are busy
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    print(flush=True)
    relay = _Relay(tap)
    commands = io.FileIO(0)  # select does not see what lies in a buffer
    while True:
        readable, _, _ = select.select([tap, commands], [], [], relay.seconds_to_next())
        if commands in readable:
            command = commands.readline()
            if not command:
                return
            relay.set_delay(command)
        if tap in readable:
            relay.take()
        relay.send()


if __name__ == "__main__":
    main()
