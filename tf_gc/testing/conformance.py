"""The contracts that every compressor keeps, as a test case to derive from."""

import dataclasses
import functools
import hashlib
import math
import pickle
import re
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from tf_gc.compressors import Compressor
from tf_gc.network_namespaces import why_unavailable
from tf_gc.testing import programs
from tf_gc.testing.case import Case
from tf_gc.testing.cluster import WorkerError
from tf_gc.testing.measurements import THREADS, Measurements

# What float32 arithmetic on values of about 1 may lose in a few steps.
_TOLERANCE = 1e-4
# What a value of a type may be off when it has been rounded, relative to it. Residuals keep what is
# lost to float16 and bfloat16.
_ROUNDING = {tf.float32: 2.0**-23, tf.float16: 2.0**-10, tf.bfloat16: 2.0**-7}
# What TCP/IP and gRPC add: framing and acknowledgements, and in every step a few requests and
# replies for each exchange.
_WIRE_FACTOR = 1.1
_WIRE_BYTES_PER_STEP = 24 << 10


def _with_each_compressor(test):
    """Makes a method of test(self, name)."""

    @functools.wraps(test)
    def method(self):
        for name in self.cases:
            with self.subTest(compressor=name):
                test(self, name)

    return method


def _on_every_cluster(test):
    """Makes a method of test(self, case, workers, results), of `measure_contracts`."""

    @functools.wraps(test)
    def method(self):
        for name, workers in self.measurements.contracts:
            with self.subTest(compressor=name, workers=workers):
                results = _outcome(self.measurements.contracts, (name, workers))
                test(self, self.cases[name], workers, results)

    return method


def _on_few_workers(test):
    """Makes a method of test(self, case, workers, results), of `measure_modes`."""

    @functools.wraps(test)
    def method(self):
        for name in self.measurements.modes:
            workers = self.measurements.few(name)
            with self.subTest(compressor=name, workers=workers):
                results = _outcome(self.measurements.modes, name)
                test(self, self.cases[name], workers, results)

    return method


class CompressorConformance(absltest.TestCase):
    """Tests that compressors keep the contracts, on clusters of real processes.

    Each method tests one contract, for all compressors and numbers of workers; a
    failure says which. Everything is measured when the class begins, on one cluster
    of each size, one more whose first worker dies, and one with another number of
    threads and, where that is possible (as root), a network of its own on which bytes
    are counted.

    Not tested are damaged messages: `tf_gc.exchange.Exchange` finds those, but does
    not know what the bytes mean that a compressor gathers or broadcasts. One that
    decodes them with anything but `tf_gc.ops` needs a test, or better a fuzzer, for
    that.

    Attributes:
      compressors: name -> compressor, or `Case` where it claims something else
        than a `Case` does by default.
      workers: the sizes of the clusters on which compressors are measured whose
        `Case` names no others. With 1 among them, all are tried by one worker alone.
    """

    compressors: ClassVar[Mapping[str, Compressor | Case]] = {}
    workers: ClassVar[tuple[int, ...]] = (1, 2, 3, 5)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cases = {
            name: case if isinstance(case, Case) else Case(compressor=case)
            for name, case in cls.compressors.items()
        }
        if cls is not CompressorConformance:
            _check_something_is_measured(cls)
        cls.measurements = Measurements(cls.cases, cls.workers)
        cls.measurements.run()

    def test_it_runs(self):
        for what, outcome in self.measurements.outcomes():
            with self.subTest(what):
                self.assertNotIsInstance(outcome, WorkerError, str(outcome))

    # Agreement.

    @_on_every_cluster
    def test_all_workers_get_the_same_bits(self, case, workers, results):
        for run in ("SUM", "MEAN", "restored"):
            self._agree(results, run)

    @_on_few_workers
    def test_all_workers_get_the_same_bits_in_a_loop_and_in_keras(self, case, workers, results):
        for run in ("loop", "keras", "warm_up"):
            self._agree(results, run)

    # Conservation.

    @_on_every_cluster
    def test_what_was_put_in_is_delivered_or_in_the_residuals(self, case, workers, results):
        self._conserved(case, workers, results, "SUM")
        self._conserved(case, workers, results, "MEAN", factor=workers)

    @_on_every_cluster
    def test_what_was_restored_is_delivered_or_in_the_residuals(self, case, workers, results):
        self._conserved(case, workers, results, "restored")

    @_on_few_workers
    def test_nothing_is_lost_in_a_loop_in_keras_and_in_warm_up(self, case, workers, results):
        for run in ("loop", "keras", "warm_up"):
            self._conserved(case, workers, results, run)

    def test_a_checkpoint_keeps_what_all_workers_have_kept(self):
        contracts = self.measurements.contracts
        for name, workers in contracts:
            saved_by = self.measurements.restored_from[name, workers]
            with self.subTest(compressor=name, workers=workers, saved_by=saved_by):
                saved = _outcome(contracts, (name, saved_by))
                restored = _outcome(contracts, (name, workers))
                for key in saved[0]["saved"]:
                    np.testing.assert_allclose(
                        sum(_wide(result["slots"][key]) for result in restored),
                        sum(_wide(result["saved"][key]) for result in saved),
                        rtol=1e-5,
                        atol=1e-5,
                        err_msg=str(key),
                    )

    @_on_few_workers
    def test_what_is_delivered_is_right_on_average(self, case, workers, results):
        if not case.unbiased:
            return
        check_unbiased(self, results[0]["samples"], _put_in("matrix", programs.NORMAL[:1], workers))

    @_on_every_cluster
    def test_what_is_delivered_of_finite_gradients_is_finite(self, case, workers, results):
        for run in ("SUM", "MEAN"):
            for step in (*programs.NORMAL, *programs.ZEROS):
                for name, values in results[0][run]["delivered"][step].items():
                    self._finite(values, f"{run}: {name} in step {step}")

    # SUM and MEAN.

    @_on_every_cluster
    def test_the_mean_is_the_sum_over_the_number_of_workers(self, case, workers, results):
        if not case.scales_with_mean:
            return
        for step, mean in results[0]["MEAN"]["delivered"].items():
            for name, values in mean.items():
                np.testing.assert_allclose(
                    workers * values,
                    results[0]["SUM"]["delivered"][step][name],
                    rtol=1e-4,
                    atol=_TOLERANCE,
                    err_msg=f"{name} in step {step}",
                )

    # Values that are not finite.

    @_on_every_cluster
    def test_a_bad_value_of_one_worker_reaches_all(self, case, workers, results):
        for result in results:
            delivered = result["SUM"]["delivered"][programs.POISONED]
            for name in programs.POISON:
                bad = _wide(delivered[name]).flat[programs.BAD_INDEX]
                self.assertFalse(np.isfinite(bad), f"{bad} has arrived in {name}")

    @_on_every_cluster
    def test_a_bad_value_leaves_its_variables_residual_alone(self, case, workers, results):
        for result in results:
            before = result["SUM"]["residuals"][programs.NORMAL[-1]]
            after = result["SUM"]["residuals"][programs.POISONED]
            for name in after.keys() & programs.POISON.keys():
                np.testing.assert_array_equal(after[name], before[name], name)

    @_on_every_cluster
    def test_a_bad_value_harms_no_other_variable_and_no_later_step(self, case, workers, results):
        delivered = results[0]["SUM"]["delivered"]
        for name in programs.VARIABLES.keys() - programs.POISON.keys():
            self._finite(delivered[programs.POISONED][name], f"{name} in the same step")
        for name, values in delivered[programs.AGAIN].items():
            self._finite(values, f"{name} in the next step")
        for result in results:
            for name, values in result["SUM"]["residuals"][programs.AGAIN].items():
                self._finite(values, f"the residual of {name}")

    # Types.

    @_on_every_cluster
    def test_types_and_shapes_come_back_as_they_went(self, case, workers, results):
        for delivered in results[0]["SUM"]["delivered"].values():
            for name, (shape, dtype) in programs.VARIABLES.items():
                self.assertEqual(delivered[name].dtype, dtype.as_numpy_dtype, name)
                self.assertEqual(delivered[name].shape, shape, name)

    @_on_every_cluster
    def test_doubles_and_indexed_slices_are_summed_by_tensorflow(self, case, workers, results):
        for step in programs.NORMAL:
            np.testing.assert_allclose(
                results[0]["SUM"]["delivered"][step]["double"],
                _put_in("double", [step], workers),
                rtol=1e-12,
                atol=1e-12,
            )
        np.testing.assert_array_equal(
            results[0]["embedding"], _put_in("embedding", programs.NORMAL[:1], workers)
        )

    # Determinism.

    @_with_each_compressor
    def test_the_same_seed_gives_the_same_bits_on_any_number_of_threads(self, name):
        for first, second in zip(
            _outcome(self.measurements.modes, name),
            _outcome(self.measurements.repetitions, name),
            strict=True,
        ):
            what = f"two runs, with {THREADS} threads, differ"
            self.assertEqual(_digest(first["plain"]), _digest(second["plain"]), what)
            self.assertEqual(first["large"], second["large"], f"{what} on many values")

    # One worker.

    @_with_each_compressor
    def test_one_worker_alone_adds_no_op_and_copies_nothing(self, name):
        if 1 in self.workers:
            [result] = _outcome(self.measurements.alone, name)
            self.assertDictEqual(result, {"same_tensor": True, "ops": 0, "residuals": 0})

    # Hyper-parameters.

    @_with_each_compressor
    def test_bad_hyper_parameters_are_refused_by_name(self, name):
        case = self.cases[name]
        for parameter, value in (*case.bad, ("start_step", -1)):
            with self.assertRaisesRegex(
                ValueError, rf"\b{re.escape(parameter)}\b", msg=f"{parameter}={value!r}"
            ):
                dataclasses.replace(case.compressor, **{parameter: value})

    @_with_each_compressor
    def test_a_compressor_is_a_value(self, name):
        compressor = self.cases[name].compressor
        self.assertEqual(pickle.loads(pickle.dumps(compressor)), compressor)
        self.assertEqual(hash(dataclasses.replace(compressor)), hash(compressor))
        with self.assertRaises(dataclasses.FrozenInstanceError):
            compressor.start_step = 1

    @_on_few_workers
    def test_a_schedule_is_followed_and_traces_nothing_again(self, case, workers, results):
        if case.schedule is None:
            return
        for result in results:
            changed, constant = result["scheduled"], result["constant"]
            first, *_, last = programs.NORMAL
            self.assertEqual(_digest(changed, [first]), _digest(constant, [first]))
            self.assertNotEqual(
                _digest(changed, [last]), _digest(constant, [last]), "nothing has changed"
            )
            self.assertEqual(changed["traces"], 1)

    @_on_few_workers
    def test_before_the_start_step_sums_are_exact_and_nothing_is_kept(self, case, workers, results):
        for run in (result["warm_up"] for result in results):
            for step in programs.NORMAL[: programs.WARM_UP]:
                for name, values in run["delivered"][step].items():
                    exact = _put_in(name, [step], workers)
                    np.testing.assert_allclose(values, exact, atol=1e-5, err_msg=name)
                for name, residual in run["residuals"][step].items():
                    self.assertFalse(np.any(residual), f"the residual of {name}")

    @_on_few_workers
    def test_from_the_start_step_on_it_compresses_without_a_new_trace(self, case, workers, results):
        step = programs.NORMAL[programs.WARM_UP]
        exact = _put_in("matrix", [step], workers)
        is_exact = [
            np.allclose(results[0][run]["delivered"][step]["matrix"], exact, atol=1e-3)
            for run in ("warm_up", "plain")
        ]
        self.assertEqual(*is_exact)
        self.assertEqual(results[0]["warm_up"]["traces"], 1)

    # Failures.

    def test_the_death_of_a_worker_is_unavailable_on_all_others(self):
        self._all_end_with("UnavailableError", self.measurements.killed)

    def test_a_worker_that_does_not_come_is_deadline_exceeded(self):
        self._all_end_with("DeadlineExceededError", self.measurements.absent)

    # What else is asked of a compressor.

    @_on_every_cluster
    def test_zeros_are_delivered_as_zeros(self, case, workers, results):
        for step in programs.ZEROS if case.keeps_zeros else ():
            for name, values in results[0]["SUM"]["delivered"][step].items():
                self.assertFalse(np.any(values), f"{name} in step {step}")

    @_on_every_cluster
    def test_a_function_is_traced_once(self, case, workers, results):
        for result in results:
            self.assertEqual(result["SUM"]["traces"], 1)

    @_on_every_cluster
    def test_what_all_send_is_what_all_receive(self, case, workers, results):
        traffic = [result["traffic"] for result in results]
        self.assertEqual(
            sum(each["bytes_sent"] for each in traffic),
            sum(each["bytes_received"] for each in traffic),
        )
        for each in traffic:
            self.assertEqual(each["steps"], len(programs.STEPS))

    @_with_each_compressor
    def test_a_value_takes_as_many_bits_as_claimed(self, name):
        if self.cases[name].bits_per_value is not None:
            for result in _outcome(self.measurements.repetitions, name):
                bits = 8 * result["counted"] / result["values"]
                self.assertBetween(bits, *self.cases[name].bits_per_value)

    @_with_each_compressor
    def test_what_is_counted_is_what_passes_the_network(self, name):
        if why_unavailable():
            self.skipTest(f"the network's bytes cannot be counted: {why_unavailable()}")
        for result in _outcome(self.measurements.repetitions, name):
            counted, seen = result["counted"], result["seen"]
            self.assertGreaterEqual(seen, counted)
            overhead = programs.TRAFFIC_STEPS * _WIRE_BYTES_PER_STEP
            self.assertLessEqual(seen, _WIRE_FACTOR * counted + overhead)

    # What the tests share.

    def _agree(self, results, run):
        digests = {_digest(result[run]) for result in results}
        self.assertLen(digests, 1, f"{run}: the workers' bits differ")

    def _finite(self, values, what):
        self.assertTrue(np.isfinite(_wide(values)).all(), f"{what} is not finite")

    def _all_end_with(self, error, errors):
        for name, workers, failed in errors:
            with self.subTest(compressor=name, workers=workers, failed=failed):
                self.assertEqual(set(_outcome(errors, (name, workers, failed))), {error})

    def _conserved(self, case, workers, results, run, factor=1):
        """What was put in, and kept before, must have been delivered, or be kept now."""
        if not case.conserves:
            return
        runs = [result[run] for result in results]
        delivered = runs[0]["delivered"]
        for name, (_, dtype) in programs.COMPRESSED.items():
            # In a step with a bad value there is nothing to conserve.
            steps = [s for s in delivered if (s, name) not in programs.POISONED_VARIABLES]
            if name not in delivered[steps[0]]:
                continue
            put_in = _put_in(name, runs[0]["steps"], workers)
            arrived = [factor * _wide(delivered[step][name]) for step in steps]
            kept = _kept(runs, name, "after") - _kept(runs, name, "before")
            lost = np.abs(put_in - sum(arrived) - kept / float(case.conserves))
            has_residual = any(name in run["after"] for run in runs)
            rounding = _ROUNDING[tf.float32 if has_residual else dtype] * sum(
                np.abs(values) for values in arrived
            )
            self.assertTrue(
                np.all(np.isfinite(lost) & (lost <= rounding + _TOLERANCE)),
                f"{run}: up to {np.max(lost, initial=0):.3g} of a value of {name} is lost",
            )


def check_unbiased(test, samples, exact):
    """Fails unless samples, of equal shapes, have `exact` as their mean, as far as noise tells."""
    samples = samples.astype(np.float64)
    error = np.sum((samples.mean(axis=0) - exact) ** 2)
    variance_of_mean = np.sum(samples.var(axis=0)) / (len(samples) - 1)
    test.assertLess(error, 1.5 * variance_of_mean + _TOLERANCE, "biased")
    # Noise of all values together may hide what is wanted: along `exact` there is little of it.
    shares = np.tensordot(samples, exact, exact.ndim) / np.sum(exact**2)
    deviation = shares.std(ddof=1) / math.sqrt(len(shares))
    test.assertLess(
        abs(shares.mean() - 1),
        4.5 * deviation + _TOLERANCE,
        f"biased: of what is to be delivered, {shares.mean():.2f} are on average",
    )


def _check_something_is_measured(suite):
    if not suite.cases:
        raise ValueError(
            f"{suite.__name__}.compressors is empty: give it compressors, or a Case each, by name"
        )
    for name, case in suite.cases.items():
        workers = case.workers or suite.workers
        if not any(number > 1 for number in workers):
            raise ValueError(
                f"{suite.__name__}: {name!r} is measured on {workers} workers: contracts are about "
                "two or more"
            )


def _outcome(outcomes, key):
    """Returns the results by worker; a test fails that has none."""
    outcome = outcomes[key]
    if isinstance(outcome, WorkerError):
        raise AssertionError(f"not measured, see test_it_runs: {str(outcome).splitlines()[0]}")
    return outcome


def _wide(values):
    return np.asarray(values).astype(np.float64)


def _put_in(name, steps, workers):
    """The sum of a variable's gradients, but for those with a bad value."""
    return sum(
        _wide(programs.gradient(name, step, worker))
        for step in steps
        if (step, name) not in programs.POISONED_VARIABLES
        for worker in range(workers)
    )


def _kept(runs, name, when):
    """The sum of the workers' residuals of a variable, zero where they have none."""
    return sum(_wide(run[when][name]) for run in runs if name in run[when])


def _digest(run, steps=None):
    """A fingerprint of all bits that were delivered of the float32 variables, and the others."""
    delivered = [run["delivered"][step] for step in steps or run["delivered"]]
    data = (values[name].tobytes() for values in delivered for name in sorted(values))
    return hashlib.sha256(b"".join(data)).hexdigest()
