"""tf_gc.adaptive: the knee of time and gain, and when it is searched for."""

import dataclasses
import math
import subprocess
import sys

import hypothesis
import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from tests import testing
from tf_gc import adaptive

testing.set_up_hypothesis(max_examples=100)

_NETWORK = adaptive.Network(latency=1e-3, bandwidth=1e8)
_GAIN_OF = dict(zip(adaptive.CANDIDATES, (0.9, 0.7, 0.5, 0.35, 0.2), strict=True))
_SECONDS_OF = {ratio: (0.001, ratio) for ratio in adaptive.CANDIDATES}

_AMOUNT = st.floats(0, 1e6) | st.sampled_from([0.0, math.inf])
_CANDIDATES = st.lists(
    st.tuples(st.floats(0.0001, 1), st.floats(0, 1), _AMOUNT, _AMOUNT),
    min_size=1,
    max_size=8,
    unique_by=lambda candidate: candidate[0],
)


def _knee(candidates):
    """The knee of {ratio: (gain, seconds of compression, seconds of communication)}."""
    return adaptive.knee(
        {ratio: gain for ratio, (gain, _, _) in candidates.items()},
        {ratio: seconds for ratio, (_, *seconds) in candidates.items()},
    )


def _dominates(a, b):
    return all(x <= y for x, y in zip(a, b, strict=True)) and a != b


class KneeTest(parameterized.TestCase):
    def test_is_where_the_curve_bends(self):
        # In ranges, seconds 1, 0.1, 0 and losses 0, 0.1, 1.
        bent = {0.1: (1.0, 0, 1.0), 0.01: (1 / 1.1, 0, 0.1), 0.001: (0.5, 0, 0.0)}
        self.assertEqual(_knee(bent), 0.01)
        # The middle lies above the line between its neighbours.
        bent[0.01] = (1 / 1.6, 0, 0.6)
        self.assertIn(_knee(bent), (0.1, 0.001))

    def test_noise_of_one_time_is_not_worth_as_much_as_the_other(self):
        # Compression takes 1 us less at 0.1; brought to a range of its own, it would decide.
        candidates = {0.1: (0.9, 0.001, 0.20), 0.01: (0.8, 0.001001, 0.05), 0.001: (0.3, 0.001, 0)}
        self.assertEqual(_knee(candidates), 0.01)

    def test_a_dominated_ratio_is_never_chosen(self):
        # 0.01 is slower than 0.1, and loses more.
        candidates = {0.1: (0.9, 0.01, 0.1), 0.01: (0.8, 0.02, 0.1), 0.001: (0.3, 0.01, 0.09)}
        self.assertNotEqual(_knee(candidates), 0.01)

    @hypothesis.given(_CANDIDATES)
    def test_is_one_of_the_front_whatever_the_order(self, candidates):
        candidates = {ratio: numbers for ratio, *numbers in candidates}
        ratio = _knee(candidates)
        self.assertEqual(_knee(dict(reversed(candidates.items()))), ratio)
        self.assertIn(ratio, candidates)
        objectives = {
            r: (compression, communication, 1 / gain)
            for r, (gain, compression, communication) in candidates.items()
            if gain > 0 and math.isfinite(1 / gain + compression + communication)
        }
        if not objectives:
            self.assertEqual(ratio, min(candidates))
        else:
            others = objectives.values()
            self.assertFalse(any(_dominates(o, objectives[ratio]) for o in others))

    @parameterized.named_parameters(
        ("all equal", dict.fromkeys(adaptive.CANDIDATES, (0.5, 1, 1)), 0.1),
        ("one", {0.01: (0.5, 1, 1)}, 0.01),
        # 0.011 is best in everything.
        ("one on the front", {0.1: (0.5, 2, 2), 0.011: (0.6, 1, 1), 0.001: (0.4, 2, 2)}, 0.011),
        ("times alike", {0.1: (0.9, 1, 0.005), 0.01: (0.5, 1, 0.001)}, 0.1),
        ("gains alike", {0.1: (0.801, 1, 1), 0.01: (0.8, 1, 0.1)}, 0.01),
        ("no time at all", {0.1: (0.9, 0, 0), 0.01: (0.5, 0, 0)}, 0.1),
        ("one takes for ever", {0.1: (0.9, 1, math.inf), 0.01: (0.5, 1, 1)}, 0.01),
        ("all take for ever", {0.1: (0.9, 1, math.inf), 0.01: (0.5, 1, math.inf)}, 0.01),
        ("not a number", {0.1: (math.nan, 1, 1), 0.01: (0.5, 1, 1)}, 0.01),
        ("no gain", {0.1: (0.5, 1, 1), 0.01: (0.0, 1, 0.1)}, 0.1),
        # 300 years and more for the larger ones.
        ("a link of nearly nothing", {0.1: (0.9, 0, 1e10), 0.01: (0.8, 0, 1e9)}, 0.1),
    )
    def test_degenerate(self, candidates, ratio):
        self.assertEqual(_knee(candidates), ratio)

    def test_the_global_random_state_is_left_alone(self):
        np.random.seed(3)
        before = np.random.random()
        np.random.seed(3)
        _knee({0.1: (0.9, 1, 2), 0.01: (0.5, 1, 1)})
        self.assertEqual(np.random.random(), before)

    def test_wrong_arguments_are_named(self):
        with self.assertRaisesRegex(ValueError, r"same ratios, at least one, got \[\] and \[\]"):
            adaptive.knee({}, {})
        with self.assertRaisesRegex(ValueError, r"same ratios.*\[0.1\] and \[0.2\]"):
            adaptive.knee({0.1: 1.0}, {0.2: (1, 1)})
        with self.assertRaisesRegex(ValueError, r"ratio must be in \(0, 1\], got 2"):
            adaptive.knee({2: 1.0}, {2: (1, 1)})


class RatioSearchTest(parameterized.TestCase):
    def test_the_first_update_searches_and_the_same_numbers_do_not(self):
        search = adaptive.RatioSearch()
        self.assertIsNone(search.ratio)
        ratio = search.update(_NETWORK, _GAIN_OF, _SECONDS_OF)
        self.assertEqual(ratio, adaptive.knee(_GAIN_OF, _SECONDS_OF))
        # Other seconds alone, of the same network, are no reason.
        search.update(_NETWORK, _GAIN_OF, dict.fromkeys(_GAIN_OF, (1, 1)))
        self.assertEqual((search.ratio, search.searches), (ratio, 1))

    @parameterized.parameters(
        ({"latency": 1.19e-3}, 1, False),
        ({"latency": 1.2e-3}, 1, True),
        ({"latency": 0.8e-3}, 1, True),
        ({"bandwidth": 0.81e8}, 1, False),
        ({"bandwidth": 0.8e8}, 1, True),
        ({"bandwidth": 1e-3}, 1, True),
        ({}, 1.09, False),
        ({}, 1.1, True),
        ({}, 0.91, False),
        ({}, 0.9, True),
        ({}, math.nan, True),
    )
    def test_a_change_searches_again(self, network, gain, is_due):
        search = adaptive.RatioSearch()
        ratio = search.update(_NETWORK, _GAIN_OF, _SECONDS_OF)
        gain_of = {**_GAIN_OF, ratio: gain * _GAIN_OF[ratio]}
        search.update(dataclasses.replace(_NETWORK, **network), gain_of, _SECONDS_OF)
        self.assertEqual(search.searches, 1 + is_due)

    def test_slow_drift_counts_from_the_last_search(self):
        search = adaptive.RatioSearch()
        ratio = search.update(_NETWORK, _GAIN_OF, _SECONDS_OF)
        for step in range(1, 4):
            gain_of = {**_GAIN_OF, ratio: _GAIN_OF[ratio] * (1 - 0.04 * step)}
            search.update(_NETWORK, gain_of, _SECONDS_OF)
        self.assertEqual(search.searches, 2)

    def test_gains_at_other_ratios_do_not_count(self):
        search = adaptive.RatioSearch()
        ratio = search.update(_NETWORK, _GAIN_OF, _SECONDS_OF)
        others = {r: g / 2 if r != ratio else g for r, g in _GAIN_OF.items()}
        search.update(_NETWORK, others, _SECONDS_OF)
        self.assertEqual(search.searches, 1)

    def test_other_candidates_and_a_first_latency_search_again(self):
        search = adaptive.RatioSearch()
        search.update(adaptive.Network(0, 1e8), _GAIN_OF, _SECONDS_OF)
        search.update(adaptive.Network(0, 1e8), _GAIN_OF, _SECONDS_OF)
        self.assertEqual(search.searches, 1)
        search.update(adaptive.Network(1e-6, 1e8), _GAIN_OF, _SECONDS_OF)
        self.assertEqual(search.searches, 2)
        self.assertEqual(search.update(_NETWORK, {0.5: 0.9}, {0.5: (1, 1)}), 0.5)

    def test_a_slower_link_takes_a_ratio_that_is_no_larger(self):
        """Where compression takes long at large ratios, and communication at none."""
        search = adaptive.RatioSearch()
        ratios = []
        for bandwidth in 1e11, 1e8, 1e6:
            network = adaptive.Network(1e-4, bandwidth)
            seconds_of = {
                r: (0.1, network.seconds(adaptive.ar_top_k_ring(4e6, 4, r))) for r in _GAIN_OF
            }
            ratios.append(search.update(network, _GAIN_OF, seconds_of))
        self.assertEqual(ratios, sorted(ratios, reverse=True))
        self.assertEqual(ratios[0], 0.1)  # all times are alike
        self.assertLess(ratios[-1], 0.1)

    @parameterized.parameters("gain_change", "network_change")
    def test_wrong_thresholds_are_named(self, name):
        with self.assertRaisesRegex(ValueError, f"{name} must be above 0, got 0"):
            adaptive.RatioSearch(**{name: 0})


class ImportTest(absltest.TestCase):
    def _run(self, program):
        path = f"import sys; sys.path[:] = {sys.path}; sys.modules['tensorflow'] = None\n"
        return subprocess.run(
            [sys.executable, "-c", path + program], capture_output=True, text=True, check=True
        ).stdout

    def test_nothing_imports_pymoo_before_a_search(self):
        program = (
            "import tf_gc; from tf_gc import adaptive\n"
            "print({'pymoo', 'scipy'} & set(sys.modules)); adaptive.RatioSearch()\n"
            "print({'pymoo'} & set(sys.modules))"
        )
        self.assertEqual(self._run(program), "set()\n{'pymoo'}\n")

    def test_no_search_imports_what_pymoo_is_made_of(self):
        """Which takes as long as some steps, and slows the plan that is tried then."""
        program = (
            "from tf_gc import adaptive\n"
            "search = adaptive.RatioSearch(); before = set(sys.modules)\n"
            "search.update(adaptive.Network(1e-3, 1e8), {0.1: 0.5}, {0.1: (0.1, 0.1)})\n"
            "print(sorted(set(sys.modules) - before))"
        )
        self.assertEqual(self._run(program), "[]\n")

    def test_without_pymoo_an_error_says_what_to_install(self):
        program = (
            "sys.modules['pymoo'] = None\n"
            "from tf_gc import adaptive\n"
            "for call in adaptive.RatioSearch, lambda: adaptive.knee({1: 1}, {1: (1, 1)}):\n"
            "    try: call()\n"
            "    except ImportError as error: print(error)\n"
        )
        message = "a search for the ratio needs pymoo: pip install 'tf-gc[adaptive]'\n"
        self.assertEqual(self._run(program), 2 * message)


if __name__ == "__main__":
    absltest.main()
