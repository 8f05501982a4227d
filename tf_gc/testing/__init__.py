"""Tests that compressors keep their contracts, on real worker processes.

A complete test of two settings of a compressor:

    from absl.testing import absltest
    from my_package import MyCompressor

    import tf_gc


    class MyCompressorTest(tf_gc.testing.CompressorConformance):
        compressors = {
            "default": MyCompressor(),
            "sparse": tf_gc.testing.Case(
                compressor=MyCompressor(ratio=0.01),
                bits_per_value=(0.3, 0.5),
                schedule=("ratio", 0.01, 0.1),
                bad=(("ratio", 0.0), ("ratio", 1.5)),
            ),
        }


    if __name__ == "__main__":
        absltest.main()

A plain compressor claims to lose nothing (error feedback). A `Case` may say
otherwise, and more; see there. The page docs/your_own_compressor.md explains
each contract, and makes a compressor that is tested like this.

`Cluster` runs any functions in worker processes, for tests of one's own.
"""

from tf_gc.testing.case import Case
from tf_gc.testing.cluster import Cluster, WorkerError
from tf_gc.testing.conformance import CompressorConformance

__all__ = ["Case", "Cluster", "CompressorConformance", "WorkerError"]
