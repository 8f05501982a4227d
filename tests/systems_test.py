"""Each of the five systems, over real workers, does what its paper says."""

import itertools
import math
import statistics

import numpy as np
import systems_programs as programs
import tensorflow as tf
from absl.testing import absltest, parameterized

import tf_gc
from tests import systems_reference as reference
from tests import testing, three_lc_reference
from tests.cases import some_of, some_of_product
from tests.clusters import one, shared_cluster
from tf_gc.compressors import sparse
from tf_gc.exchange import Exchange

_SHAPES = ((48, 64), (40, 50))  # of two variables
_SIZES = tuple(math.prod(shape) for shape in reversed(_SHAPES))  # in the order of the bucket
_NAMES = ("variable1", "variable0")
_WORKERS = 4
_STEPS = 5


def thc(compressor, block):
    """The reference of a THC compressor."""
    return lambda: reference.THC(
        *(_WORKERS, _SIZES, _NAMES),
        bits=compressor.bits,
        table=compressor.table(_WORKERS),
        t_p=tf_gc.thc.truncation(compressor.p),
        block=block,
        rounding=compressor.rounding,
    )


def encoded_bytes(ternary):
    """What 3LC's bytes of some values take."""
    quartic = three_lc_reference.quartic_encode(ternary)
    return len(three_lc_reference.zero_run_encode(quartic))


class OverflowTest(parameterized.TestCase):
    @parameterized.parameters(
        tf_gc.ThreeLC(1.0),
        tf_gc.THC(),
        tf_gc.ARTopK(0.01),
        tf_gc.ScaleCom(100),
        tf_gc.TopK(0.01),
    )
    def test_where_only_the_sum_overflows_the_step_has_not_happened(self, compressor):
        results = shared_cluster(_WORKERS).run(programs.overflow, compressor, _SHAPES)
        for reduced, before, after in results:
            kept = ~np.isfinite(reduced)
            self.assertTrue(kept.any())
            # With 3LC that is of a shard, with others of variables, with THC of all of them.
            if not isinstance(compressor, tf_gc.ThreeLC):
                variables = np.split(kept, [_SIZES[0]])
                kept = np.concatenate([np.full(len(v), v.any()) for v in variables])
            self.assertEqual(kept.all(), compressor == tf_gc.THC())
            np.testing.assert_array_equal(after[kept], before[kept])
            self.assertGreater(np.abs(before[kept]).sum(), 0)

    @parameterized.parameters(
        (tf_gc.DGC(0.01), "momentum"),
        (tf_gc.PowerSGD(2), "factor"),
        (tf_gc.OneBitAdam(), "momentum"),
        (tf_gc.OneBitAdam(), "variance"),
    )
    def test_where_only_the_sum_overflows_no_slot_changes(self, compressor, slot):
        results = shared_cluster(_WORKERS).run(programs.overflow, compressor, _SHAPES, slot)
        for reduced, before, after in results:
            kept = _SHAPES[0][-1] * compressor.rank if slot == "factor" else _SIZES[-1]
            self.assertFalse(np.isfinite(reduced[-_SIZES[-1] :]).all())
            np.testing.assert_array_equal(after[-kept:], before[-kept:])
            self.assertGreater(np.abs(before[-kept:]).sum(), 0)

    def test_values_whose_magnitudes_have_no_finite_sum_overshoot_by_their_mean(self):
        values = np.full(101, 2e36, np.float32)
        values[0] = 2e38
        mean = values.mean(dtype=np.float64)
        delivered, left = sparse.deliver(tf.constant(values), 1.0)
        np.testing.assert_allclose(delivered, values + np.minimum(values, mean), rtol=1e-6)
        np.testing.assert_allclose(left, -np.minimum(values, mean), rtol=1e-3)

    def test_what_auto_did_not_deliver_in_a_step_that_overflows_comes_in_the_next_one(self):
        compressor = tf_gc.Auto(systems=(None,))
        cluster = shared_cluster(_WORKERS)
        reduced = one(cluster.run(programs.zeros_after_an_overflow, compressor, (48, 64)))
        np.testing.assert_array_equal(reduced, _WORKERS)

    @parameterized.parameters(tf_gc.ThreeLC(1.0), tf_gc.THC(), tf_gc.ARTopK(1.0))
    def test_a_sum_that_is_infinite_in_float16_is_so_in_one_step(self, compressor):
        reduced = one(
            shared_cluster(_WORKERS).run(programs.overflow_of_float16, compressor, (48, 64), 4)
        )
        self.assertTrue(np.isinf(reduced[0][0]))
        self.assertTrue(np.all(np.isfinite(reduced[1:])))


class UnitsTest(parameterized.TestCase):
    @parameterized.parameters(
        (tf_gc.ThreeLC(), True),
        (tf_gc.EFSignSGD(units="second_moment"), False),
        (tf_gc.Marsit(units="second_moment"), False),
    )
    def test_the_first_squares_count_for_all_before_unless_units_are_corrected(
        self, compressor, is_corrected
    ):
        shape, steps = (48, 64), 3
        slots, squares = one(
            shared_cluster(_WORKERS).run(programs.second_moments, compressor, shape, steps)
        )
        mean = weight = 0.0
        for step in range(steps):
            decay = 0.99 if step or is_corrected else 0.0
            weight = decay * weight + 1 - decay
            mean += (1 - decay) / weight * (squares[step] - mean)
            self.assertAlmostEqual(float(slots[step][-1]), weight, places=5)
            of_rows = slots[step][: shape[0]]
            self.assertAlmostEqual(float(of_rows.mean()) / mean, 1, delta=0.01)  # bfloat16

    def test_a_row_that_comes_late_spoils_no_others_of_its_block(self):
        compressor = tf_gc.THC(units="second_moment", rounding="nearest")
        for residual in shared_cluster(2).run(programs.row_comes_late, compressor, (48, 64), 20):
            self.assertLess(np.abs(residual[1:]).mean(), 0.2)


class TurnsTest(parameterized.TestCase):
    def test_compressors_that_need_no_flags_have_turns(self):
        turns = tf.Variable(tf.zeros([], tf.int64))
        exchange = Exchange(1, 2, 0, 1.0, turn_counter=lambda: turns)
        take_turn = tf.function(exchange.take_turn)
        self.assertEqual([take_turn().numpy(), take_turn().numpy()], [0, 1])

    @some_of_product(
        compressor=(tf_gc.LocalSteps(2), tf_gc.ARTopK(0.25), tf_gc.ScaleCom(4)),
        lists=(
            ((True, True), (True, False)),
            # With the same number of variables, and the same last one.
            ((True, False, True), (False, True, True)),
        ),
        count=3,
    )
    def test_variables_without_gradients_in_some_steps_have_their_turns(self, compressor, lists):
        for worker in shared_cluster(2).run(programs.in_turn, compressor, (16, 16), lists, 40):
            for given, waiting in worker:
                self.assertLess(waiting, given / 2)


class ReferenceTest(parameterized.TestCase):
    """Five steps, of four workers but for one test, against NumPy with the same random draws."""

    def assert_follows(self, compressor, system, workers=_WORKERS, tolerance=1e-5):
        results = shared_cluster(workers).run(programs.steps, compressor, _SHAPES, _STEPS)
        delivered = one([d for d, _ in results])
        for step in range(_STEPS):
            gradients = np.stack(
                [
                    programs.in_bucket_order(programs.gradients(_SHAPES, step, worker))
                    for worker in range(workers)
                ]
            )
            total, residuals = system.step(gradients)
            np.testing.assert_allclose(
                delivered[step], total, atol=tolerance, err_msg=f"sum of step {step}"
            )
            for worker, (_, kept) in enumerate(results):
                np.testing.assert_allclose(
                    kept[step],
                    residuals[worker],
                    atol=tolerance,
                    err_msg=f"residual of worker {worker}, step {step}",
                )

    @parameterized.parameters(0.5, 1.0, 1.75)
    def test_three_lc(self, multiplier):
        system = reference.ThreeLC(_WORKERS, _SIZES, _NAMES, sparsity_multiplier=multiplier)
        self.assert_follows(tf_gc.ThreeLC(multiplier), system)

    @parameterized.parameters(1.5, 3.0)
    def test_three_lc_with_the_scale_of_the_mean(self, multiplier):
        system = reference.ThreeLC(_WORKERS, _SIZES, _NAMES, mean_multiplier=multiplier)
        compressor = tf_gc.ThreeLC(units="gradient", mean_multiplier=multiplier)
        self.assert_follows(compressor, system)

    @parameterized.parameters(
        tf_gc.THC(),
        tf_gc.THC(bits=4, granularity=30),
        tf_gc.THC(bits=2, granularity=70),  # 16-bit lanes
        tf_gc.THC(rounding="nearest"),
        tf_gc.UniformTHC(),
        tf_gc.UniformTHC(bits=8, topology="ring"),
    )
    def test_thc(self, compressor):
        self.assert_follows(compressor, thc(compressor, block=64)())

    @some_of(
        *((rows, step_size, 3) for rows in (1, 2, 4) for step_size in (0.01, "mean_abs")),
        *((rows, step_size, 0) for rows in (1, 2, 4) for step_size in ("mean_abs", 0.01)),
        count=7,
    )
    def test_marsit(self, rows, step_size, full_precision_every):
        arguments = {"full_precision_every": full_precision_every}
        system = reference.Marsit(
            *(_WORKERS, _SIZES, _NAMES), rows=rows, step_size=step_size, **arguments
        )
        topology = {"topology": "torus", "rows": rows} if rows > 1 else {}
        self.assert_follows(tf_gc.Marsit(step_size, **arguments, **topology), system)

    def test_marsit_of_twelve_workers(self):
        """Of more than ten, worker 10 comes before worker 2 where names are sorted as text."""
        system = reference.Marsit(
            *(12, _SIZES, _NAMES), rows=2, step_size=0.01, full_precision_every=3
        )
        compressor = tf_gc.Marsit(0.01, full_precision_every=3, topology="torus", rows=2)
        self.assert_follows(compressor, system, workers=12)

    @parameterized.parameters((1.0, 0.9), (1.4, 0.5))
    def test_marsit_of_what_is_not_predicted(self, mean_multiplier, prediction):
        arguments = {"mean_multiplier": mean_multiplier, "prediction": prediction}
        system = reference.Marsit(_WORKERS, _SIZES, _NAMES, full_precision_every=3, **arguments)
        self.assert_follows(tf_gc.Marsit(full_precision_every=3, **arguments), system)

    @some_of(
        *(("staleness", "ring"), ("variance", "tree"), ("staleness", "sharded")),
        *(("variance", "ring"), ("staleness", "tree"), ("variance", "sharded")),
        count=3,
    )
    def test_ar_top_k(self, selection, topology):
        system = reference.ARTopK(_WORKERS, _SIZES, _NAMES, count=51, selection=selection)
        self.assert_follows(tf_gc.ARTopK(0.01, selection, topology), system)

    @parameterized.parameters("staleness", "variance")
    def test_ar_top_k_that_overshoots(self, selection):
        system = reference.ARTopK(
            _WORKERS, _SIZES, _NAMES, count=51, selection=selection, overshoot=0.75
        )
        self.assert_follows(tf_gc.ARTopK(0.01, selection, overshoot=0.75), system)

    @parameterized.parameters(0.0, 1.0)
    def test_top_k(self, overshoot):
        system = reference.TopK(_WORKERS, _SIZES, _NAMES, counts=[51], overshoot=overshoot)
        self.assert_follows(tf_gc.TopK(0.01, overshoot=overshoot), system)

    @parameterized.parameters(0.0, 1.0)
    def test_top_k_of_every_variable(self, overshoot):
        system = reference.TopK(_WORKERS, _SIZES, _NAMES, counts=[100, 154], overshoot=overshoot)
        self.assert_follows(tf_gc.TopK(0.05, per_variable=True, overshoot=overshoot), system)

    @some_of(
        *((7, 1.0, 0.0, False), (100, 0.3, 1.0, False), (7, 0.3, 0.0, True), (100, 1.0, 1.0, True)),
        *itertools.product((7, 100), (1.0, 0.3), (0.0, 1.0), (False, True)),
        count=4,
    )
    def test_scale_com(self, chunk, beta, overshoot, strided):
        arguments = {"chunk": chunk, "beta": beta, "overshoot": overshoot, "strided": strided}
        system = reference.ScaleCom(_WORKERS, _SIZES, _NAMES, **arguments)
        self.assert_follows(tf_gc.ScaleCom(**arguments), system)

    @parameterized.parameters(False, True)
    def test_a_chunk_of_more_values_than_there_are_has_them_all(self, strided):
        arguments = {"beta": 1.0, "overshoot": 0.0, "strided": strided}
        system = reference.ScaleCom(_WORKERS, _SIZES, _NAMES, chunk=sum(_SIZES), **arguments)
        self.assert_follows(tf_gc.ScaleCom(1 << 40, **arguments), system)


class ScaleComTest(absltest.TestCase):
    def test_the_papers_figure_a2(self):
        figure = testing.golden("scale_com_figure_a2")
        workers = len(figure["gradients"])
        delivered = one(
            shared_cluster(workers).run(
                programs.given, tf_gc.ScaleCom(figure["chunk"]), figure["gradients"], "MEAN"
            )
        )
        np.testing.assert_array_equal(np.nonzero(delivered)[0], figure["indices"])
        np.testing.assert_allclose(delivered[figure["indices"]], figure["averaged"], rtol=1e-6)


class MarsitTest(parameterized.TestCase):
    """Signs that four workers hold, merged on the way."""

    _STEPS = 300

    def signs(self, compressor):
        """Returns the workers' signs, and those that were delivered in every step."""
        values = np.random.default_rng(5).standard_normal([_WORKERS, 2000])
        delivered = one(
            shared_cluster(_WORKERS).run(programs.repeated, compressor, values, self._STEPS)
        )
        return np.where(values >= 0, 1, -1), np.where(delivered >= 0, 1, -1)

    @some_of(("torus", 2), ("ring", 1))
    def test_the_expected_sign_is_the_mean_of_the_signs(self, topology, rows):
        # So small that the residuals are the values, whatever was delivered.
        compressor = tf_gc.Marsit(1e-9, full_precision_every=0, topology=topology, rows=rows)
        values, delivered = self.signs(compressor)
        expected = values.mean(axis=0)
        errors = delivered.mean(axis=0) - expected
        deviations = np.sqrt((1 - expected**2) / self._STEPS)
        undecided = deviations > 0
        np.testing.assert_array_equal(errors[~undecided], 0)
        scores = errors[undecided] / deviations[undecided]
        # Of about 1750 standard normal numbers.
        self.assertLess(np.abs(scores).max(), 5)
        self.assertLess(abs(scores.mean()), 5 / np.sqrt(scores.size))
        self.assertAlmostEqual(np.mean(scores**2), 1, delta=0.2)

    def test_cascading_compression_matches_the_true_sign_less_often(self):
        """Figure 1b: cascading SSDM is hardly better than a coin."""
        values = np.random.default_rng(6).standard_normal([_WORKERS, 20000])
        true = np.sign(values.mean(axis=0))
        rates = {}
        for name, compressor in {
            "Marsit": tf_gc.Marsit(full_precision_every=0),
            "cascading SSDM": tf_gc.CascadingSSDM(),
        }.items():
            delivered = one(shared_cluster(_WORKERS).run(programs.given, compressor, values))
            rates[name] = np.mean(np.sign(delivered) == true)
        self.assertBetween(rates["cascading SSDM"], 0.45, 0.6)
        self.assertGreater(rates["Marsit"], rates["cascading SSDM"] + 0.1)


class ThcTest(absltest.TestCase):
    """Figure 15: the error of the mean over ten workers, by bits."""

    _WORKERS = 10
    _GRANULARITY = 25  # ten of them fit in 8 bits
    _P = 1 / 1024

    def error(self, compressor, gradient):
        delivered = one(
            shared_cluster(self._WORKERS).run(
                programs.given, compressor, [gradient] * self._WORKERS, "MEAN"
            )
        )
        return np.sum((delivered - gradient) ** 2) / np.sum(gradient**2)

    def plain(self, bits, gradient):
        """The error of quantising to evenly spaced values from -max to max, without transform."""
        largest = np.abs(gradient).max()
        levels = np.linspace(-largest, largest, 1 << bits).astype(np.float32)
        mean = np.mean(
            [
                levels[tf_gc.kernels.stochastic_quantize(gradient, levels, seed)]
                for seed in range(self._WORKERS)
            ],
            axis=0,
        )
        return np.sum((mean - gradient) ** 2) / np.sum(gradient**2)

    def test_error_is_that_of_evenly_spaced_levels_or_less(self):
        """A bit more halves the distance between levels, about, and the error is its square."""
        rng = np.random.default_rng(1)
        gradient = rng.lognormal(size=1 << 14) * rng.choice([-1, 1], 1 << 14)
        gradient = gradient.astype(np.float32)
        thc, uniform, plain = [], [], []
        for bits in (2, 3, 4):
            thc.append(
                self.error(tf_gc.THC(bits, self._P, granularity=self._GRANULARITY), gradient)
            )
            uniform.append(self.error(tf_gc.UniformTHC(bits, self._P), gradient))
            plain.append(self.plain(bits, gradient))
        for bits, errors in enumerate(zip(thc, uniform, plain, strict=True), start=2):
            with self.subTest(bits=bits):
                # Transformed, values are normal. Rounded at random to one of the two levels
                # beside it, a value has a variance of a sixth of their distance's square.
                # What is beyond the limit is cut off by all workers alike.
                normal = statistics.NormalDist()
                limit = normal.inv_cdf(1 - self._P / 2)
                distance = 2 * limit / (2**bits - 1)
                cut = (1 + limit**2) * self._P - 2 * limit * normal.pdf(limit)
                expected = distance**2 / 6 / self._WORKERS + cut
                self.assertBetween(errors[1] / expected, 0.94, 1.06)
                # The best table's levels are closer where values are many.
                self.assertBetween(errors[0] / errors[1], 0.65, 0.85)
                self.assertLess(errors[0], errors[2])


class WireTest(parameterized.TestCase):
    """What a megabyte of gradients takes on the wire, up and down, in bits a value."""

    _SHAPE = (512, 512)
    _STEPS = 16

    @parameterized.parameters(
        (tf_gc.THC(), (4, 4.05), (8, 8.05)),
        (tf_gc.Marsit(full_precision_every=0), (1, 1.02), (1, 1.02)),
        # An index of one in a hundred takes 8.6 bits, of which the theory asks for 8.1. A worker
        # passes all indices on to (N - 1) / N others in the mean, as many as it has sums to send.
        (tf_gc.ARTopK(0.01), (0.32, 0.335), (0.32 + 0.081, 0.32 + 0.1)),
        (tf_gc.ScaleCom(100), (0.32, 0.335), (0.32 + 0.081, 0.32 + 0.1)),
        # Everything is sent to N - 1 others, where an all-reduce sends (N - 1) / N up.
        (tf_gc.TopK(0.01), (4 * (0.32 + 0.081), 4 * (0.32 + 0.093)), (0, 0)),
    )
    def test_bits_a_value(self, compressor, up, down):
        traffic = shared_cluster(_WORKERS).run(
            programs.traffic, compressor, self._SHAPE, self._STEPS
        )
        values = sum(t["values_sent"] for t in traffic) / 2
        results = sum(t["result_bytes_sent"] for t in traffic)
        contributions = sum(t["bytes_sent"] for t in traffic) - results
        self.assertBetween(8 * contributions / values, *up)
        self.assertBetween(8 * results / values, *down)

    def test_three_lc_sends_zero_runs(self):
        """The bytes of a step, but for headers, are those of the paper's encoding."""
        size = math.prod(self._SHAPE)
        gradients = [testing.gaussian(size, seed=worker) for worker in range(_WORKERS)]
        system = reference.ThreeLC(_WORKERS, [size], ["variable0"], sparsity_multiplier=1)
        sums, _ = system.step(np.stack(gradients))
        shards = np.split(np.arange(size), _WORKERS)
        up = down = 0
        for worker, shard in enumerate(shards):
            remote = np.delete(np.arange(size), shard)
            _, ternary, _ = three_lc_reference.quantize(gradients[worker][remote], 0, 1)
            up += sum(encoded_bytes(part) for part in np.split(ternary, _WORKERS - 1))
            down += (_WORKERS - 1) * encoded_bytes(np.sign(sums[shard]).astype(int))
        self.assertLess(8 * up / size / (_WORKERS - 1), 0.5)  # runs of zeros: a fifth takes 1.6
        traffic = shared_cluster(_WORKERS).run(programs.traffic, tf_gc.ThreeLC(1.0), self._SHAPE, 1)
        results = sum(t["result_bytes_sent"] for t in traffic)
        contributions = sum(t["bytes_sent"] for t in traffic) - results
        headers = _WORKERS * (_WORKERS - 1) * 64
        self.assertBetween(contributions, up, up + headers)
        self.assertBetween(results, down, down + headers)

    @some_of(
        (tf_gc.ThreeLC(), 0.01),
        (tf_gc.THC(), 0.01),
        (tf_gc.Marsit(full_precision_every=0), 0.01),
        # 18 kB of a megabyte, in ten messages.
        (tf_gc.ARTopK(0.01), 0.03),
        (tf_gc.ScaleCom(100), 0.03),
        count=3,
    )
    def test_headers_and_padding_are_a_small_part(self, compressor, most):
        for traffic in shared_cluster(_WORKERS).run(
            programs.traffic, compressor, self._SHAPE, self._STEPS
        ):
            payload = sum(variable["bytes_sent"] for variable in traffic["variables"])
            payload += traffic["second_moment_bytes_sent"]
            self.assertLess(traffic["bytes_sent"] - payload, most * traffic["bytes_sent"])


if __name__ == "__main__":
    absltest.main()
