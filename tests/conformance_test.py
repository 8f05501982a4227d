"""Exact sums and the five systems keep the contracts."""

from absl.testing import absltest

import tf_gc
from tf_gc.testing import Case

_MANY = (2, 3, 5)
_SOME = (2, 5)
_BAD_RATIOS = (("ratio", 0.0), ("ratio", 1.5), ("ratio", float("nan")))


class SystemsTest(tf_gc.testing.CompressorConformance):
    workers = (1, 3)
    compressors = {  # noqa: RUF012
        "Uncompressed": Case(
            compressor=tf_gc.compressors.Uncompressed(),
            workers=_SOME,
            bits_per_value=(32, 32.01),
        ),
        "ThreeLC": Case(
            compressor=tf_gc.ThreeLC(),
            workers=_MANY,
            bits_per_value=(0.5, 1.61),
            bad=(
                ("sparsity_multiplier", 0.0),
                ("sparsity_multiplier", 2.0),
                ("unit_multiplier", 0.0),
                ("unit_multiplier", 64.0),
                ("mean_multiplier", 0.0),
                ("mean_multiplier", 64.0),
                ("units", "rows"),
            ),
            schedule=("unit_multiplier", 1.0, 6.0),
        ),
        "ThreeLC, the paper's": Case(
            compressor=tf_gc.ThreeLC(1.0), schedule=("sparsity_multiplier", 1.0, 1.75)
        ),
        "ThreeLC, sparse": tf_gc.ThreeLC(sparsity_multiplier=1.75),
        "ThreeLC, without units": Case(
            compressor=tf_gc.ThreeLC(units="gradient"), schedule=("mean_multiplier", 1.5, 3.0)
        ),
        "THC": Case(
            compressor=tf_gc.THC(),
            workers=_SOME,
            bits_per_value=(6, 6.1),  # 4 of a contribution, 8 of a sum
            bad=(("bits", 6), ("p", 0.0), ("p", 1.0), ("granularity", 14), ("topology", "tree")),
        ),
        "THC, nearest": Case(
            compressor=tf_gc.THC(rounding="nearest"),
            bits_per_value=(6, 6.1),
            bad=(("rounding", "up"),),
        ),
        "THC, ring": Case(compressor=tf_gc.THC(granularity=30, topology="ring"), workers=_SOME),
        "THC, units": Case(compressor=tf_gc.THC(units="second_moment"), bad=(("units", "values"),)),
        "UniformTHC": tf_gc.UniformTHC(bits=8),
        "UniformTHC, ring": tf_gc.UniformTHC(topology="ring"),
        "Auto, of one system": Case(
            compressor=tf_gc.Auto(systems=(tf_gc.ThreeLC(),)),
            bad=(
                ("systems", ()),
                ("systems", (tf_gc.Marsit(prediction=0.9),)),
                ("ratios", (2.0,)),
            ),
        ),
        "Auto, of AR-Topk": tf_gc.Auto(systems=(), ratios=(0.1,)),
        "Marsit": Case(
            compressor=tf_gc.Marsit(),
            workers=_MANY,
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
        "Marsit, units": Case(
            compressor=tf_gc.Marsit(units="second_moment"), bad=(("units", "values"),)
        ),
        "Marsit, prediction": Case(
            compressor=tf_gc.Marsit(prediction=0.9),
            bits_per_value=(1, 1.01),
            bad=(("mean_multiplier", 0.0), ("prediction", 1.0), ("prediction", -0.1)),
        ),
        "Marsit, as with Adam": tf_gc.Marsit(units="second_moment", prediction=0.9),
        "Marsit, torus": Case(
            compressor=tf_gc.Marsit(topology="torus", rows=2),
            # With more than ten, worker 10 comes before worker 2 where names are sorted as text.
            workers=(2, 4, 12),
        ),
        "ARTopK": Case(
            compressor=tf_gc.ARTopK(ratio=0.1),
            workers=_SOME,
            schedule=("ratio", 0.1, 0.01),
            bad=(*_BAD_RATIOS, ("selection", "random"), ("topology", "torus")),
        ),
        "ARTopK, overshoot": Case(
            compressor=tf_gc.ARTopK(ratio=0.1, overshoot=1.0),
            bad=(("overshoot", -0.1), ("overshoot", 1.1), ("overshoot", float("nan"))),
        ),
        "ARTopK, variance": Case(
            compressor=tf_gc.ARTopK(ratio=0.1, selection="variance", topology="tree"),
            workers=_MANY,
        ),
        "ARTopK, sharded": tf_gc.ARTopK(ratio=0.1, topology="sharded"),
        "ARTopK, units": tf_gc.ARTopK(ratio=0.1, units="second_moment"),
        "ARTopK, variance, units": tf_gc.ARTopK(
            ratio=0.1, selection="variance", units="second_moment"
        ),
        "TopK, units": tf_gc.TopK(ratio=0.1, units="second_moment"),
        "ScaleCom, units": tf_gc.ScaleCom(chunk=10, units="second_moment"),
        "TopK": Case(
            compressor=tf_gc.TopK(ratio=0.1), schedule=("ratio", 0.1, 0.01), bad=_BAD_RATIOS
        ),
        "TopK, overshoot": tf_gc.TopK(ratio=0.1, overshoot=1.0),
        "TopK, per variable": tf_gc.TopK(ratio=0.1, per_variable=True),
        "ScaleCom": Case(
            compressor=tf_gc.ScaleCom(chunk=10),
            workers=_SOME,
            bad=(("chunk", 0), ("chunk", 1.5), ("beta", 0.0), ("beta", 1.1)),
        ),
        "ScaleCom, strided": Case(
            compressor=tf_gc.ScaleCom(chunk=10, overshoot=1.0, strided=True),
            bad=(("strided", 2),),
        ),
        "ScaleCom, filter": Case(
            compressor=tf_gc.ScaleCom(chunk=10, beta=0.3),
            conserves=0.3,
        ),
    }


if __name__ == "__main__":
    absltest.main()
