"""Tests of compressors."""

from tf_gc.testing.cluster import Cluster, WorkerError

__all__ = ["Cluster", "WorkerError"]
