"""Every compressor of tf_gc keeps the contracts."""

from absl.testing import absltest

import tf_gc
from tf_gc.testing import Case

_BAD_RATIOS = (("ratio", 0.0), ("ratio", 1.5), ("ratio", float("nan")))


def _compared(compressor, **claims):
    """On an even and an odd number of workers, to save time."""
    return Case(compressor=compressor, workers=(2, 3), **claims)


def _unbiased(compressor):
    return _compared(compressor, conserves=False, unbiased=True)


class SystemsTest(tf_gc.testing.CompressorConformance):
    compressors = {  # noqa: RUF012
        "Uncompressed": Case(
            compressor=tf_gc.compressors.Uncompressed(), bits_per_value=(32, 32.01)
        ),
        "ThreeLC": Case(
            compressor=tf_gc.ThreeLC(),
            bits_per_value=(0.5, 1.61),
            bad=(("sparsity_multiplier", 0.99), ("sparsity_multiplier", 2.0)),
            schedule=("sparsity_multiplier", 1.0, 1.75),
        ),
        "ThreeLC, sparse": tf_gc.ThreeLC(sparsity_multiplier=1.75),
        "THC": Case(
            compressor=tf_gc.THC(),
            bits_per_value=(6, 6.1),  # 4 of a contribution, 8 of a sum
            bad=(("bits", 6), ("p", 0.0), ("p", 1.0), ("granularity", 14), ("topology", "tree")),
        ),
        "THC, ring": tf_gc.THC(granularity=30, topology="ring"),
        "UniformTHC": tf_gc.UniformTHC(bits=8),
        "UniformTHC, ring": tf_gc.UniformTHC(topology="ring"),
        "Marsit": Case(
            compressor=tf_gc.Marsit(),
            bits_per_value=(1, 1.01),
            bad=(
                ("global_step_size", 0.0),
                ("global_step_size", "mean"),
                ("full_precision_every", -1),
                ("topology", "sharded"),
                ("rows", 0),
            ),
        ),
        "Marsit, fixed": Case(
            compressor=tf_gc.Marsit(global_step_size=0.01, full_precision_every=0),
            keeps_zeros=False,
            scales_with_mean=False,
            schedule=("global_step_size", 0.01, 0.02),
        ),
        "Marsit, torus": Case(compressor=tf_gc.Marsit(topology="torus", rows=2), workers=(2, 4)),
        "ARTopK": Case(
            compressor=tf_gc.ARTopK(ratio=0.1),
            schedule=("ratio", 0.1, 0.01),
            bad=(*_BAD_RATIOS, ("selection", "random"), ("topology", "torus")),
        ),
        "ARTopK, variance": tf_gc.ARTopK(ratio=0.1, selection="variance", topology="tree"),
        "ARTopK, sharded": tf_gc.ARTopK(ratio=0.1, topology="sharded"),
        "TopK": Case(
            compressor=tf_gc.TopK(ratio=0.1), schedule=("ratio", 0.1, 0.01), bad=_BAD_RATIOS
        ),
        "TopK, per variable": tf_gc.TopK(ratio=0.1, per_variable=True),
        "ScaleCom": Case(
            compressor=tf_gc.ScaleCom(chunk=10),
            bad=(("chunk", 0), ("chunk", 1.5), ("beta", 0.0), ("beta", 1.1)),
        ),
        "ScaleCom, filter": Case(
            compressor=tf_gc.ScaleCom(chunk=10, beta=0.3),
            conserves=0.3,
            schedule=("beta", 0.3, 0.6),
        ),
        # The designs that the papers compare with.
        "Float16": _compared(tf_gc.compressors.Float16(), conserves=False),
        "BFloat16": _compared(tf_gc.compressors.BFloat16(), conserves=False),
        "Int8": _compared(tf_gc.compressors.Int8(), conserves=False),
        "StochasticTernary": _unbiased(tf_gc.compressors.StochasticTernary()),
        "TernGrad": _unbiased(tf_gc.compressors.TernGrad(clip=None)),
        "QSGD": _unbiased(tf_gc.compressors.QSGD()),
        "SSDM": _unbiased(tf_gc.compressors.SSDM()),
        "CascadingSSDM": _unbiased(tf_gc.compressors.CascadingSSDM()),
        "SignSGD": _compared(tf_gc.compressors.SignSGD(), conserves=False),
        "EFSignSGD": _compared(tf_gc.compressors.EFSignSGD()),
        "OneBit": _compared(tf_gc.compressors.OneBit()),
        "SampledTopK": _compared(tf_gc.compressors.SampledTopK(), bad=_BAD_RATIOS),
        "MSTopK": _compared(tf_gc.compressors.MSTopK(ratio=0.1), bad=_BAD_RATIOS),
        "RandomK": _compared(tf_gc.compressors.RandomK(ratio=0.1), bad=_BAD_RATIOS),
        "RandomK, unbiased": _unbiased(tf_gc.compressors.RandomK(ratio=0.5, error_feedback=False)),
        "DGC": _compared(tf_gc.compressors.DGC(ratio=0.1), conserves=False, bad=_BAD_RATIOS),
        "PowerSGD": _compared(tf_gc.compressors.PowerSGD(), bad=(("rank", 0),)),
        "LocalSteps": _compared(tf_gc.compressors.LocalSteps(), bad=(("period", 0),)),
    }


if __name__ == "__main__":
    absltest.main()
