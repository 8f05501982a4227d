"""The distribution strategies: TensorFlow's own, with compressed gradients."""

from tf_gc.strategy.multi_worker_mirrored import MultiWorkerMirroredStrategy
from tf_gc.strategy.parameter_server import ParameterServerStrategy

__all__ = ["MultiWorkerMirroredStrategy", "ParameterServerStrategy"]
