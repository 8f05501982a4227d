"""Clusters that the tests of a module share, as it takes seconds to start one."""

import pathlib
import tempfile
import unittest

import numpy as np

from tests.waiting import wait_until
from tf_gc.testing.cluster import Cluster

_clusters = {}


def shared_cluster(workers, **environment):
    """A cluster of so many workers, started once and kept until the module's tests have ended."""
    key = (workers, *sorted(environment.items()))
    if key in _clusters and _clusters[key].broken:
        _clusters.pop(key).close()
    if not _clusters:
        unittest.addModuleCleanup(_close)
    if key not in _clusters:
        _clusters[key] = Cluster(workers, environment)
    return _clusters[key]


def kill_in_a_step(cluster, victim, function):
    """Makes all workers begin function(directory), and kills one that takes steps.

    After each step they touch a file in the directory that is named after their rank.

    Returns:
      The others' results.
    """
    with tempfile.TemporaryDirectory() as directory:
        cluster.begin(function, directory)
        wait_until(pathlib.Path(directory, str(victim)).exists, "the victim takes steps")
        cluster.kill(victim)
        return cluster.end({*range(cluster.workers)} - {victim})


def one(results):
    """The result that all workers agree on."""
    for result in results[1:]:
        np.testing.assert_equal(result, results[0])
    return results[0]


def _close():
    while _clusters:
        _clusters.popitem()[1].close()
