"""What the traffic of parameter servers counts is what the loopback interface sends.

A test of its own, which runs alone: all others send there, too.
"""

import parameter_server_programs as programs
import server_clusters
from absl.testing import absltest, parameterized

import tf_gc


class LoopbackBytesTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = cls.enter_context(server_clusters.ServerCluster(1))

    @parameterized.product(
        compression=(tf_gc.Policy(), tf_gc.ThreeLC(), tf_gc.THC()), synchronous=(False, True)
    )
    def test_what_is_counted_is_what_is_sent(self, compression, synchronous):
        steps = 20
        sent, counted = self.cluster.run(
            programs.loopback_bytes,
            steps,
            (1024, 512),
            compression=compression,
            synchronous=synchronous,
        )
        self.assertGreater(sent, counted)
        self.assertLess(sent, 1.05 * counted + 12 * 1024 * steps)


if __name__ == "__main__":
    absltest.main()
