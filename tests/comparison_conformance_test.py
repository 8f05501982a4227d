"""Compared designs keep the contracts; conformance_variants_test has more of them.

comparison_compressors_test compares all of them with NumPy.
"""

from absl.testing import absltest

import tf_gc
from tests.cases import ALL_CASES
from tf_gc.testing import Case

# The others are left to make test-long.
_SOME = (
    *("Float16", "Int8", "StochasticTernary", "QSGD", "LocalSteps", "EFSignSGD", "OneBitAdam"),
    *("DGC", "RandomK", "PowerSGD"),
)

# For those that add up on the way.
_SEVERAL = (3,)
# For those that keep more than a residual, which another number of workers restores.
_EVEN_AND_ODD = (2, 3)
_BAD_RATIOS = (("ratio", 0.0), ("ratio", 1.5), ("ratio", float("nan")))


_DESIGNS = {
    "Float16": Case(compressor=tf_gc.Float16(), conserves=False, bits_per_value=(16, 16.01)),
    "BFloat16": Case(compressor=tf_gc.BFloat16(), conserves=False, bits_per_value=(16, 16.01)),
    # 8 of a contribution, 10 of a sum.
    "Int8": Case(
        compressor=tf_gc.Int8(),
        workers=_SEVERAL,
        conserves=False,
        bits_per_value=(9, 9.01),
    ),
    "StochasticTernary": Case(compressor=tf_gc.StochasticTernary(), conserves=False, unbiased=True),
    # 2 of a contribution, 3 of a sum.
    "TernGrad": Case(
        compressor=tf_gc.TernGrad(),
        workers=_SEVERAL,
        conserves=False,
        bits_per_value=(2.5, 2.51),
        bad=(("clip", 0.0), ("clip", -1.0)),
    ),
    "OneBit": tf_gc.OneBit(),
    "SampledTopK": Case(
        compressor=tf_gc.SampledTopK(ratio=0.1, samples=256),
        schedule=("ratio", 0.1, 0.01),
        bad=(*_BAD_RATIOS, ("samples", 0)),
    ),
    "LocalSteps": Case(
        compressor=tf_gc.LocalSteps(),
        bits_per_value=(16, 16.01),
        bad=(("period", 0),),
    ),
    "QSGD": Case(
        compressor=tf_gc.QSGD(),
        conserves=False,
        unbiased=True,
        bad=(("levels", 0), ("levels", 128), ("block", -1), ("norm", "l1")),
    ),
    "SignSGD": Case(
        compressor=tf_gc.SignSGD(),
        conserves=False,
        bits_per_value=(1, 1.01),
        bad=(("step_size", 0.0), ("step_size", "mean")),
    ),
    "EFSignSGD": Case(
        compressor=tf_gc.EFSignSGD(),
        bad=(("prediction", 1.0), ("prediction", float("nan"))),
    ),
    "OneBitAdam": Case(
        compressor=tf_gc.OneBitAdam(freeze_step=5),
        workers=_EVEN_AND_ODD,
        bad=(
            ("freeze_step", 0),
            ("start_step", 5),
            ("beta_1", 1.0),
            ("beta_2", 0.0),
            ("beta_2", 1.0),
        ),
    ),
    "ZeroOneAdam": Case(
        compressor=tf_gc.ZeroOneAdam(updates_per_interval=1),
        bad=(("freeze_step", 0), ("updates_per_interval", 0)),
    ),
    "SSDM": Case(compressor=tf_gc.SSDM(), conserves=False, unbiased=True),
    "CascadingSSDM": Case(
        compressor=tf_gc.CascadingSSDM(),
        workers=_SEVERAL,
        conserves=False,
        unbiased=True,
        bits_per_value=(1, 1.01),
    ),
    "DGC": Case(
        compressor=tf_gc.DGC(ratio=0.1),
        workers=_EVEN_AND_ODD,
        conserves=False,  # of its momentum, masking drops a part
        schedule=("ratio", 0.1, 0.01),
        bad=(*_BAD_RATIOS, ("momentum", 1.0), ("clip_norm", 0.0)),
    ),
    "RandomK": Case(
        compressor=tf_gc.RandomK(ratio=0.1),
        bits_per_value=(3.2, 3.21),
        schedule=("ratio", 0.1, 0.01),
        bad=_BAD_RATIOS,
    ),
    "MSTopK": Case(
        compressor=tf_gc.MSTopK(ratio=0.1),
        schedule=("ratio", 0.1, 0.01),
        bad=(*_BAD_RATIOS, ("rounds", 0)),
    ),
    "PowerSGD": Case(
        compressor=tf_gc.PowerSGD(),
        workers=_EVEN_AND_ODD,
        bad=(("rank", 0), ("rank", 1.5)),
    ),
}


class ComparedDesignsTest(tf_gc.testing.CompressorConformance):
    workers = (1, 2)
    compressors = {  # noqa: RUF012
        name: case for name, case in _DESIGNS.items() if ALL_CASES or name in _SOME
    }


if __name__ == "__main__":
    absltest.main()
