"""The distribution strategies: TensorFlow's own, with compressed gradients."""

from tf_gc.strategy.multi_worker_mirrored import MultiWorkerMirroredStrategy

__all__ = ["MultiWorkerMirroredStrategy"]
