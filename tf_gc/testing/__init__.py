"""Tests of compressors."""

from tf_gc.testing.case import Case
from tf_gc.testing.cluster import Cluster, WorkerError
from tf_gc.testing.conformance import CompressorConformance

__all__ = ["Case", "Cluster", "CompressorConformance", "WorkerError"]
