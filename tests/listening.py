"""Where a process listens."""

import contextlib
import ipaddress
import os
import pathlib
import sys

_LISTEN = "0A"  # of the kernel's tcp_states.h


def listening(pid):
    """Returns the (address, port) pairs at which a process of this network accepts connections.

    The address is "0.0.0.0" or "::" where that is at all of the machine's addresses.
    """
    sockets = {
        f"socket:[{line[9]}]": _address(line[1])
        for table in ("tcp", "tcp6")
        for line in _table(pathlib.Path(f"/proc/{pid}/net/{table}"))
        if line[3] == _LISTEN
    }
    open_files = set()
    for file in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it is closed already
            open_files.add(os.readlink(file))
    return sorted(address for socket, address in sockets.items() if socket in open_files)


def _table(path):
    return [line.split() for line in path.read_text(encoding="ascii").splitlines()[1:]]


def _address(text):
    """Of such as 0100007F:1F90, words of 32 bits in the machine's order."""
    words, port = text.split(":")
    packed = b"".join(
        int(words[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(words), 8)
    )
    address = ipaddress.ip_address(packed)
    return str(getattr(address, "ipv4_mapped", None) or address), int(port, 16)
