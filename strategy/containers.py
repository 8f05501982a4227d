"""Where servers and workers keep what belongs to a strategy, so that it can be freed with it.

A strategy's resources have a container of their own, of the name "program/number". They are freed
when the next strategy of the program is made, if this one is gone by then, and by each process when
another program begins to use it: a chief that was killed cannot tell.
"""

import collections
import functools
import itertools
import uuid
import weakref

import tensorflow as tf
from absl import logging

from tf_gc import ops

_numbers = itertools.count()
_unused = collections.deque()


def new(owner):
    """Returns the name of a new container, which is in use for as long as its owner lives."""
    container = f"{_program()}/{next(_numbers)}"
    weakref.finalize(owner, _unused.append, container).atexit = False
    return container


@functools.cache
def _program():
    # Not when the module is imported: processes may be forks of one that has done so.
    return uuid.uuid4().hex[:12]


def clean_up(cluster_spec):
    """Frees what is in containers that are not in use any more, on all processes of a cluster."""
    devices = [
        f"/job:{job}/task:{index}/device:CPU:0"
        for job in ("chief", "worker", "ps")
        if job in cluster_spec.jobs
        for index in cluster_spec.task_indices(job)
    ]
    while _unused:
        container = _unused.popleft()
        for device in devices:
            try:
                with tf.device(device):
                    ops.clean_up(container)
            except tf.errors.UnavailableError:
                logging.info("%s cannot be reached: what it has kept goes with it", device)
