"""Runs a program with the TF_CONFIG of this pod among those of its set.

    REPLICAS=2 SERVICE=training PORT=2222 python kubernetes_entry.py python train.py

A pod's hostname ends with its number, as training-1, in a StatefulSet and in a Job whose completion
mode is Indexed. With a headless Service, pod i is found as training-i.training.
"""

import json
import os
import socket
import sys


def tf_config(pod: str, replicas: int, service: str, port: int) -> dict:
    """Returns the place of the pod of this hostname among so many."""
    name, _, ordinal = pod.rpartition("-")
    workers = [f"{name}-{i}.{service}:{port}" for i in range(replicas)]
    return {"cluster": {"worker": workers}, "task": {"type": "worker", "index": int(ordinal)}}


def main() -> None:
    config = tf_config(
        socket.gethostname(),
        int(os.environ["REPLICAS"]),
        os.environ["SERVICE"],
        int(os.environ["PORT"]),
    )
    os.environ["TF_CONFIG"] = json.dumps(config)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
