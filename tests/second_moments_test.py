"""Second moments that workers share, and the optimizers that use them, on real processes."""

import dataclasses
import os
import subprocess
import sys
import tempfile
import textwrap

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from tf_gc.strategy import keras_seams, second_moments

import tf_gc
from tests import second_moment_programs as programs
from tests import second_moment_reference as reference
from tests import strategy_programs
from tests.cases import some_of, some_of_product
from tests.clusters import one, shared_cluster
from tests.second_moment_programs import ROWS, gradient
from tf_gc.second_moments import DECAY, has_statistics, matrix_shape

# With slots.
_IN_UNITS = tf_gc.ThreeLC()
_LEGACY_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
_STEPS = 5


def _sums(name, steps, workers):
    return [sum(gradient(name, step, w) for w in range(workers)) for step in range(steps)]


def _expected(steps, workers, factor, dtype=np.float32, is_corrected=True):
    """The second moments of the kernel by step, and its slots, in slow NumPy."""
    moments, slots = [], []
    slot = np.zeros(ROWS + 64 + 1, np.float32)
    for step in range(steps):
        gradients = [gradient("kernel", step, w).astype(dtype) for w in range(workers)]
        sums = reference.statistics(gradients, ROWS)
        moments.append(reference.second_moments(sums, ROWS, factor).reshape(6, 8, 64))
        decay = DECAY if step or is_corrected else 0.0
        slot = reference.update(slot, np.float32(1 / workers) * sums, decay)
        slots.append(slot)
    return moments, slots


class MatrixShapeTest(parameterized.TestCase):
    @parameterized.parameters(
        ((512, 128), (512, 128)),
        ((3, 3, 64, 128), (576, 128)),
        ((3, 3, 1, 32), (9, 32)),
        ((2, 3, 6), (6, 6)),
        ((4, 2, 4, 2), (8, 8)),
        ((2, 2, 2), (2, 4)),  # as good as (4, 2), and earlier
        ((64, 1), (64, 1)),
        ((7,), (1, 7)),
        ((), (1, 1)),
    )
    def test_the_cut_has_the_fewest_rows_and_columns(self, shape, expected):
        self.assertEqual(matrix_shape(shape), expected)
        self.assertEqual(matrix_shape(tf.TensorShape(shape)), expected)

    def test_what_has_one_row_or_column_or_nothing_has_no_statistics(self):
        for shape in (), (7,), (1, 7), (7, 1), (1, 7, 1), (0, 7):
            self.assertFalse(has_statistics(shape), shape)
        self.assertTrue(has_statistics((2, 2)))


class StatisticsTest(parameterized.TestCase):
    @parameterized.parameters(2, 3)
    def test_they_are_the_references_for_five_steps(self, workers):
        results = shared_cluster(workers).run(programs.steps_with_second_moments, _IN_UNITS, _STEPS)
        moments, slots = _expected(_STEPS, workers, factor=1.0)
        for result in results:
            np.testing.assert_array_equal(np.stack(result["moments"])[:, 0], moments)
            np.testing.assert_array_equal(result["slots"], slots)

    def test_a_mean_has_the_nth_part_of_the_workers_second_moments(self):
        result = shared_cluster(2).run(
            programs.steps_with_second_moments, _IN_UNITS, _STEPS, "MEAN"
        )[0]
        moments, slots = _expected(_STEPS, 2, factor=0.25)
        np.testing.assert_array_equal(np.stack(result["moments"])[:, 0], moments)
        np.testing.assert_array_equal(result["slots"], slots)

    @parameterized.product(mean=[False, True], weight=[0.5, np.float64(0.5)])
    def test_first_moments_tell_what_workers_agree_in(self, mean, weight):
        arguments = (_IN_UNITS, 2, "MEAN" if mean else "SUM")
        result = shared_cluster(3).run(
            programs.steps_with_second_moments, *arguments, weight=weight
        )[0]
        factor = 1 / 9 if mean else 1.0
        of_first = reference.statistics([programs.first_moment()], ROWS)
        for step, [moment] in enumerate(result["moments"]):
            gradients = [gradient("kernel", step, w) for w in range(3)]
            sums = reference.statistics(gradients, ROWS) + (1 - 1 / 3) / factor * 4 * of_first
            expected = reference.second_moments(reference.to_bfloat16(sums), ROWS, factor)
            np.testing.assert_allclose(moment, expected.reshape(moment.shape), rtol=1e-2)

    @parameterized.parameters(0.0, 0.9)
    def test_first_moments_of_signs_tell_nothing(self, prediction):
        system = tf_gc.EFSignSGD(units="gradient", prediction=prediction)
        result = shared_cluster(2).run(
            programs.steps_with_second_moments, system, 2, names=("kernel",), weight=0.5
        )[0]
        for step, [moment] in enumerate(result["moments"]):
            gradients = [gradient("kernel", step, w) for w in range(2)]
            sums = reference.statistics(gradients, ROWS)
            expected = reference.second_moments(sums, ROWS, 1.0).reshape(moment.shape)
            np.testing.assert_array_equal(moment, expected)

    def test_nothing_is_predicted_of_momentum_that_an_optimizer_does_not_have(self):
        system = tf_gc.EFSignSGD(units="gradient", prediction=0.9)
        before = [0, 1, 2, 0, 1]  # the fourth step is the first of a new optimizer
        results = shared_cluster(2).run(programs.reduced_for_optimizers, system, before)
        gradients = [gradient("kernel", step, w) for step in range(len(before)) for w in range(2)]
        delivered, waiting = results[0]
        np.testing.assert_allclose(sum(delivered) + waiting, sum(gradients), rtol=1e-4, atol=1e-2)
        for sums, _ in results:
            # Each worker has a magnitude, so that sums have two, but for what was predicted.
            magnitudes = [len(np.unique(np.round(np.abs(total), 5))) for total in sums]
            are_of_signs = [number <= 2 for number in magnitudes]
            self.assertEqual(are_of_signs, [True, False, False, True, False])

    @parameterized.named_parameters(
        ("eager", {"compiled": False}),
        ("without_exact_variables", {"names": ("kernel",)}),
        ("of_top_k", {"compression": tf_gc.TopK(units="second_moment")}),
    )
    def test_they_are_the_same(self, arguments):
        arguments = {"compression": _IN_UNITS, "steps": 2, **arguments}
        results = shared_cluster(2).run(programs.steps_with_second_moments, **arguments)
        is_corrected = arguments["compression"].corrects_units
        moments, slots = _expected(2, 2, factor=1.0, is_corrected=is_corrected)
        for result in results:
            np.testing.assert_array_equal(np.stack(result["moments"])[:, 0], moments)
            np.testing.assert_array_equal(result["slots"], slots)

    @parameterized.parameters(
        (tf_gc.EFSignSGD(), {"poisoned": 0}),
        (tf_gc.EFSignSGD(), {"without_first": (0,)}),
        (tf_gc.Policy(default=tf_gc.EFSignSGD(), rules={"other": tf_gc.ThreeLC()}), {}),
    )
    def test_first_squares_count_for_all_before_in_whatever_step_they_come(self, system, arguments):
        results = shared_cluster(2).run(
            programs.steps_with_second_moments, system, 3, names=("kernel", "other"), **arguments
        )
        for result in results:
            self.assertEqual([slot[-1] for slot in result["slots"]][-2:], [1.0, 1.0])

    @parameterized.parameters("float16", "bfloat16")
    def test_short_gradients_have_those_of_their_float32(self, dtype):
        result = shared_cluster(2).run(
            programs.steps_with_second_moments, _IN_UNITS, 2, dtype=dtype
        )[0]
        moments, slots = _expected(2, 2, 1.0, dtype=tf.as_dtype(dtype).as_numpy_dtype)
        np.testing.assert_array_equal(np.stack(result["moments"])[:, 0], moments)
        np.testing.assert_array_equal(result["slots"], slots)

    def test_a_bad_gradient_has_no_second_moment_and_leaves_the_slot(self):
        results = shared_cluster(2).run(
            programs.steps_with_second_moments, _IN_UNITS, 3, poisoned=1
        )
        for result in results:
            self.assertTrue(np.isnan(result["moments"][1][0]).all())
            np.testing.assert_array_equal(result["slots"][1], result["slots"][0])
            self.assertTrue(np.isfinite(result["moments"][2][0]).all())
            self.assertTrue(np.isfinite(result["slots"][2]).all())

    def test_before_the_start_step_the_square_is_that_of_the_gradient(self):
        result = one(shared_cluster(2).run(_without_traffic, tf_gc.ThreeLC(start_step=2), 3))
        sums = _sums("kernel", 2, 2)
        moments, slots = _expected(3, 2, factor=1.0)
        for step in range(2):
            np.testing.assert_array_equal(result["moments"][step][0], np.square(sums[step]))
        np.testing.assert_array_equal(result["moments"][2][0], moments[2])
        np.testing.assert_array_equal(result["slots"], slots)

    @parameterized.parameters(
        tf_gc.compressors.Uncompressed(), tf_gc.THC(units="gradient"), tf_gc.Int8()
    )
    def test_systems_that_deliver_gradients_exchange_none(self, compressor):
        result = shared_cluster(2).run(programs.steps_with_second_moments, compressor, 1)[0]
        self.assertEqual(result["moments"], [[]])
        self.assertEqual(result["traffic"]["second_moment_bytes_sent"], 0)

    def test_units_of_a_system_that_delivers_gradients_leave_the_square_to_the_optimizer(self):
        result = one(shared_cluster(2).run(_without_traffic, tf_gc.THC(units="second_moment"), 2))
        self.assertEqual(result["moments"], [[], []])
        _, slots = _expected(2, 2, factor=1.0, is_corrected=False)
        np.testing.assert_array_equal(result["slots"], slots)

    def test_variables_with_and_without_units_have_their_own(self):
        policy = tf_gc.Policy(default=tf_gc.TopK(), rules={"kernel": _IN_UNITS})
        names = ("other", "kernel", "bias")
        result = shared_cluster(2).run(programs.steps_with_second_moments, policy, 2, names=names)[
            0
        ]
        moments, slots = _expected(2, 2, factor=1.0)
        np.testing.assert_array_equal(result["slots"], slots)
        for step, (of_other, of_kernel) in enumerate(result["moments"]):
            np.testing.assert_array_equal(of_kernel, moments[step])
            gradients = [gradient("other", step, w) for w in range(2)]
            sums = reference.statistics(gradients, 40)
            np.testing.assert_array_equal(of_other, reference.second_moments(sums, 40, 1.0))

    def test_without_units_there_is_no_slot(self):
        for compressor in tf_gc.ThreeLC(1.0), tf_gc.ThreeLC(units="gradient"):
            result = shared_cluster(2).run(programs.names_of_slots, compressor)[0]
            self.assertEqual(result, ["kernel", "kernel:steps"])
        result = shared_cluster(2).run(programs.names_of_slots, _IN_UNITS)[0]
        self.assertEqual(result, ["kernel", "kernel:second_moment", "kernel:steps"])

    def test_one_worker_exchanges_none(self):
        [result] = shared_cluster(1).run(programs.steps_with_second_moments, tf_gc.ThreeLC(), 1)
        self.assertEqual(result["moments"], [[]])

    def test_units_are_those_of_the_slots_before_the_step(self):
        for result in shared_cluster(2).run(programs.units_of_steps, 3):
            _, slots = _expected(2, 2, factor=1.0, is_corrected=False)
            np.testing.assert_array_equal(result["slots"][1:], slots)
            for units, slot in zip(result["units"], result["slots"], strict=True):
                np.testing.assert_array_equal(units[0], reference.units(slot[:-1], ROWS))


def _without_traffic(*args, **kwargs):
    result = programs.steps_with_second_moments(*args, **kwargs)
    return {name: result[name] for name in ("moments", "slots", "reduced")}


def _largest(t, u, count):
    """t where |t| / u is largest, and zeros."""
    where = np.argsort(-np.abs(t / u), kind="stable")[:count]
    sent = np.zeros_like(t)
    sent[where] = t[where]
    return sent


_COUNT = round(0.1 * ROWS * 64)


# What the workers send of their t, in units u: (list of t, u, step) -> list of float32 [n].


def _top_k(ts, u, step):
    return [_largest(t, u, _COUNT) for t in ts]


def _ar_top_k(ts, u, step):
    where = _largest(ts[step % len(ts)], u, _COUNT) != 0
    return [t * where for t in ts]


def _scale_com(ts, u, step):
    leader = np.abs(ts[step % len(ts)] / u).reshape(-1, 16)
    where = (np.arange(16) == leader.argmax(axis=1)[:, np.newaxis]).ravel()
    return [t * where for t in ts]


def _signs(ts, u, step):
    return [np.mean(np.abs(t / u)) * u * np.where(t >= 0, 1, -1) for t in ts]


class UnitsTest(parameterized.TestCase):
    @parameterized.named_parameters(
        ("TopK", tf_gc.TopK(0.1, units="second_moment"), _top_k),
        ("DGC", tf_gc.DGC(0.1, momentum=0.0, units="second_moment"), _top_k),
        ("ARTopK", tf_gc.ARTopK(0.1, units="second_moment"), _ar_top_k),
        ("ScaleCom", tf_gc.ScaleCom(16, units="second_moment"), _scale_com),
        ("EFSignSGD", tf_gc.EFSignSGD(units="second_moment"), _signs),
    )
    def test_values_are_compared_in_units_and_conserved(self, compressor, send):
        results = shared_cluster(2).run(programs.reduce_kernel, compressor, 3)
        delivered = one([r["reduced"] for r in results])
        residuals, slot = [np.zeros(ROWS * 64, np.float32)] * 2, np.zeros(ROWS + 64 + 1, np.float32)
        for step in range(3):
            gradients = [gradient("kernel", step, w).ravel() for w in range(2)]
            ts = [g + e for g, e in zip(gradients, residuals, strict=True)]
            sent = send(ts, reference.spread(reference.units(slot[:-1], ROWS), ROWS), step)
            residuals = [t - q for t, q in zip(ts, sent, strict=True)]
            np.testing.assert_allclose(
                delivered[step].ravel(), sum(sent), rtol=1e-5, atol=1e-4, err_msg=f"step {step}"
            )
            for result, residual in zip(results, residuals, strict=True):
                np.testing.assert_allclose(result["residuals"][step].ravel(), residual, atol=1e-3)
            sums = reference.statistics(gradients, ROWS)
            slot = reference.update(slot, np.float32(0.5) * sums, DECAY if step else 0.0)

    @parameterized.parameters("mean_abs", 0.5)
    def test_marsits_magnitudes_are_units(self, step_size):
        compressor = tf_gc.Marsit(step_size, 0, units="second_moment")
        results = shared_cluster(2).run(programs.reduce_kernel, compressor, 2)
        delivered = one([r["reduced"] for r in results])
        _, slots = _expected(1, 2, factor=1.0)
        u = reference.spread(reference.units(slots[0][:-1], ROWS), ROWS)
        ts = [
            gradient("kernel", 1, w).ravel() + result["residuals"][0].ravel()
            for w, result in enumerate(results)
        ]
        eta = np.mean([np.mean(np.abs(t / u)) for t in ts]) if step_size == "mean_abs" else 0.25
        np.testing.assert_allclose(np.abs(delivered[1].ravel()), 2 * eta * u, rtol=1e-4)

    def test_thcs_error_is_the_same_part_of_all_rows_but_the_smallest(self):
        compressor = tf_gc.THC(units="second_moment")
        results = shared_cluster(2).run(programs.reduce_kernel, compressor, 2)
        delivered, sent = one([r["reduced"][1] for r in results]), 0.0
        for worker, result in enumerate(results):
            before, after = (r.reshape(ROWS, -1) for r in result["residuals"])
            sent += gradient("kernel", 1, worker).reshape(ROWS, -1) + before - after
        np.testing.assert_allclose(delivered.reshape(ROWS, -1), sent, rtol=1e-5, atol=1e-3)
        errors = sum(np.square(r["residuals"][1]).reshape(ROWS, -1).mean(1) for r in results)
        _, slots = _expected(1, 2, factor=1.0)
        of_units = reference.units(slots[0][:-1], ROWS)
        units = reference.spread(reference.raised(of_units, ROWS), ROWS)
        rows = units.reshape(ROWS, -1).mean(1)
        relative = np.sqrt(errors) / rows
        # The first block has all rows whose units are raised, and so a smaller scale.
        self.assertLess(relative.max() / relative[16:].min(), 2)
        self.assertLess(relative[:16].max(), relative[16:].min())


class TrafficTest(parameterized.TestCase):
    def test_statistics_travel_with_exact_variables_and_are_no_values(self):
        result = shared_cluster(2).run(programs.steps_with_second_moments, tf_gc.ThreeLC(), 4)[0]
        traffic = result["traffic"]
        self.assertEqual(traffic["steps"], 4)
        # A half of them goes up from here, and the sums of the other down.
        self.assertEqual(traffic["second_moment_bytes_sent"], 4 * 2 * (ROWS + 64))
        self.assertEqual(traffic["values_sent"], 4 * (ROWS * 64 + 64))
        self.assertEqual(traffic["uncompressed_bytes"], 4 * traffic["values_sent"])
        self.assertEqual({v["name"] for v in traffic["variables"]}, {"kernel", "bias"})
        self.assertIn("(0.571 of second moments)", result["text"])
        # Two messages a step and bucket, each with a header and filled up to the longest of the
        # last steps, and nothing else.
        payload = sum(v["bytes_sent"] for v in traffic["variables"])
        overhead = traffic["bytes_sent"] - payload - traffic["second_moment_bytes_sent"]
        self.assertLess(overhead, 4 * 2 * 2 * 80)

    def test_less_than_a_tenth_of_a_bit_for_a_matrix_of_512_by_512(self):
        traffic = shared_cluster(2).run(programs.bits_of_a_square_matrix, 512)[0]
        bits = traffic["second_moment_bits_per_value"]
        self.assertGreater(bits, 0.06)
        self.assertLess(bits, 0.1)
        of_3lc = traffic["variables"][0]["bits_per_value"]
        self.assertLess(traffic["bits_per_value"] - of_3lc, 0.1)


class CheckpointTest(parameterized.TestCase):
    @parameterized.parameters(2, 3)
    def test_slots_survive_a_change_of_the_number_of_workers(self, restored_by):
        with tempfile.TemporaryDirectory() as directory:
            saved = shared_cluster(2).run(programs.checkpoint, directory, 3)
            restored = shared_cluster(restored_by).run(programs.restore, directory, 0)
        self.assertGreater(np.abs(saved[0]).max(), 0)
        for slot in restored:
            np.testing.assert_array_equal(slot, saved[0])


# Optimizers in slow NumPy: (gradient, what is taken for its square, state, step from 1) -> update.


def _adam(g, square, state, t, beta_1=0.9, beta_2=0.999):
    m = state["m"] = beta_1 * state["m"] + (1 - beta_1) * g
    v = state["v"] = beta_2 * state["v"] + (1 - beta_2) * square
    return 0.001 * np.sqrt(1 - beta_2**t) / (1 - beta_1**t) * m / (np.sqrt(v) + 1e-7)


def _amsgrad(g, square, state, t):
    m = state["m"] = 0.9 * state["m"] + 0.1 * g
    v = state["v"] = 0.999 * state["v"] + 0.001 * square
    v = state["largest"] = np.maximum(state["largest"], v)
    return 0.001 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-7)


def _nadam(g, square, state, t):
    m = state["m"] = 0.9 * state["m"] + 0.1 * g
    v = state["v"] = 0.999 * state["v"] + 0.001 * square
    u = [0.9 * (1 - 0.5 * 0.96**s) for s in range(1, t + 2)]
    m_hat = u[t] * m / (1 - np.prod(u)) + (1 - u[t - 1]) * g / (1 - np.prod(u[:t]))
    return 0.001 * m_hat / (np.sqrt(v / (1 - 0.999**t)) + 1e-7)


def _rms_prop(g, square, state, t):
    v = state["v"] = 0.9 * state["v"] + 0.1 * square
    return 0.001 * g / np.sqrt(v + 1e-7)


def _lamb(g, square, state, t):
    m = state["m"] = 0.9 * state["m"] + 0.1 * g
    v = state["v"] = 0.999 * state["v"] + 0.001 * square
    update = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-7)
    return 0.001 * update * np.linalg.norm(state["variable"]) / np.linalg.norm(update)


def _adagrad(g, square, state, t):
    v = state["v"] = (0.1 if t == 1 else state["v"]) + square
    return 0.001 * g / np.sqrt(v + 1e-7)


def _adafactor(g, square, state, t):
    rho = min(0.001, 1 / np.sqrt(t))
    beta = 1 - t**-0.8
    rms = np.sqrt(np.mean(np.square(state["variable"])))
    r = state["r"] = beta * state["r"] + (1 - beta) * (square + 1e-30).mean(-1)
    c = state["c"] = beta * state["c"] + (1 - beta) * (square + 1e-30).mean(-2)
    v = (r / r.mean(-1, keepdims=True))[..., np.newaxis] * c[..., np.newaxis, :]
    u = g / np.sqrt(v)
    return max(1e-3, rms) * rho * u / max(1, np.sqrt(np.mean(np.square(u))))


def _ftrl(g, square, state, t):
    before = 0.1 if t == 1 else state["v"]
    after = state["v"] = before + square
    rise = (np.sqrt(after) - np.sqrt(before)) / 0.001
    state["m"] = state["m"] + g - rise * state["variable"]
    return state["variable"] + 0.001 * state["m"] / np.sqrt(after)


def _muon(g, square, state, t):
    """Of variables that are no matrices; weights decay first."""
    return 0.001 * 0.004 * state["variable"] + _adam(g, square, state, t)


def _schedule_free(g, square, state, t):
    """With a beta_1 of 1: for less, Keras 3.15 reads the momentum after its update, not before."""
    z = state["variable"] if t == 1 else state["m"]
    v = state["v"] = 0.999 * state["v"] + 0.001 * square
    z = state["m"] = z - 0.0025 * g / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return (state["variable"] - z) / t


def _train(optimizer, gradients, square):
    """The variable, of ones, after the last step; `square` is a function of step and momentum."""
    state = dict.fromkeys(("m", "v", "largest", "r", "c"), 0.0)
    state["variable"] = np.ones(gradients[0].shape)
    for t, g in enumerate(gradients, start=1):
        wide = g.astype(np.float64), square(t - 1, state["m"]).astype(np.float64)
        state["variable"] = state["variable"] - optimizer(*wide, state, t)
    return state["variable"]


def _square_of_workers(step, momentum, workers=2, beta=0.9):
    """What stands in for the kernel's square where an optimizer has Adam's m."""
    gradients = [gradient("kernel", step, w) for w in range(workers)]
    sums = reference.statistics(gradients, ROWS)
    if step > 0:
        agreed = reference.statistics([momentum], ROWS) / (1 - beta**step) ** 2
        sums = reference.to_bfloat16(sums + np.where(sums > 0, (1 - 1 / workers) * agreed, 0))
    return reference.second_moments(sums, ROWS, 1.0).reshape(6, 8, 64)


_OPTIMIZERS = {
    "Adam": _adam,
    "AdamW": None,
    "Nadam": _nadam,
    "RMSprop": _rms_prop,
    "Adafactor": _adafactor,
    "Lamb": _lamb,
    "Adagrad": _adagrad,
}
_IN_TF_KERAS = ("Adam", "Nadam", "RMSprop", "Adafactor")
# These have no name in tf_gc.optimizers.
_OTHERS = {"Ftrl": _ftrl, "Muon": _muon, "ScheduleFreeAdamW": _schedule_free}


def _cluster(legacy_keras):
    return shared_cluster(2, **(_LEGACY_KERAS if legacy_keras else {}))


def _alone(name, gradients, **arguments):
    """What Keras's own optimizer does with these gradients of a bias, in this process."""
    variable = keras.Variable(np.ones(gradients[0].shape, np.float32))
    optimizer = getattr(keras.optimizers, name)(**arguments)
    optimizer.build([variable])
    step = tf.function(lambda g: optimizer.apply([g], [variable]))
    for g in gradients:
        step(tf.constant(g))
    return variable.numpy()


class BlocksTest(absltest.TestCase):
    def test_a_variable_without_units_has_not_the_errors_of_those_with_some(self):
        thc = tf_gc.THC(units="second_moment", rounding="nearest")
        value, steps = 1e-4, 10
        for total in shared_cluster(2).run(programs.sum_beside_a_matrix, thc, steps, value):
            np.testing.assert_allclose(total, 2 * steps * value, rtol=0.5)


class OptimizerTest(parameterized.TestCase):
    @parameterized.product(name=[n for n, f in _OPTIMIZERS.items() if f], optimizers=["keras"])
    def test_keras_3_takes_shared_second_moments(self, name, optimizers):
        self._check(name, optimizers, legacy_keras=False)

    @some_of_product(name=_IN_TF_KERAS, optimizers=["keras", "tf_gc"], count=6)
    def test_tf_keras_takes_shared_second_moments(self, name, optimizers):
        self._check(name, optimizers, legacy_keras=True)

    @parameterized.parameters(
        ("Ftrl", {}),
        ("Muon", {"adam_lr_ratio": 1.0, "weight_decay": 0.004}),
        ("ScheduleFreeAdamW", {"beta_1": 1.0}),
    )
    def test_so_do_optimizers_of_keras_3_alone(self, name, arguments):
        if not hasattr(keras.optimizers, name):
            self.skipTest(f"this version of Keras has no {name}")
        self._check(name, "keras", legacy_keras=False, **arguments)

    @parameterized.parameters(1, 2)
    def test_tf_keras_says_by_itself_what_an_unknown_variable_needs(self, workers):
        for error in shared_cluster(workers).run(programs.apply_unknown, tf_gc.ThreeLC()):
            self.assertRegex(error, "optimizer.build")

    def test_so_does_ftrl_of_tf_keras(self):
        self._check("Ftrl", "keras", legacy_keras=True)

    def _check(self, name, optimizers, legacy_keras, **arguments):
        # With several variables tf_keras's Nadam multiplies its schedule more than once a step.
        names = ("kernel",) if legacy_keras else programs.NAMES
        results = _cluster(legacy_keras).run(
            programs.train, tf_gc.TopK(ratio=0.1), _STEPS, name, optimizers, names, **arguments
        )
        one([r["variables"] for r in results])
        self.assertEqual(results[0]["warnings"], [])
        reference = {**_OPTIMIZERS, **_OTHERS}[name]
        delivered = self._delivered()
        moments, _ = _expected(_STEPS, 2, factor=1.0)
        trained = results[0]["variables"][-1]
        has_momentum = name in ("Adam", "Nadam", "Lamb")
        of_workers = _square_of_workers if has_momentum else lambda step, _: moments[step]
        expected = _train(reference, delivered, of_workers)
        np.testing.assert_allclose(trained["kernel"], expected, rtol=2e-5)
        # And it is not what squares of what was delivered give.
        squares = _train(reference, delivered, lambda step, _: np.square(delivered[step]))
        update = np.abs(expected - 1).max()
        self.assertGreater(np.abs(trained["kernel"] - squares).max(), 0.1 * update)
        if not legacy_keras:
            exact = _alone(name, _sums("bias", _STEPS, 2), **arguments)
            np.testing.assert_array_equal(trained["bias"], exact)

    def _delivered(self):
        result = shared_cluster(2).run(
            programs.steps_with_second_moments, tf_gc.TopK(ratio=0.1), _STEPS
        )[0]
        return [reduced[0] for reduced in result["reduced"]]

    @parameterized.parameters(*_OPTIMIZERS)
    def test_tf_gc_optimizers_are_keras_3s_bit_for_bit(self, name):
        cluster = shared_cluster(2)
        for compression in None, tf_gc.ThreeLC():
            ours, stock = (
                cluster.run(programs.train, compression, 3, name, optimizers)[0]["variables"]
                for optimizers in ("tf_gc", "keras")
            )
            np.testing.assert_equal(ours, stock)

    @some_of_product(
        system=[
            (
                tf_gc.Marsit(full_precision_every=0),
                {"units": "second_moment", "mean_multiplier": 1.4, "prediction": 0.8},
                {"units": "gradient", "mean_multiplier": 1.0, "prediction": 0.0},
            ),
            (
                tf_gc.EFSignSGD(),
                {"units": "second_moment", "prediction": 0.8},
                {"units": "gradient", "prediction": 0.0},
            ),
            (
                tf_gc.THC(),
                {"units": "second_moment", "rounding": "nearest"},
                {"units": "gradient", "rounding": "stochastic"},
            ),
        ],
        legacy_keras=[False, True],
        count=3,
    )
    def test_systems_suit_themselves_to_the_optimizer(self, system, legacy_keras):
        compressor, with_adam, with_others = system

        def trained(compressor, name, **arguments):
            cluster = _cluster(legacy_keras)
            results = cluster.run(programs.train, compressor, 3, name, **arguments)
            return one([result["variables"] for result in results])

        for name, arguments, expected in (
            ("Adam", {"beta_1": 0.8}, with_adam),
            ("SGD", {"momentum": 0.8}, with_others),
        ):
            by_itself = trained(compressor, name, **arguments)
            told = trained(dataclasses.replace(compressor, **expected), name, **arguments)
            np.testing.assert_equal(by_itself, told)

    def test_systems_that_auto_chooses_from_suit_themselves_too(self):
        by_itself, chosen = (
            shared_cluster(2).run(programs.train, compressor, 3)[0]["variables"]
            for compressor in (tf_gc.THC(), tf_gc.Auto(systems=(tf_gc.THC(),)))
        )
        np.testing.assert_equal(by_itself, chosen)

    @some_of(("Nadam", 0.8), ("Adafactor", None))
    def test_nothing_is_predicted_without_a_momentum_to_step_along(self, name, beta):
        arguments = {} if beta is None else {"beta_1": beta}
        by_itself, told = (
            shared_cluster(2).run(programs.train, compressor, 3, name, **arguments)[0]["variables"]
            for compressor in (
                tf_gc.EFSignSGD(),
                tf_gc.EFSignSGD(units="second_moment", prediction=0.0),
            )
        )
        np.testing.assert_equal(by_itself, told)

    @some_of("clipnorm", "global_clipnorm", "clipvalue")
    def test_nothing_is_predicted_where_tf_keras_clips_what_was_reduced(self, clipping):
        by_itself, told = (
            _cluster(True).run(programs.train, compressor, 3, **{clipping: 1.0})[0]["variables"]
            for compressor in (
                tf_gc.EFSignSGD(),
                tf_gc.EFSignSGD(units="second_moment", prediction=0.0),
            )
        )
        np.testing.assert_equal(by_itself, told)

    def test_momentum_in_one_bit_is_refused_where_tf_keras_clips_what_was_reduced(self):
        message = "beta_1 must be .* clip each worker's own gradients.* got 0.9"
        with self.assertRaisesRegex(Exception, message):
            _cluster(True).run(programs.train, tf_gc.OneBitAdam(2), 3, clipnorm=1.0)

    @some_of(False, True)
    def test_momentum_in_one_bit_is_refused_with_an_optimizer_that_has_none(self, legacy_keras):
        with self.assertRaisesRegex(Exception, "beta_1 must be .* 0.0.* got 0.9"):
            _cluster(legacy_keras).run(programs.train, tf_gc.OneBitAdam(2), 3, beta_1=0.0)

    @some_of_product(
        arguments=[
            {"amsgrad": True},
            {"weight_decay": 0.01},
            {"use_ema": True, "ema_overwrite_frequency": 2},
            {"clipnorm": 1.0},
        ],
        legacy_keras=[False, True],
        count=4,
    )
    def test_what_keras_adds_works_as_in_keras(self, arguments, legacy_keras):
        results = _cluster(legacy_keras).run(
            programs.train, tf_gc.TopK(ratio=0.1), _STEPS, "Adam", **arguments
        )
        one([r["variables"] for r in results])
        self.assertEqual(results[0]["warnings"], [])
        trained = results[0]["variables"][-1]
        if "amsgrad" in arguments:
            expected = _train(_amsgrad, self._delivered(), _square_of_workers)
            np.testing.assert_allclose(trained["kernel"], expected, rtol=2e-5)
        if "clipnorm" in arguments and legacy_keras:
            # tf_keras clips what was reduced, each variable by itself.
            shares = [min(1.0, 1 / np.linalg.norm(d)) for d in self._delivered()]
            moments, _ = _expected(_STEPS, 2, factor=1.0)
            expected = _train(
                _adam,
                [share * d for share, d in zip(shares, self._delivered(), strict=True)],
                lambda step, _: shares[step] ** 2 * moments[step],
            )
            np.testing.assert_allclose(trained["kernel"], expected, rtol=2e-5)
        if "clipnorm" not in arguments and not legacy_keras:
            exact = _alone("Adam", _sums("bias", _STEPS, 2), **arguments)
            np.testing.assert_array_equal(trained["bias"], exact)

    @some_of(False, True)
    def test_a_centered_optimizer_squares_what_was_delivered(self, legacy_keras):
        # The mean of other squares may be less than the square of the mean.
        results = _cluster(legacy_keras).run(
            programs.train, tf_gc.TopK(0.1), 8, "RMSprop", centered=True
        )
        self.assertTrue(np.isfinite(one([r["variables"] for r in results])[-1]["kernel"]).all())
        [warning] = results[0]["warnings"]
        self.assertIn("centered=False", warning)

    @some_of(
        (tf_gc.EFSignSGD(), "Adam"),
        (tf_gc.SignSGD(), "Adafactor"),
        (tf_gc.OneBit(), "Adam"),
        (tf_gc.OneBitAdam(1), "Adafactor"),
        (tf_gc.EFSignSGD(), "Adafactor"),
        (tf_gc.SignSGD(), "Adam"),
        (tf_gc.OneBit(), "Adafactor"),
        (tf_gc.OneBitAdam(1), "Adam"),
        count=2,
    )
    def test_a_row_without_gradients_stays_where_it_is(self, compressor, name):
        def moved(zero_rows):
            results = shared_cluster(2).run(
                programs.train, compressor, 4, name, names=("other",), zero_rows=zero_rows
            )
            return np.abs(one([r["variables"] for r in results])[-1]["other"] - 1)

        learning_rate = 1e-3
        self.assertLess(moved(8)[:8].max(), 4 * 10 * learning_rate)
        # Nor does it keep the others from moving.
        self.assertGreater(np.median(moved(8)[8:]), 0.1 * np.median(moved(0)[8:]))

    @parameterized.parameters(
        tf_gc.ThreeLC(), tf_gc.TopK(0.1), tf_gc.ARTopK(0.1), tf_gc.ScaleCom(10)
    )
    def test_what_a_row_delivers_after_its_last_gradient_is_divided_by_its_square(self, compressor):
        results = shared_cluster(2).run(
            programs.train,
            compressor,
            12,
            "RMSprop",
            names=("kernel",),
            zero_rows=8,
            zero_from=2,
            rho=0.5,  # forgets what was before
        )
        before, *later = [v["kernel"][:8] for v in one([r["variables"] for r in results])[2:]]
        moved = np.abs(np.diff([before, *later], axis=0)).max()
        self.assertGreater(moved, 0)
        self.assertLess(moved, 2e-3)  # the learning rate is a thousandth: 1 / sqrt(1 - rho) of it

    def test_a_subclass_of_nadam_steps_along_the_gradient_too(self):
        for name in "Adam", "Nadam":
            own = type("Own", (getattr(keras.optimizers, name),), {})
            expected = 0.8 if name == "Adam" else None
            self.assertEqual(keras_seams._momentum(own(beta_1=0.8)), expected)

    @parameterized.parameters(tf_gc.OneBitAdam, tf_gc.ZeroOneAdam)
    def test_adam_in_one_bit_has_a_warm_up_of_its_own(self, compressor):
        compressor = compressor(freeze_step=50, start_step=3)
        with self.assertRaisesRegex(ValueError, "start_step must be 0 with an optimizer that sq"):
            compressor.for_optimizer(True, 0.9)
        self.assertIs(compressor.for_optimizer(False, 0.9), compressor)

    def test_beta_1_is_the_optimizers(self):
        compressor = tf_gc.OneBitAdam(beta_1=0.9)
        for momentum in (0.8, 0.0):
            with self.assertRaisesRegex(ValueError, f"that of the optimizer, which is {momentum}"):
                compressor.for_optimizer(True, momentum)
        for momentum in (0.9, float(np.float32(0.9)), None):  # of Nadam and others it is not known
            self.assertIs(compressor.for_optimizer(True, momentum), compressor)

    @some_of(False, True)
    def test_an_optimizer_may_be_built_in_its_first_step(self, legacy_keras):
        arguments = (programs.train, tf_gc.ThreeLC(), 2)
        built, unbuilt = (
            _cluster(legacy_keras).run(*arguments, build=build)[0]["variables"][-1]
            for build in (True, False)
        )
        for name, values in built.items():
            np.testing.assert_array_equal(unbuilt[name], values)

    def test_gradients_may_be_reduced_before_the_optimizer_is_built(self):
        arguments = (programs.train, tf_gc.ThreeLC(), 2)
        results = _cluster(True).run(*arguments, rewrite=True, build=False)
        one([r["variables"] for r in results])

    def test_eager_steps_give_the_same(self):
        compiled, eager = (
            shared_cluster(2).run(programs.train, tf_gc.TopK(0.1), 3, compiled=is_compiled)[0]
            for is_compiled in (True, False)
        )
        np.testing.assert_allclose(
            eager["variables"][-1]["kernel"], compiled["variables"][-1]["kernel"], rtol=1e-6
        )

    @some_of(False, True)
    def test_an_overflow_on_one_worker_spoils_no_second_moment(self, legacy_keras):
        results = _cluster(legacy_keras).run(
            strategy_programs.fit_with_an_overflow, tf_gc.ThreeLC(), 1, "Adam"
        )
        result = one(results)
        self.assertTrue(result["finite"])
        self.assertGreater(result["compressed_steps"], 0)

    def test_without_units_sgd_exchanges_no_statistics(self):
        for legacy_keras in False, True:
            result = _cluster(legacy_keras).run(programs.train, tf_gc.ThreeLC(1.0), 2, "SGD")[0]
            self.assertEqual(result["traffic"]["second_moment_bytes_sent"], 0)
        result = shared_cluster(2).run(programs.train, _IN_UNITS, 2, "SGD")[0]
        self.assertGreater(result["traffic"]["second_moment_bytes_sent"], 0)

    def test_legacy_optimizers_and_rewritten_gradients_warn_once_with_the_remedy(self):
        result = _cluster(True).run(programs.train, tf_gc.ThreeLC(), 2, "Adam", "legacy")[0]
        [warning] = result["warnings"]
        self.assertIn("use tf_keras.optimizers.Adam", warning)
        result = _cluster(True).run(programs.train, tf_gc.ThreeLC(), 2, rewrite=True)[0]
        [warning] = result["warnings"]
        self.assertIn("hand it gradients as they were reduced", warning)
        result = _cluster(True).run(programs.train, tf_gc.THC(), 2, "Adam", "legacy")[0]
        self.assertEqual(result["warnings"], [])

    @some_of(
        (tf_gc.OneBitAdam(1), {"optimizers": "legacy"}),
        (tf_gc.ZeroOneAdam(), {"rewrite": True}),
        (tf_gc.OneBitAdam(1), {"name": "Adamax"}),
        (tf_gc.ZeroOneAdam(), {"name": "RMSprop", "centered": True}),
        (tf_gc.ZeroOneAdam(), {"optimizers": "legacy"}),
        (tf_gc.OneBitAdam(1), {"rewrite": True}),
        (tf_gc.ZeroOneAdam(), {"name": "Adamax"}),
        (tf_gc.OneBitAdam(1), {"name": "RMSprop", "centered": True}),
        count=4,
    )
    def test_so_do_systems_with_second_moments_of_their_own(self, compressor, arguments):
        result = _cluster(True).run(programs.train, compressor, 2, **arguments)[0]
        [warning] = result["warnings"]
        self.assertIn("squar", warning)
        self.assertIn("use tf_keras.optimizers.", warning)

    @parameterized.parameters("Adagrad", "Ftrl")
    def test_a_warning_names_an_optimizer_that_there_is(self, name):
        result = _cluster(True).run(programs.train, tf_gc.ThreeLC(), 2, name, "legacy")[0]
        [warning] = result["warnings"]
        self.assertStartsWith(warning, f"{name} squares compressed gradients")
        self.assertIn("use tf_keras.optimizers.Adam,", warning)

    @some_of(
        *(("Adamax", legacy_keras) for legacy_keras in (False, True)),
        *(("Adadelta", legacy_keras) for legacy_keras in (False, True)),
        ("Adagrad", True),
        count=2,
    )
    def test_optimizers_that_get_none_and_may_square_are_warned_of_once(self, name, legacy_keras):
        cluster = _cluster(legacy_keras)
        [warning] = cluster.run(programs.train, tf_gc.ThreeLC(), 2, name)[0]["warnings"]
        self.assertStartsWith(warning, f"{name} may square compressed gradients")
        package = "tf_keras" if legacy_keras else "keras"
        self.assertIn(f"use {package}.optimizers.Adam, or another", warning)
        # What this system delivers may be squared.
        self.assertEqual(cluster.run(programs.train, tf_gc.Int8(), 2, name)[0]["warnings"], [])

    @parameterized.product(name=["SGD", "Lion"], legacy_keras=[False, True])
    def test_optimizers_that_square_nothing_are_not_warned_of(self, name, legacy_keras):
        result = _cluster(legacy_keras).run(programs.train, tf_gc.ThreeLC(), 2, name)[0]
        self.assertEqual(result["warnings"], [])


class MaySquareTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        keras_seams.redirect()

    def test_what_is_known_of_an_optimizer_is_known_of_its_subclasses(self):
        for name in ("SGD", "Lion", "Adam", "Ftrl", "RMSprop"):
            base = getattr(keras.optimizers, name)
            self.assertFalse(second_moments.may_square(base()), name)
            self.assertFalse(second_moments.may_square(type("Own", (base,), {})()), name)
        self.assertFalse(second_moments.may_square(keras.optimizers.RMSprop(centered=True)))

    def test_code_of_the_users_own_may_square_but_not_where_it_may_call_adams(self):
        def update_step(optimizer, gradient, variable, learning_rate):
            optimizer.assign_sub(variable, learning_rate * gradient)

        for base, expected in (("Optimizer", True), ("SGD", True), ("Adam", False)):
            own = type("Own", (getattr(keras.optimizers, base),), {"update_step": update_step})
            self.assertEqual(second_moments.may_square(own(learning_rate=0.1)), expected, base)

    def test_muon_uses_them_for_what_is_no_matrix(self):
        if not hasattr(keras.optimizers, "Muon"):
            self.skipTest("this version of Keras has no Muon")
        self.assertTrue(second_moments.are_used_by(keras.optimizers.Muon()))


class MomentumTest(parameterized.TestCase):
    def test_it_is_known_where_steps_follow_it_and_it_is_a_number(self):
        optimizers = keras.optimizers
        for optimizer, expected in (
            (optimizers.Adam(beta_1=0.8), 0.8),
            (optimizers.AdamW(), 0.9),
            (optimizers.Adam(beta_1=0.0), 0.0),
            (optimizers.Adam(clipnorm=1.0), 0.9),  # each worker's own gradients
            (optimizers.Adam(beta_1=tf.constant(0.8)), None),
            (optimizers.Nadam(), None),
            (optimizers.RMSprop(momentum=0.5), None),
        ):
            self.assertEqual(keras_seams._momentum(optimizer), expected, type(optimizer).__name__)

    def test_optimizers_with_another_momentum_have_none(self):
        for name in "Muon", "ScheduleFreeAdamW":
            if hasattr(keras.optimizers, name):
                optimizer = getattr(keras.optimizers, name)()
                self.assertIsNone(keras_seams._momentum(optimizer), name)

    def test_momentum_of_a_small_beta_is_not_what_workers_agree_in(self):
        variable = keras.Variable(np.ones([4, 8], np.float32))
        for beta, is_used in (0.0, False), (0.5, False), (0.8, True):
            optimizer = keras.optimizers.Adam(beta_1=beta)
            optimizer.build([variable])
            moments = second_moments.first_moments(optimizer, [variable])
            self.assertEqual(moments is not None, is_used)

    def test_what_delivers_nothing_keeps_its_second_moment_where_it_is_clipped(self):
        gradient, moment = tf.zeros([4, 8]), tf.ones([4, 8])
        second_moments.attach(gradient, moment)
        clipped = tf.clip_by_norm(gradient, 1.0)
        second_moments.scale(gradient, clipped)
        np.testing.assert_array_equal(second_moments.of(clipped), moment)

    def test_momentum_of_what_was_clipped_after_the_reduction_is_not_used(self):
        import tf_keras

        class OfAUser(tf_keras.optimizers.Adam):
            pass

        for optimizer_class in tf_keras.optimizers.Adam, OfAUser:
            variable = tf.Variable(tf.ones([4, 8]))
            for arguments, is_used in ({"clipnorm": 1.0}, False), ({}, True):
                optimizer = optimizer_class(**arguments)
                optimizer.build([variable])
                moments = second_moments.first_moments(optimizer, [variable])
                self.assertEqual(moments is not None, is_used)

    @parameterized.product(
        compressor=(tf_gc.Marsit(), tf_gc.ThreeLC(), tf_gc.ARTopK(0.05)),
        optimizer=("Adam", "RMSprop"),
    )
    def test_a_new_optimizer_goes_on_where_another_one_was(self, compressor, optimizer):
        results = shared_cluster(2).run(programs.around_a_new_optimizer, compressor, optimizer, 5)
        before, after, change = results[0]
        self.assertLess(after, 1.2 * before)
        self.assertLess(change, 3.3)


class SerializationTest(parameterized.TestCase):
    @parameterized.parameters(*_OPTIMIZERS)
    def test_arguments_names_and_configuration_are_keras_s(self, name):
        ours, stock = getattr(tf_gc.optimizers, name), getattr(keras.optimizers, name)
        self.assertTrue(issubclass(ours, stock))
        self.assertEqual(ours.__name__, name)
        self.assertEqual(ours.__init__, stock.__init__)
        keras.backend.clear_session()
        config = ours(learning_rate=0.5).get_config()
        keras.backend.clear_session()
        self.assertEqual(config, stock(learning_rate=0.5).get_config())
        self.assertEqual(ours.from_config(config).get_config(), config)

    def test_a_saved_model_comes_back_with_its_optimizer(self):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile(tf_gc.optimizers.AdamW(0.25), "mse")
        model.fit(np.ones([8, 4]), np.ones([8, 3]), verbose=0)
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "model.keras")
            model.save(path)
            loaded = keras.models.load_model(path)
        self.assertIsInstance(loaded.optimizer, keras.optimizers.AdamW)
        for ours, theirs in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
            np.testing.assert_array_equal(ours, theirs)

    @some_of({}, _LEGACY_KERAS)
    def test_a_saved_model_is_loaded_by_a_process_that_knows_tf_gc_alone(self, **environment):
        folder = self.create_tempdir().full_path
        paths = [os.path.join(folder, f"model.{suffix}") for suffix in ("keras", "h5")]
        shared_cluster(1, **environment).run(programs.save_model, paths)
        load = f"""
            import tensorflow as tf, tf_gc
            for path in {paths!r}:
                optimizer = tf.keras.models.load_model(path).optimizer
                print(type(optimizer).__name__, float(optimizer.learning_rate))
            """
        result = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(load)],
            env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.splitlines()[-2:], ["AdamW 0.25"] * 2)

    def test_a_checkpoint_of_keras_is_one_of_ours(self):
        variable = keras.Variable(np.ones(3, np.float32))
        stock, ours = keras.optimizers.Adam(), tf_gc.optimizers.Adam()
        stock.apply([tf.ones(3)], [variable])
        ours.build([variable])
        with tempfile.TemporaryDirectory() as directory:
            path = tf.train.Checkpoint(optimizer=stock).save(os.path.join(directory, "ck"))
            tf.train.Checkpoint(optimizer=ours).restore(path).assert_consumed()
        for mine, theirs in zip(ours.variables, stock.variables, strict=True):
            np.testing.assert_array_equal(mine, theirs)

    def test_what_keras_has_not_is_an_attribute_error(self):
        with self.assertRaises(AttributeError):
            _ = tf_gc.optimizers.Sofia


if __name__ == "__main__":
    absltest.main()
