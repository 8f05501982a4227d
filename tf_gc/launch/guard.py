"""What is left to do when the launcher is killed."""

import contextlib
import os
import subprocess
from collections.abc import Sequence

from tf_gc.launch.processes import Process


class Guard:
    """Kills the processes of a launcher that was killed itself, and what they have started.

    Each leads a process group, and the kernel itself kills the leaders alone. The guard is a
    process that reads their numbers; the end of its input tells it that the launcher is gone.
    """

    _PROGRAM = """
    while read -r line; do groups=$line; done
    [ -z "$groups" ] || kill -s KILL -- $groups
    exec rm -rf -- "$1"
    """

    def __init__(self, folder: str):
        """Begins to guard; `folder` is removed if the launcher is killed."""
        self._popen = subprocess.Popen(
            ["/bin/sh", "-c", self._PROGRAM, "tf_gc-launch guard", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> "Guard":
        return self

    def __exit__(self, *exc_info) -> None:
        self._popen.kill()
        self._popen.wait()
        self._popen.stdin.close()

    def watch(self, processes: Sequence[Process]) -> None:
        """Says which processes there are now."""
        groups = " ".join(f"-{process.popen.pid}" for process in processes)
        with contextlib.suppress(BrokenPipeError):  # somebody has killed the guard
            os.write(self._popen.stdin.fileno(), f"{groups}\n".encode())
