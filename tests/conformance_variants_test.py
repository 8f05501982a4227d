"""What else the systems and the compared designs can do keeps the contracts: make test-long."""

from absl.testing import absltest

import tf_gc
from tf_gc.testing import Case


class SystemVariantsTest(tf_gc.testing.CompressorConformance):
    workers = (1, 3)
    compressors = {  # noqa: RUF012
        **{
            f"{type(system).__name__}, other workers": Case(compressor=system, workers=(3, 5))
            for system in (
                tf_gc.compressors.Uncompressed(),
                tf_gc.ThreeLC(),
                tf_gc.Marsit(),
                tf_gc.THC(),
                tf_gc.ARTopK(ratio=0.1),
                tf_gc.ScaleCom(chunk=10),
            )
        },
        "ThreeLC, sparse": tf_gc.ThreeLC(sparsity_multiplier=1.75),
        "ThreeLC, without units": Case(
            compressor=tf_gc.ThreeLC(units="gradient"), schedule=("mean_multiplier", 1.5, 3.0)
        ),
        "THC, nearest": Case(compressor=tf_gc.THC(rounding="nearest"), bits_per_value=(6, 6.1)),
        "THC, units": tf_gc.THC(units="second_moment"),
        "THC, ring": Case(compressor=tf_gc.THC(granularity=30, topology="ring"), workers=(2, 3)),
        "UniformTHC": tf_gc.UniformTHC(bits=8),
        "UniformTHC, ring": tf_gc.UniformTHC(topology="ring"),
        # Whose turn it is to select depends on how many buckets there are, which differs.
        "Auto, of AR-Topk": Case(
            compressor=tf_gc.Auto(systems=(), ratios=(0.1,)), scales_with_mean=False
        ),
        "Marsit, fixed": Case(
            compressor=tf_gc.Marsit(global_step_size=0.01, full_precision_every=0),
            keeps_zeros=False,
            scales_with_mean=False,
            schedule=("global_step_size", 0.01, 0.02),
        ),
        "Marsit, torus": Case(compressor=tf_gc.Marsit(topology="torus", rows=2), workers=(12,)),
        "Marsit, units": tf_gc.Marsit(units="second_moment"),
        "Marsit, prediction": Case(
            compressor=tf_gc.Marsit(prediction=0.9), bits_per_value=(1, 1.01)
        ),
        "ARTopK, overshoot": tf_gc.ARTopK(ratio=0.1, overshoot=1.0),
        "ARTopK, variance": Case(
            compressor=tf_gc.ARTopK(ratio=0.1, selection="variance", topology="tree"),
            workers=(2, 3, 5),
        ),
        "ARTopK, sharded": tf_gc.ARTopK(ratio=0.1, topology="sharded"),
        "ARTopK, units": tf_gc.ARTopK(ratio=0.1, units="second_moment"),
        "TopK, units": tf_gc.TopK(ratio=0.1, units="second_moment"),
        "ScaleCom, units": tf_gc.ScaleCom(chunk=10, units="second_moment"),
        "TopK, overshoot": tf_gc.TopK(ratio=0.1, overshoot=1.0),
        "TopK, per variable": tf_gc.TopK(ratio=0.1, per_variable=True),
        "ScaleCom, strided": tf_gc.ScaleCom(chunk=10, overshoot=1.0, strided=True),
        "ScaleCom, filter": Case(
            compressor=tf_gc.ScaleCom(chunk=10, beta=0.3),
            conserves=0.3,
        ),
    }


class ComparedVariantsTest(tf_gc.testing.CompressorConformance):
    workers = (1, 2)
    compressors = {  # noqa: RUF012
        **{
            f"{type(design).__name__}, other workers": Case(
                compressor=design, workers=workers, conserves=design.uses_residual
            )
            for design, workers in (
                (tf_gc.Int8(), (2,)),
                (tf_gc.TernGrad(), (2,)),
                (tf_gc.CascadingSSDM(), (2,)),
                (tf_gc.OneBit(), (3,)),
                (tf_gc.SampledTopK(ratio=0.1, samples=256), (3,)),
                (tf_gc.LocalSteps(), (3,)),
                (tf_gc.SignSGD(), (3,)),
                (tf_gc.EFSignSGD(), (3,)),
            )
        },
        "TernGrad, not clipped": Case(
            compressor=tf_gc.TernGrad(clip=None), conserves=False, unbiased=True
        ),
        "QSGD, per variable": Case(
            compressor=tf_gc.QSGD(levels=1, block=0, norm="max"), conserves=False, unbiased=True
        ),
        "SignSGD, fixed": Case(
            compressor=tf_gc.SignSGD(step_size=0.01),
            conserves=False,
            keeps_zeros=False,
            scales_with_mean=False,
            schedule=("step_size", 0.01, 0.02),
        ),
        "EFSignSGD, units": tf_gc.EFSignSGD(units="second_moment"),
        "EFSignSGD, prediction": tf_gc.EFSignSGD(prediction=0.9),
        "DGC, clipped": Case(
            compressor=tf_gc.DGC(ratio=0.1, clip_norm=1.0), conserves=False, scales_with_mean=False
        ),
        "DGC, without momentum": tf_gc.DGC(ratio=0.1, momentum=0.0),
        "DGC, units": tf_gc.DGC(ratio=0.1, momentum=0.0, units="second_moment"),
        "RandomK, unbiased": Case(
            compressor=tf_gc.RandomK(ratio=0.1, error_feedback=False),
            conserves=False,
            unbiased=True,
        ),
        "PowerSGD, exact for most": tf_gc.PowerSGD(rank=15),
    }


if __name__ == "__main__":
    absltest.main()
