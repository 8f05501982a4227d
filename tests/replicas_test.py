"""Several replicas in each worker, as with several GPUs, on real processes."""

import numpy as np
from absl.testing import absltest, parameterized

import tf_gc
from tests import replica_programs as programs
from tests import strategy_programs
from tests.cases import some_of, some_of_named
from tests.clusters import one, shared_cluster
from tests.replica_programs import REPLICAS, replica_gradient

_CLUSTERS = (1, 2, 3)
_STEPS = 5
# Workers, and whether tf_keras is used.
_SOME_OF_KERAS = some_of((2, True), (3, False), (1, False), (1, True), (2, False), (3, True))


def _cluster(workers, **environment):
    return shared_cluster(workers, **programs.ENVIRONMENT, **environment)


class ReductionTest(parameterized.TestCase):
    @parameterized.product(
        workers=(2, 3),
        reduce_op=("SUM", "MEAN"),
        compressor=(tf_gc.ThreeLC(1.0), tf_gc.THC(), tf_gc.ARTopK(0.1)),
    )
    def test_replicas_agree_and_nothing_is_lost(self, workers, reduce_op, compressor):
        results = _cluster(workers).run(programs.reduce_steps, compressor, reduce_op, _STEPS)
        delivered = one([values for values, _ in results])
        self.assertEqual(delivered.shape[:2], (_STEPS, REPLICAS))
        np.testing.assert_array_equal(delivered[:, 0], delivered[:, 1])
        put_in = sum(
            replica_gradient(step, worker, replica)
            for step in range(_STEPS)
            for worker in range(workers)
            for replica in range(REPLICAS)
        )
        factor = 1 if reduce_op == "SUM" else workers * REPLICAS
        left = sum(residual for _, residual in results)
        left = left if reduce_op == "SUM" else left * REPLICAS
        np.testing.assert_allclose(factor * delivered[:, 0].sum(0) + left, put_in, atol=2e-4)

    def test_means_of_what_no_sum_can_be(self):
        for mean in _cluster(2).run(programs.reduce_value, 4e4, "MEAN", "float16"):
            self.assertAlmostEqual(mean / 4e4, 1, delta=0.001)

    @parameterized.parameters(("SUM", 4), ("MEAN", 1))
    def test_a_tensor_that_replicas_share_counts_for_each(self, reduce_op, count):
        results = _cluster(2).run(programs.reduce_value, 1.0, reduce_op, is_shared=True)
        self.assertEqual(results, [count, count])

    @parameterized.parameters(("SUM", 1), ("MEAN", 4))
    def test_rows_of_all_replicas_are_added_up(self, reduce_op, divisor):
        for copies in _cluster(2).run(programs.reduce_rows, reduce_op):
            for indices, values in copies:
                self.assertEqual(indices.tolist(), [0, 1, 2, 3, 7])
                self.assertEqual((divisor * values[:, 0]).tolist(), [1, 2, 3, 4, 10])


class CheckpointTest(parameterized.TestCase):
    @parameterized.parameters(2, 3)
    def test_residuals_survive_a_change_of_the_number_of_workers(self, saved_by):
        directory = self.create_tempdir().full_path
        program = strategy_programs.checkpoint
        saved = _cluster(saved_by).run(programs.run, program, directory, _STEPS)
        for workers in 2, 3:
            restored = _cluster(workers).run(programs.run, strategy_programs.restore, directory, 0)
            np.testing.assert_allclose(sum(restored), sum(saved), atol=1e-5)


class KerasTest(parameterized.TestCase):
    @_SOME_OF_KERAS
    def test_fit_evaluate_and_predict_agree_on_all_replicas(self, workers, legacy_keras):
        environment = {"TF_USE_LEGACY_KERAS": "1"} if legacy_keras else {}
        results = _cluster(workers, **environment).run(
            programs.fit, tf_gc.ThreeLC(), epochs=4, evaluate=True
        )
        replicas = {replica for result in results for replica in result["replicas"]}
        self.assertLen(replicas, 1)
        self.assertLen({str(result["evaluated"]) for result in results}, 1)
        self.assertLess(results[0]["loss"][-1], results[0]["loss"][0])

    @some_of_named(
        ("clipping_and_momentum", {"optimizer": "SGD", "momentum": 0.9, "clipnorm": 1.0}),
        ("diloco", {"compression": tf_gc.DiLoCo(2, compression=tf_gc.ThreeLC())}),
        ("steps_per_execution", {"steps_per_execution": 3}),
        ("run_eagerly", {"run_eagerly": True}),
        ("marsit", {"compression": tf_gc.Marsit()}),
        count=2,
    )
    def test_keras_feature(self, arguments):
        arguments = {"compression": tf_gc.ThreeLC(), **arguments}
        results = _cluster(2).run(programs.fit, epochs=3, batches=6, **arguments)
        replicas = {replica for result in results for replica in result["replicas"]}
        self.assertLen(replicas, 1)
        self.assertLess(results[0]["loss"][-1], results[0]["loss"][0])

    @_SOME_OF_KERAS
    def test_an_overflow_on_one_worker_skips_the_step_on_all(self, workers, legacy_keras):
        environment = {"TF_USE_LEGACY_KERAS": "1"} if legacy_keras else {}
        program = strategy_programs.fit_with_an_overflow
        cluster = _cluster(workers, **environment)
        result = one(cluster.run(programs.run, program, tf_gc.ThreeLC(), workers - 1))
        self.assertTrue(result["finite"])
        self.assertEqual(result["compressed_steps"] > 0, workers > 1)

    @parameterized.parameters(*_CLUSTERS)
    def test_it_works_in_a_loop_in_a_function(self, workers):
        program = strategy_programs.custom_loop
        (first, *_), (last, *replicas) = (
            one(_cluster(workers).run(programs.run, program, tf_gc.ThreeLC(), steps))
            for steps in (1, 20)
        )
        self.assertLen(replicas, REPLICAS)
        self.assertLen(set(replicas), 1)
        self.assertLess(last, 0.5 * first)


if __name__ == "__main__":
    absltest.main()
