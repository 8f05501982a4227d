"""Network namespaces that stand for machines, with names that they find each other by."""

import contextlib
import pathlib
import subprocess
import tempfile

from tf_gc.network_namespaces import NetworkNamespaces

# Of this machine's /etc/hosts and name they see other ones.
_ENTER = 'hostname "$0" && mount --bind "$1" /etc/hosts && shift && exec "$@"'


class Machines(contextlib.ExitStack):
    """Machines with a network between them, and the disk of this one.

    Attributes:
      network: a `NetworkNamespaces`.
    """

    def __init__(self, names):
        """Makes a machine of each name; what stands behind a dot is of a domain."""
        super().__init__()
        self._names = names
        self.network = self.enter_context(NetworkNamespaces(len(names)))
        self._hosts = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()), "hosts")
        lines = zip(self.network.addresses, names, strict=True)
        self._hosts.write_text(
            "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for address, name in lines)
        )

    def command(self, index, *command):
        """Returns the command that runs another one on a machine."""
        name = self._names[index].partition(".")[0]
        enter = ("sh", "-c", _ENTER, name, str(self._hosts))
        return self.network.command(index, ["unshare", "--uts", "--mount", *enter, *command])

    def start(self, index, *command, **kwargs):
        """Starts a process on a machine, without its output; it is killed at the end."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        process = subprocess.Popen(self.command(index, *command), **streams, **kwargs)
        self.callback(process.wait)
        self.callback(process.kill)
