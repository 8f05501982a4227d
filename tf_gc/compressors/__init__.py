"""The compression systems: hyper-parameters, and what each one computes."""

from tf_gc.compressors.ar_top_k import ARTopK
from tf_gc.compressors.compressor import Compressor
from tf_gc.compressors.dgc import DGC
from tf_gc.compressors.ef_sign_sgd import EFSignSGD
from tf_gc.compressors.fused import FusedCompressor
from tf_gc.compressors.int8 import Int8
from tf_gc.compressors.local_steps import LocalSteps
from tf_gc.compressors.marsit import Marsit
from tf_gc.compressors.ms_top_k import MSTopK
from tf_gc.compressors.one_bit import OneBit
from tf_gc.compressors.parsing import from_string
from tf_gc.compressors.power_sgd import PowerSGD
from tf_gc.compressors.qsgd import QSGD
from tf_gc.compressors.random_k import RandomK
from tf_gc.compressors.sampled_top_k import SampledTopK
from tf_gc.compressors.scale_com import ScaleCom
from tf_gc.compressors.short_floats import BFloat16, Float16
from tf_gc.compressors.sign_sgd import SignSGD
from tf_gc.compressors.ssdm import SSDM, CascadingSSDM
from tf_gc.compressors.stochastic_ternary import StochasticTernary
from tf_gc.compressors.tern_grad import TernGrad
from tf_gc.compressors.thc import THC, UniformTHC
from tf_gc.compressors.three_lc import ThreeLC
from tf_gc.compressors.top_k import TopK
from tf_gc.compressors.uncompressed import Uncompressed

__all__ = [
    "DGC",
    "QSGD",
    "SSDM",
    "THC",
    "ARTopK",
    "BFloat16",
    "CascadingSSDM",
    "Compressor",
    "EFSignSGD",
    "Float16",
    "FusedCompressor",
    "Int8",
    "LocalSteps",
    "MSTopK",
    "Marsit",
    "OneBit",
    "PowerSGD",
    "RandomK",
    "SampledTopK",
    "ScaleCom",
    "SignSGD",
    "StochasticTernary",
    "TernGrad",
    "ThreeLC",
    "TopK",
    "Uncompressed",
    "UniformTHC",
    "from_string",
]
