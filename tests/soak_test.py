"""1000 steps of every system: what processes need does not grow. `make soak` takes 20,000."""

import soak
from absl.testing import absltest, parameterized


class SoakTest(parameterized.TestCase):
    @parameterized.parameters(*soak.SYSTEMS)
    def test_processes_do_not_grow(self, system):
        run = soak.soak(system, steps=1000, warm_up=200)
        self.assertEmpty(run.grown(), run)


if __name__ == "__main__":
    absltest.main()
