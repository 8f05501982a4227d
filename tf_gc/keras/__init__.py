"""Callbacks for Keras 3 and tf_keras."""

from tf_gc.keras.traffic_logger import TrafficLogger

__all__ = ["TrafficLogger"]
