"""1000 steps of some systems: what processes need does not grow. `make soak` takes more of each."""

import soak
from absl.testing import absltest, parameterized

from tests.cases import some_of

# Those whose ops differ most.
_SOME = ("3LC", "THC, servers")
_OTHERS = tuple(system for system in soak.SYSTEMS if system not in _SOME)


class SoakTest(parameterized.TestCase):
    @some_of(*_SOME, *_OTHERS, count=len(_SOME))
    def test_processes_do_not_grow(self, system):
        run = soak.soak(system, steps=1000, warm_up=200)
        self.assertEmpty(run.grown(), run)


if __name__ == "__main__":
    absltest.main()
