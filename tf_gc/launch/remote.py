"""Runs one process of a launch on another machine, where ssh has started this:

    python -m tf_gc.launch.remote '{"cluster": {...}, "task": [...], "command": [...]}'

Each byte of its standard input is the number of a signal for the process. The end of the input,
which is that of the launcher or of the connection to it, kills the process.
"""

import json
import os
import select
import signal
import sys

from tf_gc.launch.processes import LaunchError, Process, Task, task_environment

_POLL_SECONDS = 0.1


def main(text: str) -> int:
    """Runs the command to its end; returns its exit code, as a shell does."""
    # Where it is inherited as ignored, exit codes would be lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    order = json.loads(text)
    task = Task(*order["task"])
    environment = task_environment(order["cluster"], task, {})
    process = Process(task, order["command"], environment, log=None, restarts=0)
    process.start(output=None)  # this process's own
    while not process.has_exited():
        if select.select([sys.stdin], [], [], _POLL_SECONDS)[0]:
            for number in os.read(sys.stdin.fileno(), 64) or [signal.SIGKILL]:
                process.signal(number)
    process.reap()
    return process.shell_exit_code()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except LaunchError as error:
        sys.exit(f"tf_gc-launch: {error}")
