"""The compression systems: hyper-parameters, and what each one computes."""

from tf_gc.compressors.ar_top_k import ARTopK
from tf_gc.compressors.compressor import Compressor
from tf_gc.compressors.fused import FusedCompressor
from tf_gc.compressors.marsit import Marsit
from tf_gc.compressors.parsing import from_string
from tf_gc.compressors.scale_com import ScaleCom
from tf_gc.compressors.thc import THC, UniformTHC
from tf_gc.compressors.three_lc import ThreeLC
from tf_gc.compressors.top_k import TopK
from tf_gc.compressors.uncompressed import Uncompressed

__all__ = [
    "THC",
    "ARTopK",
    "Compressor",
    "FusedCompressor",
    "Marsit",
    "ScaleCom",
    "ThreeLC",
    "TopK",
    "Uncompressed",
    "UniformTHC",
    "from_string",
]
