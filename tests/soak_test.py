"""1000 steps of some systems: what processes need does not grow. `make soak` takes more of each."""

import soak
from absl.testing import absltest, parameterized

from tests.cases import some_of

# First those whose ops differ most.
_SYSTEMS = sorted(
    soak.SYSTEMS,
    key=["3LC", "Marsit", "AR-Topk", "THC, servers", "3LC, servers, synchronous"].__contains__,
    reverse=True,
)


class SoakTest(parameterized.TestCase):
    @some_of(*_SYSTEMS, count=5)
    def test_processes_do_not_grow(self, system):
        run = soak.soak(system, steps=1000, warm_up=200)
        self.assertEmpty(run.grown(), run)


if __name__ == "__main__":
    absltest.main()
