"""The compression kernels as TensorFlow ops.

Every op here is deterministic and not differentiable: gradients do not flow
through encodings. `tf_gc.kernels` has the same functions for NumPy arrays.
"""

from typing import TYPE_CHECKING

from tf_gc.ops.all_reduce import *
from tf_gc.ops.exchange import *
from tf_gc.ops.fusion import *
from tf_gc.ops.hadamard import *
from tf_gc.ops.lane_exchange import *
from tf_gc.ops.network import *
from tf_gc.ops.parameter_server import *
from tf_gc.ops.plans import *
from tf_gc.ops.quantization import *
from tf_gc.ops.rows import *
from tf_gc.ops.second_moments import *
from tf_gc.ops.selection import *
from tf_gc.ops.sign_exchange import *
from tf_gc.ops.signs import *
from tf_gc.ops.ternary import *
from tf_gc.ops.thc import *
from tf_gc.ops.three_lc import *

if not TYPE_CHECKING:  # which takes them from the imports
    __all__ = sorted(
        name
        for name, value in globals().items()
        if getattr(value, "__module__", "").startswith(f"{__name__}.")
    )
