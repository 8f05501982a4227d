"""The compression systems: hyper-parameters, and the op that each one calls."""

from tf_gc.compressors.compressor import Compressor
from tf_gc.compressors.fused import FusedCompressor
from tf_gc.compressors.three_lc import ThreeLC
from tf_gc.compressors.uncompressed import Uncompressed

__all__ = ["Compressor", "FusedCompressor", "ThreeLC", "Uncompressed"]
