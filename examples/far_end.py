"""Workers, and a web server at the far end of their links."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Sequence

from tf_gc import launch, network_namespaces

_PORT = 8000


def train(command: Sequence[str], folder: str, workers: int, bandwidth: str) -> int:
    """Runs a program on workers as tf_gc-launch does, with a folder at the far end of their links.

    Args:
      command: the program and its arguments, to which --data and the folder's URL are added.
      folder: what is served, by HTTP.
      workers: how many there are.
      bandwidth: limit of each worker's link, which carries what it reads and what it exchanges.
        Without root there are no such links, and a line says so.

    Returns:
      The exit code.
    """
    with contextlib.ExitStack() as servers:
        if problem := network_namespaces.why_unavailable():
            print(f"No links of {bandwidth} here ({problem}): all is on the loopback interface.")
            [port] = launch.free_ports(1)
            servers.enter_context(_served(folder, "127.0.0.1", port))
            return launch.launch([*command, f"--data=http://127.0.0.1:{port}"], workers=workers)
        address = network_namespaces.SWITCH_ADDRESS

        def serve(network):
            servers.enter_context(_served(folder, address, _PORT, network.switch_command))

        return launch.launch(
            [*command, f"--data=http://{address}:{_PORT}"],
            workers=workers,
            bandwidth=bandwidth,
            on_network=serve,
        )


@contextlib.contextmanager
def _served(folder, address, port, place: Callable[[list[str]], list[str]] = list):
    """Serves a folder, by a process where `place` puts it."""
    server = (sys.executable, "-u", "-m", "http.server", str(port))
    command = place([*server, "--bind", address, "--directory", folder])
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        if not process.stdout.readline():  # "Serving HTTP on ..."
            raise RuntimeError(f"{' '.join(command)} has ended: is the port taken?")
        try:
            yield
        finally:
            process.terminate()
