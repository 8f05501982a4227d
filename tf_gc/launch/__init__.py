"""Starts the processes of a cluster, as torchrun does for PyTorch, here or by ssh elsewhere.

    tf_gc-launch --workers 4 train.py --epochs 3
    tf_gc-launch --workers 4 --bandwidth 100mbit -m my_package.train --epochs 3
    tf_gc-launch --workers 4 --link_changes links.csv train.py --epochs 3
    tf_gc-launch --workers 4 --ps 1 train.py --epochs 3
    tf_gc-launch --hosts machine1,machine2 train.py --epochs 3

Every process gets TF_CONFIG and is otherwise an ordinary run of the program, or with parameter
servers, of `tf_gc.server`: then the program runs once, as the chief. `launch` is the same for use
from Python. TensorFlow is not imported here, so starting costs nothing.
"""

from tf_gc.launch.command_line import main
from tf_gc.launch.link_changes import LinkChange, read_link_changes
from tf_gc.launch.output import OutputLine
from tf_gc.launch.processes import LaunchError, free_ports, keep_to_loopback, remove_proxies
from tf_gc.launch.supervision import launch

__all__ = [
    "LaunchError",
    "LinkChange",
    "OutputLine",
    "free_ports",
    "keep_to_loopback",
    "launch",
    "main",
    "read_link_changes",
    "remove_proxies",
]
