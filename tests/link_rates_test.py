"""Probes find the rates of links that are known."""

import link_probe_programs as programs
from absl import logging
from absl.testing import absltest, parameterized

from tests.clusters import one
from tf_gc.network_namespaces import why_unavailable
from tf_gc.testing.cluster import Cluster

_WORKERS = 3


@absltest.skipIf(why_unavailable(), f"no network namespaces here: {why_unavailable()}")
class RateTest(parameterized.TestCase):
    @parameterized.parameters(("10mbit", 1e7), ("100mbit", 1e8))
    def test_probes_find_the_rate(self, bandwidth, rate):
        with Cluster(_WORKERS, bandwidth=bandwidth) as cluster:
            outcomes = cluster.run(programs.estimate)
            links = one(cluster.run(programs.links))
        for network, seconds in outcomes:
            logging.info("%s in %.2f s", network, seconds)
            # All send to all in short bursts, which TCP does not share out evenly.
            self.assertBetween(network.bandwidth / rate, 0.3, 1.25)
            self.assertBetween(network.latency, 0, 0.05)
        for sender, row in enumerate(links):
            for receiver, link in enumerate(row):
                logging.info("%d > %d: %s", sender, receiver, link)
                if sender == receiver:
                    self.assertIsNone(link)
                else:
                    self.assertBetween(link.bandwidth / rate, 0.75, 1.25)
                    self.assertBetween(link.latency, 0, 0.05)


if __name__ == "__main__":
    absltest.main()
