"""The compression kernels as TensorFlow ops.

Every op here is deterministic and not differentiable: gradients do not flow
through encodings. `tf_gc.kernels` has the same functions for NumPy arrays.
"""

from tf_gc.ops.all_reduce import (
    bucket,
    bucket_traffic,
    exact_all_reduce,
    three_lc_all_reduce,
)
from tf_gc.ops.exchange import (
    exchange_all_gather,
    exchange_broadcast,
    exchange_sum,
)
from tf_gc.ops.fusion import (
    fuse_gradients,
    store_residuals,
    unfuse_gradients,
)
from tf_gc.ops.hadamard import (
    hadamard,
    inverse_randomized_hadamard,
    randomized_hadamard,
)
from tf_gc.ops.lane_exchange import exchange_lane_sum
from tf_gc.ops.parameter_server import (
    accumulate_push,
    add_variable,
    apply_pull,
    encode_push,
    end_update,
    library_version,
    local_model,
    parameter_server,
    publish_whole,
    pull,
    pull_request,
    read_model,
    read_residual,
    read_round,
    server_statistics,
    set_server_step,
    settle_push,
    take_gradients,
    write_residual,
)
from tf_gc.ops.quantization import (
    pack_bits,
    stochastic_quantize,
    table_sum,
    unpack_bits,
)
from tf_gc.ops.selection import (
    chunk_argmax,
    pack_indices,
    top_k_indices,
    unpack_indices,
)
from tf_gc.ops.sign_exchange import (
    exchange_cascading_sign,
    exchange_sign_majority,
    exchange_sign_merge,
)
from tf_gc.ops.signs import (
    sign_merge,
    sign_pack,
    sign_unpack,
)
from tf_gc.ops.ternary import (
    stochastic_ternary_quantize,
    ternary_quantize,
)
from tf_gc.ops.three_lc import (
    quartic_decode,
    quartic_encode,
    three_lc_decode,
    three_lc_encode,
    zero_run_decode,
    zero_run_encode,
)

__all__ = [
    "accumulate_push",
    "add_variable",
    "apply_pull",
    "bucket",
    "bucket_traffic",
    "chunk_argmax",
    "encode_push",
    "end_update",
    "exact_all_reduce",
    "exchange_all_gather",
    "exchange_broadcast",
    "exchange_cascading_sign",
    "exchange_lane_sum",
    "exchange_sign_majority",
    "exchange_sign_merge",
    "exchange_sum",
    "fuse_gradients",
    "hadamard",
    "inverse_randomized_hadamard",
    "library_version",
    "local_model",
    "pack_bits",
    "pack_indices",
    "parameter_server",
    "publish_whole",
    "pull",
    "pull_request",
    "quartic_decode",
    "quartic_encode",
    "randomized_hadamard",
    "read_model",
    "read_residual",
    "read_round",
    "server_statistics",
    "set_server_step",
    "settle_push",
    "sign_merge",
    "sign_pack",
    "sign_unpack",
    "stochastic_quantize",
    "stochastic_ternary_quantize",
    "store_residuals",
    "table_sum",
    "take_gradients",
    "ternary_quantize",
    "three_lc_all_reduce",
    "three_lc_decode",
    "three_lc_encode",
    "top_k_indices",
    "unfuse_gradients",
    "unpack_bits",
    "unpack_indices",
    "write_residual",
    "zero_run_decode",
    "zero_run_encode",
]
