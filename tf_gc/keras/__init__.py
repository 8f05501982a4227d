"""Callbacks for `fit` of Keras 3 and tf_keras."""

from tf_gc.keras.backup import BackupAndRestore
from tf_gc.keras.traffic_logger import TrafficLogger

__all__ = ["BackupAndRestore", "TrafficLogger"]
