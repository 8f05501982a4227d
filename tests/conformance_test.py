"""Exact sums and the five systems keep the contracts; conformance_variants_test has the rest."""

from absl.testing import absltest

import tf_gc
from tf_gc.testing import Case

_EVEN_AND_ODD = (2, 3)
_BAD_RATIOS = (("ratio", 0.0), ("ratio", 1.5), ("ratio", float("nan")))


class SystemsTest(tf_gc.testing.CompressorConformance):
    workers = (1, 2)
    compressors = {  # noqa: RUF012
        "Uncompressed": Case(
            compressor=tf_gc.compressors.Uncompressed(), bits_per_value=(32, 32.01)
        ),
        "ThreeLC": Case(
            compressor=tf_gc.ThreeLC(),
            workers=_EVEN_AND_ODD,
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
        "THC": Case(
            compressor=tf_gc.THC(),
            workers=_EVEN_AND_ODD,
            bits_per_value=(6, 6.1),  # 4 of a contribution, 8 of a sum
            bad=(
                ("bits", 6),
                ("p", 0.0),
                ("p", 1.0),
                ("granularity", 14),
                ("topology", "tree"),
                ("rounding", "up"),
                ("units", "values"),
            ),
        ),
        "Auto, of one system": Case(
            compressor=tf_gc.Auto(systems=(tf_gc.ThreeLC(),)),
            bad=(
                ("systems", ()),
                ("systems", (tf_gc.Marsit(prediction=0.9),)),
                ("ratios", (2.0,)),
            ),
        ),
        "Marsit": Case(
            compressor=tf_gc.Marsit(),
            workers=_EVEN_AND_ODD,
            bits_per_value=(1, 1.01),
            bad=(
                ("global_step_size", 0.0),
                ("global_step_size", "mean"),
                ("full_precision_every", -1),
                ("topology", "sharded"),
                ("rows", 0),
                ("units", "values"),
                ("mean_multiplier", 0.0),
                ("prediction", 1.0),
                ("prediction", -0.1),
            ),
        ),
        "Marsit, as with Adam": tf_gc.Marsit(units="second_moment", prediction=0.9),
        "Marsit, torus": Case(compressor=tf_gc.Marsit(topology="torus", rows=2), workers=(4,)),
        "ARTopK": Case(
            compressor=tf_gc.ARTopK(ratio=0.1),
            workers=_EVEN_AND_ODD,
            schedule=("ratio", 0.1, 0.01),
            bad=(
                *_BAD_RATIOS,
                ("selection", "random"),
                ("topology", "torus"),
                ("overshoot", -0.1),
                ("overshoot", 1.1),
                ("overshoot", float("nan")),
            ),
        ),
        "ARTopK, variance, units": tf_gc.ARTopK(
            ratio=0.1, selection="variance", units="second_moment"
        ),
        "TopK": Case(
            compressor=tf_gc.TopK(ratio=0.1), schedule=("ratio", 0.1, 0.01), bad=_BAD_RATIOS
        ),
        "ScaleCom": Case(
            compressor=tf_gc.ScaleCom(chunk=10),
            workers=_EVEN_AND_ODD,
            bad=(("chunk", 0), ("chunk", 1.5), ("beta", 0.0), ("beta", 1.1), ("strided", 2)),
        ),
    }


if __name__ == "__main__":
    absltest.main()
