"""tf_gc.keras.TrafficLogger, and the norms that it logs, on clusters of real processes."""

import functools
import itertools
import tempfile

import keras
import numpy as np
import server_clusters
import traffic_logger_programs as programs
from absl.testing import absltest, parameterized

import tf_gc
from tests.cases import some_of, some_of_product
from tests.clusters import one, shared_cluster
from tf_gc.keras import traffic_logger
from tf_gc.testing.cluster import WorkerError

_LEGACY_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
_RATES = {
    "bits_per_value_up",
    "bits_per_value_down",
    "bytes_sent_per_step",
    "bytes_received_per_step",
}
_WAITED = {"seconds_waited_per_step"}
_NORMS = {"residual_ratio", "compression_error"}
# Of strategy_programs._model, behind 32 inputs: the last kernel is too small to be compressed.
_BATCHES = 4


class TrafficTest(absltest.TestCase):
    def test_traffic_since_an_earlier_one_is_the_difference(self):
        earlier = tf_gc.Traffic(
            steps=2,
            bytes_sent=100,
            values_sent=800,
            uncompressed_bytes=3200,
            variables=(tf_gc.VariableTraffic("a", "TopK()", 10, 5),),
        )
        later = tf_gc.Traffic(
            steps=5,
            bytes_sent=400,
            values_sent=1600,
            uncompressed_bytes=6400,
            variables=(
                tf_gc.VariableTraffic("new", "TopK()", 3, 1),
                tf_gc.VariableTraffic("a", "TopK()", 30, 15),
                tf_gc.VariableTraffic("a", "TopK()", 7, 2),
            ),
        )
        since = later.since(earlier)
        self.assertEqual((since.steps, since.bytes_sent, since.bits_per_value), (3, 300, 3.0))
        self.assertEqual([v.values_sent for v in since.variables], [3, 27])

    def test_a_compressor_with_an_all_reduce_of_its_own_is_counted(self):
        size = 48 * 64
        for compressor, bits in [
            (programs.ByItself(), 16),
            (programs.ByItself(in_halves=True), 32),
            (programs.ByAnother(), 0),
            (programs.AfterAGather(), 0),
        ]:
            with self.subTest(compressor=str(compressor)):
                traffic = shared_cluster(2).run(programs.traffic_of_steps, compressor, 3)[0]
                self.assertEqual(traffic["values_sent"], 3 * size)  # half up, and half down
                self.assertEqual([v["values_sent"] for v in traffic["variables"]], [3 * size])
                if bits:
                    self.assertAlmostEqual(traffic["bits_per_value"], bits, delta=1.5)

    def test_a_variable_under_two_compressors_has_the_bits_of_both(self):
        traffic = tf_gc.Traffic(
            variables=(
                tf_gc.VariableTraffic("a", "Uncompressed()", 10, 40),
                tf_gc.VariableTraffic("a", "ThreeLC()", 0, 0),
                tf_gc.VariableTraffic("b", "ThreeLC()", 30, 6),
                tf_gc.VariableTraffic("b", "Uncompressed()", 10, 40),
            )
        )
        bits = traffic_logger._bits_by_variable(traffic)
        self.assertEqual(bits, {"bits_per_value/a": 32, "bits_per_value/b": 9.2})

    def test_traffic_since_a_model_was_made_again_is_the_difference(self):
        def kernel(values):
            return tf_gc.VariableTraffic("kernel", "TopK()", values, values)

        first, second, third = kernel(100), kernel(10), kernel(3)
        earlier = tf_gc.Traffic(variables=(first, second))
        later = tf_gc.Traffic(variables=(kernel(100 + 10 + 5), third))
        [since] = later.since(earlier).variables
        self.assertEqual((since.values_sent, since.bytes_sent), (5 + 3, 5 + 3))

    def test_server_traffic_since_an_earlier_one_is_the_difference(self):
        variable = tf_gc.ServerVariableTraffic("a", "Int8()", 100, 50, 0, 10, 5)
        earlier = tf_gc.ServerTraffic(updates=1, bytes_pushed=50, values_pushed=100)
        later = tf_gc.ServerTraffic(
            updates=3, bytes_pushed=150, values_pushed=500, variables=(variable,)
        )
        since = later.since(earlier)
        self.assertEqual((since.updates, since.bits_per_value_pushed), (2, 2.0))
        self.assertEqual(since.variables[0].bits_per_value_pushed, 4.0)


class NormSamplesTest(parameterized.TestCase):
    """strategy.sample_norms."""

    def assert_norms(self, read, expected, steps):
        """Checks what was read after each step: the norms of so many a step."""
        for norms, step in zip(read, steps, strict=True):
            self.assertCountEqual(norms, ["kernel", "second"])  # of what has a residual
            for name, values in norms.items():
                np.testing.assert_allclose(values, expected[step][name], rtol=1e-4)

    @some_of_product(how=["graph", "eager", "loop"], dtype=["float32", "float16"], count=3)
    def test_norms_are_those_of_the_first_step_and_of_those_asked_for(self, how, dtype):
        for read, expected in shared_cluster(2).run(
            programs.norms_in_steps, tf_gc.ThreeLC(), {2, 4}, 6, dtype, how
        ):
            self.assert_norms(read, expected, [0, 0, 2, 2, 4, 4])

    @parameterized.parameters(
        tf_gc.THC(),
        tf_gc.Marsit(full_precision_every=3),
        tf_gc.ARTopK(ratio=0.05, start_step=2),
        tf_gc.ScaleCom(chunk=20, beta=0.5),
    )
    def test_all_systems_have_norms(self, compressor):
        for read, expected in shared_cluster(2).run(
            programs.norms_in_steps, compressor, {0, 1, 2, 3}, 4
        ):
            self.assert_norms(read, expected, [0, 1, 2, 3])

    def test_buckets_of_several_compressors_have_norms(self):
        policy = tf_gc.Policy(rules={"kernel": tf_gc.ThreeLC(), "second": tf_gc.TopK(ratio=0.1)})
        for read, expected in shared_cluster(2).run(programs.norms_in_steps, policy, {2}, 3):
            self.assert_norms(read, expected, [0, 0, 2])

    def test_a_compressor_without_residuals_has_no_norms(self):
        for read, _ in shared_cluster(2).run(programs.norms_in_steps, tf_gc.QSGD(), {0}, 2):
            self.assertEqual(read, [{}, {}])

    def test_taking_norms_changes_no_bit(self):
        sampled, plain = (
            one(shared_cluster(2).run(programs.bits_of_norm_steps, tf_gc.ThreeLC(), is_sampled))
            for is_sampled in (True, False)
        )
        self.assertEqual(sampled, plain)

    def test_norms_of_buckets_that_are_not_in_use_any_more_do_not_count(self):
        policy = tf_gc.Policy(tf_gc.TopK(0.5), min_elements=0)
        for reads in shared_cluster(2).run(programs.norms_after_unfreezing, policy):
            rounded = [{name: round(norm, 3) for name, norm in read} for read in reads]
            self.assertEqual([len(read) for read in reads], [len(r) for r in rounded])
            self.assertEqual(
                rounded,
                [
                    {"kernel": 1},
                    {"kernel": 2, "second": 2},
                    {"kernel": 3, "second": 3},
                    {"kernel": 4, "second": 3},  # the other may come in the next step
                    {"kernel": 5},
                ],
            )


class SecondsWaitedTest(absltest.TestCase):
    def test_who_comes_first_has_waited_for_who_comes_late(self):
        late = 1.0
        with tempfile.TemporaryDirectory() as directory:
            (waited, step), (_, _) = shared_cluster(2).run(
                programs.wait_for_a_late_worker, directory, late
            )
        self.assertGreater(step, late)
        # Two buckets wait at the same time: the exact one and the compressed one.
        self.assertBetween(waited, late / 2, 2 * step)


@functools.cache
def _fit(**environment):
    """What workers have logged, and written, in three epochs."""
    with tempfile.TemporaryDirectory() as directory:
        return shared_cluster(2, **environment).run(
            programs.fit, tf_gc.ThreeLC(), {}, directory, epochs=3, batches=_BATCHES
        )


class TrafficLoggerTest(parameterized.TestCase):
    """On workers that reduce."""

    @some_of({}, _LEGACY_KERAS)
    def test_logs_of_an_epoch_are_what_it_exchanged(self, **environment):
        for result in _fit(**environment):
            for logs, (before, traffic) in zip(
                result["epochs"], itertools.pairwise(result["traffic"]), strict=True
            ):
                self.assertContainsSubset(_RATES | _WAITED | _NORMS | {"loss", "accuracy"}, logs)
                waited = traffic.seconds_waited - before.seconds_waited
                self.assertAlmostEqual(logs["seconds_waited_per_step"], waited / _BATCHES)
                self.assertGreater(waited, 0)
                self.assertEqual(traffic.steps - before.steps, _BATCHES)
                sent = traffic.bytes_sent - before.bytes_sent
                received = traffic.bytes_received - before.bytes_received
                down = traffic.result_bytes_sent - before.result_bytes_sent
                values = traffic.values_sent - before.values_sent
                self.assertEqual(logs["bytes_sent_per_step"], sent / _BATCHES)
                self.assertEqual(logs["bytes_received_per_step"], received / _BATCHES)
                self.assertAlmostEqual(logs["bits_per_value_down"], 8 * down / (values / 2))
                self.assertAlmostEqual(logs["bits_per_value_up"], 8 * (sent - down) / (values / 2))
                # Above 1 where this worker keeps what is left of sums, with others' gradients.
                self.assertBetween(logs["compression_error"], 0.01, 2.0)
                self.assertGreater(logs["residual_ratio"], logs["compression_error"])

    def test_logs_are_of_the_time_since_the_last_one(self):
        compressor = tf_gc.ARTopK(ratio=0.01, start_step=_BATCHES)  # exact in the first epoch
        for result in shared_cluster(2).run(
            programs.fit, compressor, {}, epochs=2, batches=_BATCHES
        ):
            exact, compressed = result["epochs"]
            # In a tree of two workers all goes up from one, and down from the other.
            self.assertGreater(exact["bits_per_value_up"] + exact["bits_per_value_down"], 32)
            self.assertEqual((exact["residual_ratio"], exact["compression_error"]), (0, 0))
            self.assertLess(compressed["bits_per_value_up"], 8)
            self.assertGreater(compressed["compression_error"], 0.5)

    @some_of({}, _LEGACY_KERAS)
    def test_each_worker_writes_to_its_own_folder(self, **environment):
        for result in _fit(**environment):
            for name in _RATES | _NORMS:
                written = result["events"][f"traffic/{name}"]
                logged = {step: logs[name] for step, logs in enumerate(result["epochs"])}
                self.assertEqual(list(written), [0, 1, 2])
                np.testing.assert_allclose(list(written.values()), list(logged.values()), 1e-6)
            for name, variables in (
                ("bits_per_value", 6),
                ("residual_ratio", 2),
                ("compression_error", 2),
            ):
                tags = [tag for tag in result["events"] if tag.startswith(f"traffic/{name}/")]
                self.assertLen(tags, variables, tags)

    @some_of((_LEGACY_KERAS, 1), ({}, 2))
    def test_tensorboards_callback_writes_the_same_beside_it(self, environment, keeping):
        with tempfile.TemporaryDirectory() as directory:
            results = shared_cluster(2, **environment).run(
                *(programs.fit, tf_gc.ThreeLC(), {}, directory),
                epochs=2,
                batches=_BATCHES,
                tensorboard=True,
            )
        for worker, result in enumerate(results):
            self.assertEqual(list(result["events"]["traffic/bits_per_value_up"]), [0, 1])
            self.assertEqual(result["tensorboard"] is not None, worker < keeping)
            if worker < keeping:  # tf_keras removes the others'
                self.assertIn("epoch_loss", result["tensorboard"])
                for name in _RATES | _NORMS:
                    self.assertEqual(
                        result["tensorboard"][f"epoch_{name}"], result["events"][f"traffic/{name}"]
                    )

    @some_of({}, _LEGACY_KERAS)
    def test_logs_of_batches(self, **environment):
        with tempfile.TemporaryDirectory() as directory:
            results = shared_cluster(2, **environment).run(
                programs.fit,
                tf_gc.ThreeLC(),
                {"update_freq": 3, "by_variable": True},
                directory,
                epochs=2,
                batches=_BATCHES,
            )
        for result in results:
            logged = ["bits_per_value_up" in logs for logs in result["batches"]]
            self.assertEqual(logged, [False, False, True, False, False, True, False, False])
            self.assertEqual(list(result["events"]["traffic/compression_error"]), [3, 6])
            for logs in (result["batches"][2], *result["epochs"]):
                errors = [logs[key] for key in logs if key.startswith("compression_error/")]
                self.assertLen(errors, 2)
                self.assertBetween(logs["compression_error"], min(errors), max(errors))

    @some_of({}, _LEGACY_KERAS)
    def test_logs_of_batches_leave_those_of_keras_as_they_are(self, **environment):
        cluster = shared_cluster(2, **environment)
        plain = cluster.run(programs.losses, tf_gc.ThreeLC(), None)
        logged = cluster.run(programs.losses, tf_gc.ThreeLC(), {"update_freq": 3})
        np.testing.assert_allclose(logged, plain, rtol=1e-6)

    def test_values_of_a_variable_are_those_since_a_ratio_was_assigned(self):
        for values, by_variable in shared_cluster(2).run(programs.bits_while_a_ratio_changes):
            self.assertEqual(by_variable, [values])

    @some_of((2, [False, True, False]), (0, None), (1, [True, True, True]), count=2)
    def test_norms_are_taken_as_often_as_asked_for(self, often, changes):
        for result in shared_cluster(2).run(
            programs.fit, tf_gc.ThreeLC(), {"norm_freq": often}, epochs=4, batches=_BATCHES
        ):
            errors = [logs.get("compression_error") for logs in result["epochs"]]
            if changes is None:
                self.assertEqual(errors, [None] * 4)
            else:
                changed = [a != b for a, b in itertools.pairwise(errors)]
                self.assertEqual(changed, changes)

    @some_of({}, _LEGACY_KERAS)
    def test_a_model_that_was_trained_without_a_logger_is_traced_anew(self, **environment):
        for result in shared_cluster(2, **environment).run(
            programs.fit, tf_gc.ThreeLC(), {}, plain_fits=1, batches=_BATCHES
        ):
            [logs] = result["epochs"]
            self.assertGreater(logs["compression_error"], 0)
            before, after = result["traffic"]
            sent = after.bytes_sent - before.bytes_sent
            self.assertEqual(logs["bytes_sent_per_step"] * _BATCHES, sent)

    @some_of(
        {"steps_per_execution": 6},
        {"gradient_accumulation_steps": 2},
        {"steps_per_execution": 3},
        {"run_eagerly": True},
    )
    def test_other_ways_to_fit(self, **kwargs):
        for result in shared_cluster(2).run(
            programs.fit, tf_gc.ThreeLC(), {}, epochs=2, batches=6, **kwargs
        ):
            errors = [logs["compression_error"] for logs in result["epochs"]]
            self.assertGreater(min(errors), 0)
            self.assertNotEqual(*errors)

    def test_diloco_logs_outer_steps(self):
        diloco = tf_gc.DiLoCo(inner_steps=_BATCHES, compression=tf_gc.ThreeLC())
        for result in shared_cluster(2).run(programs.fit, diloco, {}, epochs=2, batches=_BATCHES):
            for logs, (before, after) in zip(
                result["epochs"], itertools.pairwise(result["traffic"]), strict=True
            ):
                self.assertEqual(logs["bytes_sent_per_step"], after.bytes_sent - before.bytes_sent)
                self.assertGreater(logs["compression_error"], 0)

    def test_the_logger_changes_no_weights(self):
        logged, plain = (
            shared_cluster(2).run(programs.fit, tf_gc.ThreeLC(), logger) for logger in ({}, None)
        )
        self.assertLen({result["weights"] for result in (*logged, *plain)}, 1)

    @parameterized.parameters((1, tf_gc.ThreeLC()), (2, None))
    def test_where_nothing_is_compressed_nothing_is_logged(self, workers, compression):
        for result in shared_cluster(workers).run(programs.fit, compression, {}):
            self.assertNoCommonElements(result["epochs"][0], _RATES | _NORMS)

    def test_a_model_of_another_strategy_is_an_error(self):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(loss="mse")
        with self.assertRaisesRegex(ValueError, "scope of a tf_gc strategy"):
            model.fit(np.ones([4, 2]), np.ones([4, 1]), callbacks=[tf_gc.keras.TrafficLogger()])

    @parameterized.parameters(
        ({"update_freq": 0}, "update_freq"),
        ({"update_freq": "batch"}, "update_freq"),
        ({"norm_freq": -1}, "norm_freq"),
    )
    def test_an_argument_out_of_range_is_an_error(self, arguments, name):
        with self.assertRaisesRegex(ValueError, name):
            tf_gc.keras.TrafficLogger(**arguments)


class ParameterServerTest(absltest.TestCase):
    """The chief logs what all workers exchange with the servers."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls._cluster = server_clusters.ServerCluster(2)
        cls.addClassCleanup(cls._cluster.close)

    def test_logs_and_events_are_those_of_all_workers(self):
        epochs, traffic, events = self._cluster.run(
            programs.fit_on_servers, compression=tf_gc.ThreeLC(), epochs=3, steps_per_epoch=10
        )
        before = tf_gc.ServerTraffic()
        for logs, now in zip(epochs, traffic, strict=True):
            updates = now.updates - before.updates
            pushed = now.bytes_pushed - before.bytes_pushed
            self.assertEqual(logs["bytes_sent_per_step"], pushed / updates)
            values = now.values_pushed - before.values_pushed
            self.assertAlmostEqual(logs["bits_per_value_up"], 8 * pushed / values)
            self.assertNoCommonElements(logs, _NORMS)
            before = now
        self.assertEqual(list(events["traffic/bits_per_value_down"]), [0, 1, 2])
        self.assertTrue([tag for tag in events if tag.startswith("traffic/bits_per_value/")])

    def test_logs_of_batches_are_an_error(self):
        with self.assertRaisesRegex(WorkerError, 'update_freq must be "epoch"'):
            self._cluster.run(programs.fit_on_servers, 5, compression=tf_gc.ThreeLC())


if __name__ == "__main__":
    absltest.main()
