"""Each system, as it is by default, keeps the contracts on two workers: for make matrix."""

import dataclasses

from absl.testing import absltest

import tf_gc
from tests import conformance_test

_SYSTEMS = ("ThreeLC", "THC", "Marsit", "ARTopK", "ScaleCom")


class SystemsTest(tf_gc.testing.CompressorConformance):
    compressors = {  # noqa: RUF012
        name: dataclasses.replace(conformance_test.SystemsTest.compressors[name], workers=(2,))
        for name in _SYSTEMS
    }
    workers = (2,)


if __name__ == "__main__":
    absltest.main()
