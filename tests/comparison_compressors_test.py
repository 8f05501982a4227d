"""The designs that the papers compare with, over real workers, do what their papers say."""

import functools
import math
import types
import zlib

import numpy as np
import systems_programs as programs
import tensorflow as tf
from absl.testing import absltest, parameterized

import tf_gc
from tests import comparison_reference as reference
from tests import systems_reference
from tests.cases import some_of, some_of_product
from tests.clusters import one, shared_cluster
from tf_gc import ops
from tf_gc.compressors import fused

# Of three variables: a matrix, one value, and a kernel that is a matrix of 30 rows.
_SHAPES = ((12, 40), (1,), (6, 5, 16))
_BUCKET_SHAPES = _SHAPES[::-1]  # in the order of the bucket
_SIZES = tuple(math.prod(shape) for shape in _BUCKET_SHAPES)
_NAMES = ("variable2", "variable1", "variable0")
_WORKERS = 3
_STEPS = 4
_TINY = 1e-5


def run(compressor, steps=_STEPS, workers=_WORKERS):
    """Returns the gradients, what was delivered and the residuals: [worker, step, value]."""
    results = shared_cluster(workers).run(programs.steps, compressor, _SHAPES, steps)
    gradients = [
        [
            programs.in_bucket_order(programs.gradients(_SHAPES, step, worker))
            for step in range(steps)
        ]
        for worker in range(workers)
    ]
    return np.array(gradients), one([d for d, _ in results]), np.stack([r for _, r in results])


def normal(shape, seed):
    return tf.random.stateless_normal(shape, seed).numpy()


def _exchange_of_one(size, step):
    """What RandomK knows of an exchange with nobody."""
    return types.SimpleNamespace(
        size=size,
        step=step,
        sum=lambda values: values,
        seed=lambda seed, purpose="", shared=False: tf.constant(
            [zlib.crc32(f"{seed} {purpose}".encode()), step], tf.int64
        ),
    )


class AdamTest(parameterized.TestCase):
    """What 1-bit Adam and 0/1 Adam have the optimizer do."""

    @some_of(
        (programs.Moments(freeze_step=3, beta_1=0.8, beta_2=0.9), range(3)),
        (programs.ZeroOneMoments(updates_per_interval=2, beta_2=0.9), {0, 1, 2, 4, 6, 10}),
        (programs.ZeroOneMoments(freeze_step=4, updates_per_interval=1, beta_2=0.9), {0, 1, 3}),
        count=2,
    )
    def test_adams_second_moment_is_that_of_the_exact_steps(self, compressor, exact):
        steps = 12
        gradients, moments, _ = run(compressor, steps)
        arguments = {"exact": exact, "beta_1": compressor.beta_1, "beta_2": 0.9}
        design = reference.OneBitAdam(_WORKERS, _SIZES, _NAMES, **arguments)
        velocity = np.zeros(sum(_SIZES))
        for step in range(steps):
            design.step(gradients[:, step])
            velocity = 0.9 * velocity + 0.1 * moments[step]
            corrected = velocity / (1 - 0.9 ** (step + 1))
            np.testing.assert_allclose(
                corrected, design.second_moment(), rtol=1e-4, atol=1e-6, err_msg=f"step {step}"
            )

    @some_of(
        (programs.Moments(freeze_step=6, beta_2=0.9), {4, 5}),
        (programs.ZeroOneMoments(freeze_step=8, updates_per_interval=3, beta_2=0.9), {5, 7}),
    )
    def test_the_second_moment_of_a_variable_that_comes_late_is_of_its_own_steps(
        self, compressor, exact
    ):
        shape, late, steps = _SHAPES[0], 4, 10
        arguments = programs.of_a_late_variable, compressor, shape, steps, late
        moments = one(shared_cluster(_WORKERS).run(*arguments))
        weighted = total = 0.0
        for step in range(late, steps):
            weighted, total = (0.9 * x if step in exact else x for x in (weighted, total))
            if step in exact:
                workers = [programs.gradients([shape] * 2, step, w)[1] for w in range(_WORKERS)]
                weighted, total = weighted + np.square(np.sum(workers, axis=0)), total + 1
        # In the steps after the last exact one.
        for moment in moments[max(exact) + 1 - late :]:
            np.testing.assert_allclose(moment, np.ravel(weighted / total), rtol=1e-4, atol=1e-6)

    def test_steps_before_the_first_exact_one_have_the_square(self):
        arguments = {"updates_per_interval": 1, "start_step": 2}
        _, delivered, _ = run(tf_gc.ZeroOneAdam(**arguments))
        _, moments, _ = run(programs.ZeroOneMoments(**arguments))
        np.testing.assert_allclose(moments[2], delivered[2] ** 2, rtol=1e-5)

    def test_adams_momentum_is_the_one_that_was_delivered(self):
        _, delivered, _ = run(tf_gc.OneBitAdam(freeze_step=2), steps=6)
        momentum = np.zeros(sum(_SIZES))
        for sum_of_gradients in delivered:
            momentum = 0.9 * momentum + 0.1 * sum_of_gradients / _WORKERS
        # The mean of three signs times magnitudes, which each variable has its own of.
        for part in np.split(momentum, np.cumsum(_SIZES)[:-1]):
            self.assertLessEqual(len(np.unique(np.round(part, 5))), 2**_WORKERS)

    @some_of("MEAN", "SUM")
    def test_another_number_of_workers_goes_on_with_both_moments(self, reduce_op):
        def run_both(compressor):
            directory = self.create_tempdir().full_path
            arguments = programs.go_on, directory, compressor, _SHAPES[0], reduce_op
            return [
                one(shared_cluster(workers).run(*arguments, steps))
                for workers, steps in ((3, range(4)), (2, range(4, 6)))
            ]

        before, after = run_both(programs.Moments(freeze_step=3))
        np.testing.assert_allclose(after, before[[-1, -1]], rtol=1e-5)
        momentum = 0.0
        for reduced in np.concatenate(run_both(tf_gc.OneBitAdam(freeze_step=3))):
            momentum = 0.9 * momentum + 0.1 * reduced
        # Two signs times magnitudes: what is delivered holds the change from the momentum before.
        self.assertLessEqual(len(np.unique(np.round(momentum, 5))), 4)

    def test_exact_steps_become_rarer(self):
        compressor = tf_gc.ZeroOneAdam(freeze_step=2000, updates_per_interval=3)
        steps, step, interval = [], 0, 1
        while step < 2000:
            steps += range(step, step + 3 * interval, interval)
            step, interval = step + 3 * interval, 2 * interval
        exact = compressor.is_exact(tf.range(3000, dtype=tf.int64)).numpy()
        self.assertListEqual(np.flatnonzero(exact).tolist(), [s for s in steps if s < 2000])


class ReferenceTest(parameterized.TestCase):
    """Some steps of three workers against NumPy, with the same random draws."""

    def assert_follows(self, compressor, design, tolerance=1e-5, **arguments):
        gradients, delivered, kept = run(compressor)
        system = design(_WORKERS, _SIZES, _NAMES, **arguments)
        for step in range(_STEPS):
            total, residuals = system.step(gradients[:, step])
            np.testing.assert_allclose(
                delivered[step], total, rtol=1e-5, atol=tolerance, err_msg=f"sum of step {step}"
            )
            np.testing.assert_allclose(
                kept[:, step], residuals, atol=tolerance, err_msg=f"residuals of step {step}"
            )

    @parameterized.parameters(
        (tf_gc.Float16(), np.float16), (tf_gc.BFloat16(), tf.bfloat16.as_numpy_dtype)
    )
    def test_short_floats(self, compressor, dtype):
        self.assert_follows(compressor, reference.ShortFloats, dtype=dtype)

    def test_int8(self):
        self.assert_follows(tf_gc.Int8(), reference.Int8)

    def test_stochastic_ternary(self):
        self.assert_follows(tf_gc.StochasticTernary(), reference.StochasticTernary)

    @some_of((2.5, 2.5), (1.0, 1.0), (None, np.inf))
    def test_tern_grad(self, clip, reference_clip):
        self.assert_follows(tf_gc.TernGrad(clip), reference.TernGrad, clip=reference_clip)

    def test_one_bit(self):
        self.assert_follows(tf_gc.OneBit(), reference.OneBit)

    @some_of(0.05, 0.25)
    def test_sampled_top_k_with_a_sample_of_all_values(self, ratio):
        self.assert_follows(tf_gc.SampledTopK(ratio), reference.Threshold, ratio=ratio)

    @parameterized.parameters(1, 3)
    def test_local_steps(self, period):
        self.assert_follows(tf_gc.LocalSteps(period), reference.LocalSteps, period=period)

    @parameterized.parameters(
        (7, 64, "l2"), (1, 0, "l2"), (127, 0, "max"), (5, 100, "max"), (7, 1 << 40, "l2")
    )
    def test_qsgd(self, levels, block, norm):
        self.assert_follows(
            tf_gc.QSGD(levels, block, norm), reference.QSGD, levels=levels, block=block, norm=norm
        )

    @parameterized.parameters("mean_abs", 0.5)
    def test_sign_sgd(self, step_size):
        self.assert_follows(tf_gc.SignSGD(step_size), reference.SignSGD, step_size=step_size)

    def test_ef_sign_sgd(self):
        self.assert_follows(tf_gc.EFSignSGD(), reference.EFSignSGD)

    def test_ef_sign_sgd_of_what_is_not_predicted(self):
        compressor = tf_gc.EFSignSGD(prediction=0.9)
        self.assert_follows(compressor, reference.EFSignSGD, prediction=0.9)

    def test_predictions_are_the_gradients_that_make_the_momentum(self):
        _, delivered, _ = run(tf_gc.EFSignSGD(prediction=0.8))
        momentum = 0.0
        for total in delivered:
            momentum = 0.8 * momentum + 0.2 * total
        # The sum of three signs times magnitudes, which each variable has its own of.
        for part in np.split(momentum, np.cumsum(_SIZES)[:-1]):
            self.assertLessEqual(len(np.unique(np.round(part, 5))), 2**_WORKERS)

    @some_of(2, 1, _STEPS)
    def test_one_bit_adam(self, freeze_step):
        compressor = tf_gc.OneBitAdam(freeze_step, beta_1=0.8)
        arguments = {"exact": range(freeze_step), "beta_1": 0.8, "beta_2": 0.999}
        self.assert_follows(compressor, reference.OneBitAdam, **arguments)

    def test_zero_one_adam(self):
        compressor = tf_gc.ZeroOneAdam(updates_per_interval=1)
        arguments = {"exact": {0, 1, 3}, "beta_1": 0.9, "beta_2": 0.999}
        self.assert_follows(compressor, reference.OneBitAdam, **arguments)

    def test_ssdm(self):
        self.assert_follows(tf_gc.SSDM(), reference.SSDM)

    @some_of((0.2, 0.5, 10.0), (0.05, 0.9, None), (0.1, 0.0, None))
    def test_dgc(self, ratio, momentum, clip_norm):
        limit = np.inf if clip_norm is None else clip_norm / math.sqrt(_WORKERS)
        compressor = tf_gc.DGC(ratio, momentum, clip_norm)
        self.assert_follows(compressor, reference.DGC, ratio=ratio, momentum=momentum, limit=limit)

    def test_ms_top_k_finds_the_largest_in_many_rounds(self):
        self.assert_follows(tf_gc.MSTopK(0.05), systems_reference.TopK, counts=[48])

    @some_of(4, 1, 8)
    def test_power_sgd(self, rank):
        self.assert_follows(
            tf_gc.PowerSGD(rank),
            reference.PowerSGD,
            tolerance=1e-4,
            rank=rank,
            shapes=_BUCKET_SHAPES,
            normal=normal,
        )


class MagnitudeTest(parameterized.TestCase):
    """Values whose sums or squares are too large, or too small, for float32."""

    @some_of_product(
        compressor=[tf_gc.QSGD(), tf_gc.QSGD(block=0), tf_gc.SSDM(), tf_gc.TernGrad()],
        factor=[2.0**-80, 2.0**80],
        count=4,
    )
    def test_what_is_delivered_of_them_is_what_it_is_of_others(self, compressor, factor):
        self._check(compressor, factor)

    @parameterized.parameters(tf_gc.OneBit(), tf_gc.TernGrad())
    def test_a_mean_may_be_there_where_a_sum_is_not(self, compressor):
        self._check(compressor, 2.0**120)

    def _check(self, compressor, factor):
        values = np.random.default_rng(7).standard_normal([_WORKERS, 64, 64], np.float32)
        others, delivered = (
            one(shared_cluster(_WORKERS).run(programs.given, compressor, v))
            for v in (values, np.float32(factor) * values)
        )
        self.assertGreater(np.abs(others).max(), 0)
        np.testing.assert_allclose(delivered, np.float32(factor) * others, rtol=1e-6)


class RandomChoiceTest(parameterized.TestCase):
    """What is sent by choices that TensorFlow's random numbers make."""

    def assert_conserves(self, gradients, delivered, residuals):
        np.testing.assert_allclose(
            delivered.sum(axis=0) + residuals[:, -1].sum(axis=0),
            gradients.sum(axis=(0, 1)),
            atol=_TINY,
        )

    def test_random_k_sends_the_same_k_of_all_workers(self):
        gradients, delivered, residuals = run(tf_gc.RandomK(0.1))
        self.assert_conserves(gradients, delivered, residuals)
        values = gradients.copy()
        values[:, 1:] += residuals[:, :-1]
        for step in range(_STEPS):
            sent = delivered[step] != 0
            self.assertEqual(sent.sum(), 96)
            np.testing.assert_array_equal(residuals[:, step], np.where(sent, 0, values[:, step]))
        # Another choice in each step: of the 96, 9.6 are expected to come again.
        self.assertLess(((delivered[0] != 0) & (delivered[1] != 0)).sum(), 30)

    def test_sampled_top_k_sends_about_that_many_of_the_largest(self):
        gradients, delivered, residuals = run(tf_gc.SampledTopK(0.25, samples=100))
        self.assert_conserves(gradients, delivered, residuals)
        values = np.abs(gradients[:, 0])
        for value, kept in zip(values, residuals[:, 0], strict=True):
            for v, k in zip(*(np.split(x, np.cumsum(_SIZES)) for x in (value, kept)), strict=True):
                if v.size < 100:
                    continue
                # Five deviations of the largest quarter of a sample of 100.
                self.assertBetween((k == 0).mean(), 0.25 - 0.22, 0.25 + 0.22)
                self.assertLess(np.abs(k).max(), v[k == 0].min())

    def test_ms_top_k_fills_up_from_between_two_thresholds(self):
        gradients, delivered, residuals = run(tf_gc.MSTopK(0.05, rounds=2))
        self.assert_conserves(gradients, delivered, residuals)
        for values, kept in zip(np.abs(gradients[:, 0]), residuals[:, 0], strict=True):
            sent = kept == 0
            self.assertEqual(sent.sum(), 48)
            thresholds = values.mean() + np.arange(1, 4) / 4 * (values.max() - values.mean())
            upper = min(t for t in thresholds if (values >= t).sum() <= 48)
            self.assertTrue(sent[values >= upper].all())

    def test_ms_top_k_sends_values_whose_magnitudes_have_no_finite_sum(self):
        values = np.full([_WORKERS, 30, 40], 1e37, np.float32)
        delivered = one(shared_cluster(_WORKERS).run(programs.given, tf_gc.MSTopK(0.05), values))
        self.assertGreaterEqual(np.max(delivered), 1e37)


class UnbiasedTest(parameterized.TestCase):
    """The mean of many steps with the same gradients is their sum."""

    _COUNT = 300

    def assert_unbiased(self, compressor, variance):
        rng = np.random.default_rng(3)
        # None is so small that its quantised values are rare.
        values = rng.uniform(0.2, 1, [_WORKERS, 24, 16]) * rng.choice([-1, 1], [_WORKERS, 24, 16])
        delivered = one(
            shared_cluster(_WORKERS).run(programs.repeated, compressor, values, self._COUNT)
        )
        values = values.reshape(_WORKERS, -1)
        errors = delivered.mean(axis=0) - values.sum(axis=0)
        deviations = np.sqrt(variance(values, delivered) / self._COUNT)
        certain = deviations < _TINY
        np.testing.assert_allclose(errors[certain], 0, atol=_TINY)
        scores = errors[~certain] / deviations[~certain]
        # Of about 384 standard normal numbers.
        self.assertLess(np.abs(scores).max(), 5)
        self.assertLess(abs(scores.mean()), 5 / np.sqrt(scores.size))
        self.assertAlmostEqual(np.mean(scores**2), 1, delta=5 * np.sqrt(2 / scores.size))

    def test_stochastic_ternary(self):
        self.assert_unbiased(
            tf_gc.StochasticTernary(seed=1),
            lambda g, _: np.sum(np.abs(g) * np.abs(g).max(axis=1, keepdims=True) - g**2, axis=0),
        )

    def test_tern_grad(self):
        self.assert_unbiased(
            tf_gc.TernGrad(clip=None, seed=1),
            lambda g, _: np.sum(np.abs(g) * np.abs(g).max() - g**2, axis=0),
        )

    @some_of(16, 0)
    def test_qsgd(self, block):
        def variance(gradients, _):
            blocks = gradients.reshape(_WORKERS, -1, block or gradients.shape[1])
            norms = np.linalg.norm(blocks, axis=2, keepdims=True)
            return np.sum(np.abs(blocks) * norms - blocks**2, axis=0).ravel()

        self.assert_unbiased(tf_gc.QSGD(1, block, seed=1), variance)

    def test_ssdm(self):
        self.assert_unbiased(
            tf_gc.SSDM(seed=1),
            lambda g, _: np.sum(np.sum(g**2, axis=1, keepdims=True) - g**2, axis=0),
        )

    def test_cascading_ssdm(self):
        self.assert_unbiased(
            tf_gc.CascadingSSDM(seed=1), lambda _, delivered: delivered.var(axis=0)
        )

    def test_random_k_chooses_all_values_alike(self):
        # In each of the steps one value of a hundred.
        size, steps = 2048, 1000
        chosen = np.zeros(size)
        for step in range(steps):
            exchange = _exchange_of_one(size, step)
            total, _ = tf_gc.RandomK(0.01).reduce(tf.ones(size), exchange)
            chosen += tf.convert_to_tensor(total).numpy()
        expected = steps * 20 / size
        self.assertEqual(chosen.sum(), steps * 20)
        chi_squared = np.sum((chosen - expected) ** 2 / expected) / size
        self.assertAlmostEqual(chi_squared, 1, delta=6 * np.sqrt(2 / size))

    @parameterized.parameters(65536, 65537, 65538, 262145)
    def test_random_k_of_all_values_is_all_of_them(self, size):
        exchange = _exchange_of_one(size, 0)
        total, residual = tf_gc.RandomK(1.0).reduce(tf.ones(size), exchange)
        self.assertEqual(len(set(total.indices.numpy().tolist())), size)
        self.assertFalse(residual.numpy().any())

    def test_slices_of_a_sum_pass_through_a_condition(self):
        compressor, exchange = tf_gc.RandomK(0.01), _exchange_of_one(2048, 0)

        @tf.function
        def reduce(is_first):
            first, second = (
                functools.partial(compressor.reduce, tf.fill([2048], factor), exchange)
                for factor in (1.0, 2.0)
            )
            total, _ = tf.cond(is_first, first, second)
            return tf.convert_to_tensor(total)

        for is_first, factor in (True, 1), (False, 2):
            self.assertEqual(reduce(tf.constant(is_first)).numpy().sum(), 20 * factor)

    def test_random_k_without_error_feedback(self):
        self.assert_unbiased(
            tf_gc.RandomK(0.25, error_feedback=False, seed=1),
            lambda g, _: 3 * g.sum(axis=0) ** 2,
        )


class CascadingSSDMTest(absltest.TestCase):
    def test_each_segment_of_the_ring_has_one_magnitude(self):
        _, delivered, _ = run(tf_gc.CascadingSSDM(), steps=1)
        self.assertLessEqual(np.unique(np.abs(delivered)).size, _WORKERS)


class DgcTest(absltest.TestCase):
    def test_clipping_depends_on_what_the_reduced_gradient_is(self):
        values = np.ones([_WORKERS, 16, 8])
        norm = np.linalg.norm(values[0])
        compressor = tf_gc.DGC(1.0, momentum=0.0, clip_norm=norm / 2)
        for reduce_op in "SUM", "MEAN":
            delivered = one(
                shared_cluster(_WORKERS).run(programs.given, compressor, values, reduce_op)
            )
            np.testing.assert_allclose(delivered, math.sqrt(_WORKERS) / 2, rtol=_TINY)

    def test_gradients_whose_squares_are_none_of_float32_are_clipped_like_others(self):
        for magnitude, expected in ((1e25, 1.0), (1e-25, 1e-25 * math.sqrt(_WORKERS * 128))):
            values = np.full([_WORKERS, 16, 8], magnitude)
            compressor = tf_gc.DGC(1.0, momentum=0.0, clip_norm=1.0)
            delivered = one(shared_cluster(_WORKERS).run(programs.given, compressor, values))
            # The sum of N workers' gradients, each with a norm of at most 1 / sqrt(N).
            share = min(expected / math.sqrt(_WORKERS), 1 / math.sqrt(_WORKERS))
            np.testing.assert_allclose(
                np.linalg.norm(delivered.astype(np.float64)), _WORKERS * share, rtol=_TINY
            )

    def test_clipping_leaves_zeros_as_they_are(self):
        values = np.zeros([_WORKERS, 16, 8])
        delivered = one(
            shared_cluster(_WORKERS).run(programs.given, tf_gc.DGC(clip_norm=1.0), values)
        )
        np.testing.assert_array_equal(delivered, 0)


class FusedTest(parameterized.TestCase):
    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_what_rounding_takes_from_a_mean_is_what_is_not_delivered(self, dtype):
        # In a function TensorFlow multiplies by 1 / 7, which rounds to another half.
        values = tf.cast(normal([7, 10**5], [0, 0]), dtype)
        total = tf.reduce_sum(tf.cast(values, tf.float32), axis=0).numpy()
        lost = tf.function(fused._lost_by_rounding)(tf.constant(total), 7.0, dtype)
        (delivered,) = ops.unfuse_gradients(
            total, [True], divisor=7.0, shapes=[total.shape], dtype=dtype
        )
        np.testing.assert_array_equal(lost, total - 7 * tf.cast(delivered, tf.float32).numpy())


class PowerSGDTest(parameterized.TestCase):
    @parameterized.parameters(1e-25, 1e20)
    def test_the_scale_of_gradients_does_not_matter(self, scale):
        values = normal([_WORKERS, 33, 17], [5, 0])
        delivered, scaled = (
            one(shared_cluster(_WORKERS).run(programs.given, tf_gc.PowerSGD(2), v))
            for v in (values, scale * values)
        )
        np.testing.assert_allclose(scaled, scale * delivered, rtol=1e-3, atol=1e-4 * scale)

    def test_a_sum_of_that_rank_is_delivered_at_once(self):
        rng = np.random.default_rng(4)
        left, right = rng.standard_normal([30, 2]), rng.standard_normal([2, 20])
        values = [left @ (worker * right) for worker in range(_WORKERS)]
        delivered = one(shared_cluster(_WORKERS).run(programs.given, tf_gc.PowerSGD(2), values))
        np.testing.assert_allclose(delivered, np.sum(values, axis=0).ravel(), atol=1e-4)


class HyperparameterTest(parameterized.TestCase):
    @parameterized.parameters(
        (tf_gc.TernGrad, {"clip": 0}, "clip must be None, or greater than 0 and finite, got 0"),
        (tf_gc.TernGrad, {"clip": float("inf")}, "clip must be None, .* and finite, got inf"),
        (tf_gc.SampledTopK, {"ratio": 1.5}, r"ratio must be in \(0, 1\], got 1.5"),
        (tf_gc.SampledTopK, {"samples": 0}, "samples must be an integer, 1 or more, got 0"),
        (tf_gc.LocalSteps, {"period": 1.5}, "period must be an integer, 1 or more, got 1.5"),
        (tf_gc.QSGD, {"levels": 128}, "levels must be an integer, 1 ... 127, got 128"),
        (tf_gc.QSGD, {"block": -1}, "block must be an integer, 0 or more, got -1"),
        (tf_gc.QSGD, {"norm": "l1"}, "norm must be 'l2' or 'max', got 'l1'"),
        (tf_gc.SignSGD, {"step_size": 0}, "step_size must be 'mean_abs', or greater than 0"),
        (tf_gc.DGC, {"ratio": 0}, r"ratio must be in \(0, 1\], got 0"),
        (tf_gc.DGC, {"momentum": 1}, r"momentum must be in \[0, 1\), got 1"),
        (tf_gc.DGC, {"clip_norm": -1}, "clip_norm must be None, or greater than 0, got -1"),
        (tf_gc.RandomK, {"error_feedback": "no"}, "error_feedback must be True or False, got 'no'"),
        (tf_gc.RandomK, {"seed": 1.5}, "seed must be an integer, .*, got 1.5"),
        (tf_gc.QSGD, {"seed": 1 << 70}, "seed must be an integer, .*, got 1180591620717411303424"),
        (tf_gc.RandomK, {"ratio": 2}, r"ratio must be in \(0, 1\], got 2"),
        (tf_gc.MSTopK, {"rounds": 0}, "rounds must be an integer, 1 or more, got 0"),
        (tf_gc.PowerSGD, {"rank": 0}, "rank must be an integer, 1 or more, got 0"),
    )
    def test_out_of_range_is_refused_by_name(self, compressor, arguments, message):
        with self.assertRaisesRegex(ValueError, message):
            compressor(**arguments)


if __name__ == "__main__":
    absltest.main()
