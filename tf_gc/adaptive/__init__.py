"""What an exchange will take on a network and a machine, and which ratio is best there."""

from tf_gc.adaptive.computation import measure_rates, seconds_per_value
from tf_gc.adaptive.cost_model import (
    Cost,
    Network,
    Prediction,
    all_gather,
    all_to_all,
    ar_top_k_ring,
    ar_top_k_tree,
    broadcast,
    lanes_ring,
    parameter_server,
    predict,
    ring,
    sharded,
    torus,
    tree,
)
from tf_gc.adaptive.gain import gains
from tf_gc.adaptive.links import LinkEstimator
from tf_gc.adaptive.ratio_search import CANDIDATES, RatioSearch, knee

__all__ = [
    "CANDIDATES",
    "Cost",
    "LinkEstimator",
    "Network",
    "Prediction",
    "RatioSearch",
    "all_gather",
    "all_to_all",
    "ar_top_k_ring",
    "ar_top_k_tree",
    "broadcast",
    "gains",
    "knee",
    "lanes_ring",
    "measure_rates",
    "parameter_server",
    "predict",
    "ring",
    "seconds_per_value",
    "sharded",
    "torus",
    "tree",
]
