"""What an exchange will take on a network: a model, to choose a system and a collective by."""

from tf_gc.adaptive.cost_model import (
    Cost,
    Network,
    Prediction,
    all_gather,
    ar_top_k_ring,
    ar_top_k_tree,
    broadcast,
    parameter_server,
    predict,
    ring,
    sharded,
    torus,
    tree,
)
from tf_gc.adaptive.links import LinkEstimator

__all__ = [
    "Cost",
    "LinkEstimator",
    "Network",
    "Prediction",
    "all_gather",
    "ar_top_k_ring",
    "ar_top_k_tree",
    "broadcast",
    "parameter_server",
    "predict",
    "ring",
    "sharded",
    "torus",
    "tree",
]
