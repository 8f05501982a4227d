"""tf_gc.adaptive.LinkEstimator, on samples of networks that are known."""

import io
import math
import re

import hypothesis
import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tf_gc import adaptive
from tf_gc.adaptive import links, probe

# What a probe sends, and two messages of a step.
_PROBE = (32, 32, 1024, 32, 4096, 32, 1 << 14, 32, 1 << 16, 32, 1 << 18, 32, 1 << 20, 1 << 20)
_STEP = (100, 100, 300_000)

# The same examples each time, on a machine as busy as may be.
_settings = hypothesis.settings(derandomize=True, deadline=None)
_latencies = st.floats(1e-4, 2e-2)
_bandwidths = st.floats(1e6, 1e9)


def _samples(sizes, latency, bandwidth, rng=None):
    """Rows of bytes, seconds and transfers; with a generator up to a fifth too slow."""
    noise = 1 if rng is None else 1 + 0.2 * rng.random(len(sizes))
    seconds = (2 * latency + 8 * np.array(sizes) / bandwidth) * noise
    return np.stack([sizes, seconds, np.ones(len(sizes))], axis=1)


def _arrivals(sizes, bandwidth):
    """Rows of bytes, seconds, transfers, and that nothing was asked for."""
    seconds = 8 * np.array(sizes) / bandwidth
    return np.stack([sizes, seconds, np.ones(len(sizes)), np.zeros(len(sizes))], axis=1)


class ProbeTest(absltest.TestCase):
    def test_each_row_of_many_fast_links_has_its_name(self):
        link = adaptive.Network(1e-4, 1.2345e10)
        out = io.StringIO()
        names = [f"worker {worker}" for worker in range(8)]
        probe.print_table([[link] * 8] * 8, names, out)
        self.assertEqual(re.findall(r"^│ (worker \d) ", out.getvalue(), re.MULTILINE), names)
        self.assertNotIn("…", out.getvalue())
        self.assertIn("12.3 Gbit/s", out.getvalue())


class LinkEstimatorTest(parameterized.TestCase):
    def check(self, network, latency, bandwidth, tolerance=0.3):
        self.assertIsNotNone(network)
        self.assertLess(abs(math.log(network.bandwidth / bandwidth)), math.log1p(tolerance))
        self.assertLess(abs(math.log(network.latency / latency)), math.log1p(tolerance))

    def after_probe(self, latency, bandwidth, rng=None):
        estimator = adaptive.LinkEstimator()
        estimator.add(_samples(_PROBE, latency, bandwidth, rng))
        return estimator

    def steps_until(self, estimator, latency, bandwidth, tolerance=0.3):
        """How many steps it takes until the estimate is within the tolerance."""
        for step in range(1, 50):
            estimator.add(_samples(_STEP, latency, bandwidth))
            network = estimator.network
            if (
                abs(network.latency / latency - 1) < tolerance
                and abs(network.bandwidth / bandwidth - 1) < tolerance
            ):
                return step
        return math.inf

    @_settings
    @hypothesis.given(_latencies, _bandwidths)
    def test_exact_samples_give_the_network_itself(self, latency, bandwidth):
        network = self.after_probe(latency, bandwidth).network
        self.check(network, latency, bandwidth, tolerance=1e-6)

    @_settings
    @hypothesis.given(_latencies, _bandwidths, st.integers(0, 1000))
    def test_noise_is_no_more_in_the_estimate_than_in_the_samples(self, latency, bandwidth, seed):
        # A message that takes no longer than the noise of the latency tells nothing.
        hypothesis.assume(8 * _PROBE[-1] / bandwidth > 2 * latency)
        hypothesis.assume(8 * _PROBE[0] / bandwidth < latency / 2)
        estimator = self.after_probe(latency, bandwidth, np.random.default_rng(seed))
        self.check(estimator.network, latency, bandwidth, tolerance=0.4)

    @parameterized.product(
        latency=(2e-4, 2e-3), bandwidth=(1e7, 1e8), factor=(0.1, 10.0), of_latency=(False, True)
    )
    def test_a_change_is_seen_within_a_few_steps(self, latency, bandwidth, factor, of_latency):
        estimator = self.after_probe(latency, bandwidth)
        self.assertEqual(self.steps_until(estimator, latency, bandwidth), 1)
        for _ in range(30):
            estimator.add(_samples(_STEP, latency, bandwidth))
        if of_latency:
            latency *= factor
        else:
            bandwidth *= factor
        self.assertLessEqual(self.steps_until(estimator, latency, bandwidth), 5)

    @parameterized.parameters(0.1, 10.0)
    def test_a_change_of_bandwidth_is_seen_by_long_messages_alone(self, factor):
        estimator = self.after_probe(1e-3, 1e8)
        for _ in range(50):  # more than is remembered
            estimator.add(_samples([300_000], 1e-3, 1e8))
        estimator.add(_samples([300_000] * 4, 1e-3, factor * 1e8))
        self.check(estimator.network, 1e-3, factor * 1e8, tolerance=1e-6)

    @parameterized.parameters(0.1, 10.0)
    def test_a_change_of_latency_is_seen_by_short_messages_alone(self, factor):
        estimator = self.after_probe(1e-3, 1e8)
        for _ in range(50):
            estimator.add(_samples([100], 1e-3, 1e8))
        estimator.add(_samples([100] * 4, factor * 1e-3, 1e8))
        self.check(estimator.network, factor * 1e-3, 1e8, tolerance=1e-6)

    @_settings
    @hypothesis.given(st.integers(0, 2), st.floats(2, 100), st.integers(3, 40))
    def test_one_slow_sample_moves_nothing(self, position, factor, steps):
        estimator = self.after_probe(1e-3, 1e8)
        for _ in range(steps):
            estimator.add(_samples(_STEP, 1e-3, 1e8))
        samples = _samples(_STEP, 1e-3, 1e8)
        samples[position, 1] *= factor
        estimator.add(samples)
        self.check(estimator.network, 1e-3, 1e8, tolerance=1e-6)
        estimator.add(_samples(_STEP, 1e-3, 1e8))
        self.check(estimator.network, 1e-3, 1e8, tolerance=1e-6)

    @parameterized.parameters(2, 100)
    def test_what_short_messages_take_on_a_busy_machine_is_no_change(self, steps_apart):
        """Few bytes that were left over, in each step, and long messages in one of so many."""
        latencies = []
        for seed in range(20):
            rng = np.random.default_rng(seed)
            estimator = self.after_probe(3e-4, 1e9, rng)
            for step in range(200):
                rests = rng.integers(1, 290, 8)
                samples = _samples(rests, 3e-4, 1e9)
                samples[:, 1] *= rng.lognormal(0.3, 0.7, len(rests))
                estimator.add(samples)
                if step % steps_apart == 0:
                    estimator.add(_samples([50_000, 100_000, 300_000], 3e-4, 1e9, rng))
                self.assertBetween(estimator.network.bandwidth, 4e8, 3e9)
                latencies.append(estimator.network.latency)
        self.assertBetween(np.quantile(latencies, 0.02), 5e-5, 3e-4)
        self.assertBetween(np.quantile(latencies, 0.98), 2e-4, 12e-4)

    def test_long_messages_that_tell_of_a_latency_first_do_not_count_for_the_bandwidth(self):
        for bandwidth in (1e7, 1e8):
            estimator = self.after_probe(1e-3, bandwidth)
            for _ in range(30):
                estimator.add(_samples(_STEP, 1e-3, bandwidth))
            estimator.add(_samples([20_000, 30_000, 40_000, 20_000, 30_000], 5e-2, bandwidth))
            estimator.add(_samples([100] * 4, 5e-2, bandwidth))
            self.check(estimator.network, 5e-2, bandwidth, tolerance=0.5)

    @parameterized.parameters(5e-2, 1e-3)
    def test_messages_that_take_a_second_round_trip_are_no_lower_bandwidth(self, latency_before):
        """As TCP sends ten segments alone where a connection was idle, and then waits."""
        estimator = self.after_probe(latency_before, 1e7)
        sizes = np.array([100, 11_000, 33_000, 22_000, 33_000, 11_000])
        for _ in range(30):
            samples = _samples(sizes, 5e-2, 1e7)
            samples[sizes > 14_600, 1] += 0.1
            estimator.add(samples)
        self.check(estimator.network, 5e-2, 1e7)

    def test_a_few_long_messages_tell_the_bandwidth_beside_many_short_ones(self):
        """As a probe of 10 Mbit/s sends them, whose first 16 KB pass a token bucket at once."""
        estimator = adaptive.LinkEstimator()
        quick = [(64, 4e-4)] * 9 + [(1 << 10, 5e-4), (1 << 12, 6e-4), (1 << 14, 1e-3)]
        estimator.add(quick + [(1 << 16, 0.04)] * 2)
        self.check(estimator.network, 2e-4, 1e7, tolerance=0.5)

    def test_a_bandwidth_is_seen_behind_second_round_trips_in_a_row(self):
        estimator = self.after_probe(5e-2, 1e7)
        sizes = np.array([100, 10_000] + [33_000] * 5)
        for _ in range(30):
            samples = _samples(sizes, 5e-2, 3e6)
            samples[sizes > 14_600, 1] += 0.1
            estimator.add(samples)
        self.check(estimator.network, 5e-2, 3e6)

    def test_a_latency_that_short_messages_show_explains_longer_ones(self):
        """One that is too small a change to be one by itself, on a busy machine."""
        estimator = self.after_probe(4e-3, 5e7)
        sizes = np.array([100, 33_000, 22_000, 11_000])
        for _ in range(3):
            samples = _samples(sizes, 12e-3, 5e7)
            samples[sizes > 14_600, 1] += 24e-3
            estimator.add(samples)
        self.assertBetween(estimator.network.bandwidth, 4e7, 6e7)

    def test_short_messages_of_all_sizes_tell_of_a_latency_together(self):
        """What long ones took before says nothing of links that are farther now."""
        estimator = self.after_probe(1e-2, 5e7)
        estimator.add(_samples([140_000, 300_000] * 8, 1e-2, 5e7))
        for _ in range(3):
            estimator.add(_samples([2, 10, 50, 200, 900], 5e-2, 5e7))
            self.assertBetween(estimator.network.bandwidth, 4e7, 6e7)

    def test_a_few_slow_samples_before_a_change_do_not_hide_it(self):
        """Those of a busy machine, say, in one row with the ones after the change."""
        for before in range(1, 12):
            estimator = self.after_probe(2e-4, 4e9)
            estimator.add(_samples([2_000] * before, 1e-3, 4e9))
            estimator.add(_samples([1 << 20] * 4 + [1 << 21] * 4, 0, 1e6))
            self.assertBetween(estimator.network.bandwidth, 0.99e6, 1.01e6, before)

    def test_what_longer_messages_tell_waits_for_short_ones(self):
        """It may be the latency that has changed, or the bandwidth."""
        estimator = self.after_probe(1e-3, 1e7)
        estimator.add(_samples([11_000, 33_000, 22_000, 33_000] * 4, 5e-2, 1e7))
        self.check(estimator.network, 1e-3, 1e7, tolerance=1e-6)
        for _ in range(4):
            estimator.add(_samples([100, 11_000, 33_000, 22_000, 33_000], 1e-3, 2e6))
        self.check(estimator.network, 1e-3, 2e6, tolerance=1e-6)

    def test_a_change_is_followed_by_samples_of_a_training(self):
        """Those of 3LC and AR-Topk with four workers on two cores, in bytes and milliseconds."""
        between = (
            *((84, 22.6), (200, 21.0), (12_381, 23.2), (11_744, 22.5), (11_744, 22.3)),
            *((12_381, 23.5), (11_744, 24.0), (23_556, 24.4), (284, 40.4), (47_140, 28.7)),
            *((47_140, 28.7), (181_549, 63.7), (177, 21.0), (157_480, 53.8), (138_872, 72.8)),
        )
        far = (
            *((136_039, 227.9), (161_672, 352.0), (84, 102.3), (200, 101.0), (12_381, 108.5)),
            *((47_140, 137.8), (47_140, 138.0), (22_943, 169.3), (10_152, 117.8), (9_650, 179.6)),
            *((2_977, 101.6), (204_531, 401.7), (112_843, 277.2), (84, 141.9), (200, 108.7)),
            *((140_919, 217.6), (108_279, 224.8), (51_193, 248.2), (497, 100.9)),
        )
        estimator = self.after_probe(1e-3, 2.5e8)
        for samples, latency, bandwidth in ((between, 1e-2, 5e7), (far, 5e-2, 1e7)):
            for size, milliseconds in samples:
                estimator.add([(size, milliseconds / 1e3)])
            self.check(estimator.network, latency, bandwidth)

    def test_links_that_are_faster_than_the_longest_messages_tell_are_no_slower_than_they_do(self):
        estimator = self.after_probe(5e-2, 1e7)
        estimator.add(_samples([100, 11_000, 110_000] * 8, 5e-2, 2.5e8))
        self.assertBetween(estimator.network.bandwidth, 2e7, 2.5e8)

    def test_messages_that_are_mostly_latency_refute_a_far_lower_bandwidth(self):
        """As where a step in which links change takes long, and a ring's short messages follow."""
        estimator = self.after_probe(0.01, 5e7)
        for _ in range(8):
            estimator.add(_samples((52, 136, 110_000, 100_000), 0.01, 5e7))
        odd = (52, 0.1), (110_000, 0.5), (3000, 1.0), (100_000, 0.6), (2000, 0.4), (136, 0.1)
        estimator.add(odd)
        self.assertLess(estimator.network.bandwidth, 1e6)
        for _ in range(3):
            estimator.add(_samples((52, 136, 11_744, 11_812), 0.05, 1e7))
        self.check(estimator.network, 0.05, 1e7)

    def test_a_slow_drift_is_followed(self):
        estimator = self.after_probe(1e-3, 1e8)
        for step in range(100):
            estimator.add(_samples(_STEP, 1e-3, 1e8 * 0.98**step))
        self.check(estimator.network, 1e-3, 1e8 * 0.98**99, tolerance=0.3)

    @parameterized.named_parameters(
        ("none", []),
        ("one", [100]),
        ("tiny", [50, 100, 200, 400] * 5),
        ("of one size", [300_000] * 20),
        ("huge", [10**6, 2 * 10**6, 10**7] * 5),
    )
    def test_samples_that_do_not_tell_the_network_leave_it_unknown(self, sizes):
        estimator = adaptive.LinkEstimator()
        estimator.add(_samples(sizes, 1e-3, 1e8, np.random.default_rng(0)))
        self.assertIsNone(estimator.network)

    @parameterized.parameters([[50, 100, 200, 400]], [[10**6, 2 * 10**6, 10**7]])
    def test_samples_that_do_not_tell_a_part_leave_it_alone(self, sizes):
        estimator = self.after_probe(1e-3, 1e8)
        rng = np.random.default_rng(0)
        for _ in range(20):
            estimator.add(_samples(sizes, 1e-3, 1e8, rng))
        self.check(estimator.network, 1e-3, 1e8)

    def test_a_network_so_fast_that_sizes_do_not_matter_is_fast(self):
        rng = np.random.default_rng(0)
        estimator = self.after_probe(1e-3, 1e15, rng)
        self.assertGreater(estimator.network.bandwidth, 1e9)
        self.assertLess(abs(estimator.network.latency / 1e-3 - 1), 0.3)

    @parameterized.product(factor=(0.1, 0.5, 2.0), before=(0, 10))
    def test_a_change_of_bandwidth_is_seen_by_arrivals_alone(self, factor, before):
        estimator = self.after_probe(5e-2, 1e8)
        for _ in range(before):
            estimator.add(_arrivals([50_000, 60_000], 1e8))
        for step in range(4):
            estimator.add(_arrivals([50_000, 60_000], factor * 1e8))
            if step == 2 and factor < 1:
                self.check(estimator.network, 5e-2, factor * 1e8)
        self.check(estimator.network, 5e-2, factor * 1e8, tolerance=0.01)

    def test_short_messages_tell_the_latency_beside_arrivals(self):
        estimator = self.after_probe(1e-3, 1e8)
        for _ in range(5):
            estimator.add(_arrivals([50_000, 60_000], 1e7))
            estimator.add(_samples([100, 2000], 5e-2, 1e7))
        self.check(estimator.network, 5e-2, 1e7, tolerance=0.05)

    def test_arrivals_that_seem_quick_or_were_held_up_count_little(self):
        estimator = self.after_probe(1e-3, 1e8)
        for seed in range(20):
            arrivals = _arrivals([50_000] * 6, 1e8)
            others = np.random.default_rng(seed).choice(6, 4, replace=False)
            arrivals[others, 1] *= [0.01, 2, 3, 100]
            estimator.add(arrivals)
            self.check(estimator.network, 1e-3, 1e8, tolerance=0.01)

    def test_an_arrival_of_three_messages_tells_the_bandwidth(self):
        (arrival,) = _arrivals([150_000], 1e7)
        for messages, bandwidth in (2, 1e8), (3, 1e7):
            estimator = self.after_probe(1e-3, 1e8)
            estimator.add([[*arrival[:2], messages, 0]])
            self.assertAlmostEqual(estimator.network.bandwidth / bandwidth, 1, delta=0.01)

    def test_arrivals_that_take_no_time_tell_how_fast_a_link_is_at_least(self):
        estimator = self.after_probe(1e-3, 1e8)
        estimator.add(_arrivals([1000] * 8, 1e7))
        self.check(estimator.network, 1e-3, 1e8, tolerance=0.01)
        estimator.add(_arrivals([50_000] * 8, 1e9))
        self.check(estimator.network, 1e-3, 4e8, tolerance=0.01)

    def test_short_arrivals_do_not_hide_what_long_ones_tell(self):
        estimator = self.after_probe(1e-3, 1e9)
        for _ in range(3):
            estimator.add(_arrivals([2000] * 5 + [1_000_000], 1e8))
        self.check(estimator.network, 1e-3, 1e8, tolerance=0.1)

    def test_long_messages_count_as_arrivals(self):
        estimator = self.after_probe(1e-3, 1e8)
        estimator.add(_arrivals([50_000] * 4, 1e8))
        for _ in range(3):
            estimator.add(_samples([1_000_000] * 3, 1e-3, 2e7))
        self.check(estimator.network, 1e-3, 2e7)

    @_settings
    @hypothesis.given(
        st.lists(
            st.tuples(
                st.integers(0, 10**9), st.floats(1e-9, 1e3), st.just(1), st.sampled_from([0, 1])
            ),
            max_size=60,
        )
    )
    def test_any_samples_give_a_network(self, samples):
        estimator = self.after_probe(1e-3, 1e8)
        for sample in samples:
            estimator.add([sample])
            self.assertBetween(estimator.network.latency, 0, 1e3)
            self.assertBetween(estimator.network.bandwidth, 1e-12, links.FASTEST)

    def test_no_samples_are_none(self):
        estimator = self.after_probe(1e-3, 1e8)
        before = estimator.network
        estimator.add(np.zeros([0, 3]))
        self.assertEqual(estimator.network, before)

    @parameterized.parameters(
        ([[1.0]], r"shape \[n, 2 or more\], got \(1, 1\)"),
        ([1.0, 2.0], r"shape \[n, 2 or more\], got \(2,\)"),
        ([[1.0, 1.0], [5.0, 0.0]], "got 5 bytes in 0 s"),
        ([[-1.0, 1.0]], "got -1 bytes in 1 s"),
        ([[math.inf, 1.0]], "got inf bytes in 1 s"),
        ([[1.0, math.nan]], "got 1 bytes in nan s"),
    )
    def test_wrong_samples_are_named(self, samples, message):
        with self.assertRaisesRegex(ValueError, message):
            adaptive.LinkEstimator().add(samples)


if __name__ == "__main__":
    absltest.main()
