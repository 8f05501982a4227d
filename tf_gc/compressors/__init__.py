"""The compression systems: hyper-parameters, and what each one computes."""

from typing import TYPE_CHECKING

from tf_gc.compressors.ar_top_k import *
from tf_gc.compressors.auto import *
from tf_gc.compressors.compressor import *
from tf_gc.compressors.dgc import *
from tf_gc.compressors.ef_sign_sgd import *
from tf_gc.compressors.embedding_rows import *
from tf_gc.compressors.fused import *
from tf_gc.compressors.int8 import *
from tf_gc.compressors.local_steps import *
from tf_gc.compressors.marsit import *
from tf_gc.compressors.ms_top_k import *
from tf_gc.compressors.one_bit import *
from tf_gc.compressors.one_bit_adam import *
from tf_gc.compressors.parsing import *
from tf_gc.compressors.power_sgd import *
from tf_gc.compressors.qsgd import *
from tf_gc.compressors.random_k import *
from tf_gc.compressors.sampled_top_k import *
from tf_gc.compressors.scale_com import *
from tf_gc.compressors.short_floats import *
from tf_gc.compressors.sign_sgd import *
from tf_gc.compressors.ssdm import *
from tf_gc.compressors.stochastic_ternary import *
from tf_gc.compressors.tern_grad import *
from tf_gc.compressors.thc import *
from tf_gc.compressors.three_lc import *
from tf_gc.compressors.top_k import *
from tf_gc.compressors.uncompressed import *
from tf_gc.compressors.zero_one_adam import *

if not TYPE_CHECKING:  # which takes them from the imports
    __all__ = sorted(
        name
        for name, value in globals().items()
        if getattr(value, "__module__", "").startswith(f"{__name__}.")
    )
