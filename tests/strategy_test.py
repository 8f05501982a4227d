"""tf_gc.MultiWorkerMirroredStrategy on clusters of real processes."""

import tempfile
from typing import ClassVar

import keras
import numpy as np
import strategy_programs as programs
import tensorflow as tf
from absl.testing import absltest, parameterized

import tf_gc
from tests import rows_reference
from tests.cases import some_of, some_of_named
from tests.clusters import kill_in_a_step, one, shared_cluster
from tf_gc.testing.cluster import Cluster

_LEGACY_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
# Of three variables, the second of which has 1024 elements.
_ALL = tf_gc.Policy(tf_gc.ThreeLC(1.0))
_FEW = tf_gc.Policy(tf_gc.ThreeLC(1.0), min_elements=2000)


class ReductionTest(parameterized.TestCase):
    """reduce_gradients."""

    @parameterized.product(workers=[2, 3], reduce_op=["SUM", "MEAN"], multiplier=[1.0, 1.75])
    def test_what_was_put_in_is_delivered_or_in_the_residuals(self, workers, reduce_op, multiplier):
        steps = 4
        results = shared_cluster(workers).run(
            programs.reduce_steps, tf_gc.ThreeLC(multiplier), reduce_op, steps
        )
        delivered = one([d for d, _ in results])
        put_in = sum(programs.gaussian(s, worker=w) for s in range(steps) for w in range(workers))
        kept = sum(residual for _, residual in results)
        factor = workers if reduce_op == "MEAN" else 1
        np.testing.assert_allclose(delivered.sum(axis=0) * factor + kept, put_in, atol=1e-4)

    def test_a_compressor_in_the_place_of_the_cluster_says_where_it_goes(self):
        with self.assertRaisesRegex(ValueError, r"cluster_resolver.*compression=\.\.\."):
            tf_gc.MultiWorkerMirroredStrategy(tf_gc.ThreeLC())

    def test_a_delivered_value_is_zero_or_the_scale_of_its_shard(self):
        delivered, _ = shared_cluster(2).run(programs.reduce_steps, tf_gc.ThreeLC(), "SUM", 1)[0]
        for shard in np.split(np.abs(delivered[0].ravel()), 2):
            self.assertLen(set(shard) - {0.0}, 1)

    @parameterized.parameters("float16", "bfloat16")
    def test_short_floats_come_back_as_they_went(self, dtype):
        dtype = tf.as_dtype(dtype).as_numpy_dtype
        delivered = one(
            [
                d
                for d, _ in shared_cluster(2).run(
                    programs.reduce_steps, tf_gc.ThreeLC(), "SUM", 2, dtype
                )
            ]
        )
        self.assertEqual(delivered.dtype, dtype)
        self.assertGreater(np.abs(delivered.astype(np.float32)).max(), 0)

    @parameterized.parameters(("float32", 1e-5), ("float16", 2e-3), ("bfloat16", 2e-2))
    def test_uncompressed_gradients_are_summed_to_rounding(self, dtype, tolerance):
        dtype = tf.as_dtype(dtype).as_numpy_dtype
        delivered = one(
            [
                d
                for d, _ in shared_cluster(3).run(
                    programs.reduce_steps, tf_gc.Policy(), "SUM", 1, dtype
                )
            ]
        )
        parts = [programs.gaussian(0, worker=w).astype(dtype) for w in range(3)]
        expected = sum(part.astype(np.float64) for part in parts)
        np.testing.assert_allclose(
            delivered[0].astype(np.float64), expected, rtol=tolerance, atol=tolerance / 10
        )

    @parameterized.parameters(
        tf_gc.ThreeLC(1.0),
        tf_gc.TopK(1.0),
        tf_gc.compressors.QSGD(norm="max"),
        tf_gc.compressors.MSTopK(1.0),
    )
    def test_a_gradient_has_the_shape_of_its_variable(self, compression):
        total = one(shared_cluster(2).run(programs.reduce_unknown_shape, compression))
        np.testing.assert_allclose(total, 2.0, rtol=1e-5)

    def test_same_seed_gives_the_same_bits_again(self):
        run = [
            shared_cluster(3).run(programs.reduce_steps, tf_gc.ThreeLC(), "SUM", 3)
            for _ in range(2)
        ]
        np.testing.assert_equal(run[0], run[1])

    def test_one_worker_changes_nothing_and_sends_nothing(self):
        [(delivered, residual)] = shared_cluster(1).run(
            programs.reduce_steps, tf_gc.ThreeLC(), "SUM", 2
        )
        np.testing.assert_array_equal(delivered[1], programs.gaussian(1, worker=0))
        self.assertIsNone(residual)

    def test_the_policy_decides_and_everything_is_counted(self):
        policy = tf_gc.Policy(default=tf_gc.ThreeLC(), rules={"excluded": None})
        results = shared_cluster(2).run(programs.reduce_list, policy)
        values = one([v for v, _ in results])
        kernel, bias, small, excluded, empty, embedding, double = values
        for exact in (bias, small, excluded, double):
            np.testing.assert_array_equal(exact, np.full_like(exact, 3.0))
        self.assertEqual(empty.shape, (0, 7))
        np.testing.assert_array_equal(embedding[:2], np.ones([2, 5]))
        np.testing.assert_array_equal(kernel, np.full_like(kernel, 3.0))  # constants are exact
        for _, traffic in results:
            by_name = {v["name"]: v for v in traffic["variables"]}
            self.assertSetEqual(set(by_name), {"kernel", "bias", "small", "excluded", "empty"})
            self.assertStartsWith(by_name["kernel"]["compressor"], "ThreeLC")
            self.assertStartsWith(by_name["excluded"]["compressor"], "Uncompressed")
            self.assertEqual(by_name["excluded"]["bits_per_value"], 32)
            # Each worker sends half of a variable as its own, and half as a sum.
            self.assertEqual(by_name["kernel"]["values_sent"], 2000)
            self.assertLessEqual(by_name["kernel"]["bytes_sent"], 2000 / 5 + 8 + 2)
            payload = sum(v["bytes_sent"] for v in traffic["variables"])
            self.assertBetween(traffic["bytes_sent"] - payload, 1, 1024)
        self.assertEqual(results[0][1]["bytes_sent"], results[1][1]["bytes_received"])

    @parameterized.parameters(False, True)
    def test_indexed_slices_stay_sparse_unless_the_policy_says_dense(self, dense):
        is_sparse, reduced = one(shared_cluster(2).run(programs.reduce_indexed_slices, dense))
        self.assertEqual(is_sparse, not dense)
        expected = np.zeros([400, 5])
        expected[:2] = 1
        np.testing.assert_array_equal(reduced, expected)

    @parameterized.parameters(np.nan, np.inf, -np.inf)
    def test_a_bad_value_reaches_all_workers_and_no_residual(self, bad):
        for result in shared_cluster(3).run(programs.non_finite, tf_gc.ThreeLC(), bad, 1):
            self.assertDictEqual(
                result,
                {
                    "reduced_is_finite": False,
                    "other_is_finite": True,
                    "residual_is_unchanged": True,
                    "next_is_finite": True,
                },
            )

    def test_the_traffic_may_be_read_while_another_thread_traces(self):
        for readings, steps in shared_cluster(2).run(programs.read_traffic_while_tracing, 20):
            self.assertGreater(readings, 0)
            self.assertEqual(steps, 20)

    def test_workers_with_addresses_of_ipv6(self):
        with Cluster(2) as cluster:
            reduced = one(cluster.run(programs.reduce_on_ipv6))
        expected = programs.gaussian(0, worker=0) + programs.gaussian(0, worker=1)
        np.testing.assert_allclose(reduced, expected, rtol=1e-5)

    def test_without_compression_the_sum_is_tensorflows(self):
        reduced = one(shared_cluster(2).run(programs.stock_sum, 0))
        expected = programs.gaussian(0, worker=0) + programs.gaussian(0, worker=1)
        np.testing.assert_array_equal(reduced, expected)

    @parameterized.parameters(None, tf_gc.ThreeLC())
    def test_sums_of_an_optimizer_of_tf_1_are_exact_and_warned_of(self, compression):
        for value, warnings in shared_cluster(2).run(
            programs.update_by_an_optimizer_of_tf_1, compression
        ):
            np.testing.assert_array_equal(value, -6)
            self.assertLen(warnings, 1 if compression else 0)
            for text, times in warnings:
                self.assertIn("does not compress gradients that batch_reduce_to sums", text)
                self.assertEqual(times, 1)

    def test_it_works_in_a_loop_in_a_function(self):
        results = shared_cluster(3).run(programs.custom_loop, tf_gc.ThreeLC(), 100)
        loss, _ = one(results)
        unchanged, _ = one(shared_cluster(3).run(programs.custom_loop, tf_gc.ThreeLC(), 1))
        self.assertLess(loss, 0.5 * unchanged)

    @parameterized.parameters("call", "get_concrete_function")
    def test_a_function_that_was_traced_before_exchanges_gradients(self, how):
        results = shared_cluster(2).run(programs.run_what_was_called_before, tf_gc.Float16(), how)
        value, steps = one(results)
        total = sum(programs.gaussian(step, worker=w) for step in range(3) for w in range(2))
        np.testing.assert_allclose(value, -total, atol=0.01)
        self.assertEqual(steps, 3)


class CompanionsTest(parameterized.TestCase):
    """Small variables that are summed exactly travel with others, where others take them."""

    _SHAPES: ClassVar = {
        "first": (48, 64),
        "bias": (64,),
        "empty": (0,),
        "last": (64, 30),
        "scale": (),
    }
    _EXACT = ("scale", "empty", "bias")  # from the last on

    def _exchanges(self, compression, workers=2, **arguments):
        """Returns the exchanges in a step of the exact bucket, and of the others."""
        [counts, *others] = shared_cluster(workers).run(
            programs.exchanges_of_buckets, compression, self._SHAPES, **arguments
        )
        for of_worker in (counts, *others):
            self.assertTrue(of_worker[1])
            self.assertEqual(of_worker[2], counts[2])
        counts = counts[0]
        [exact] = [names for names in counts if "bias" in names]
        self.assertEqual(exact[:3], self._EXACT)
        self.assertEqual(counts[exact][1][:3], [1, 0, 64])
        for names, (_, values) in counts.items():
            if names != exact:
                sizes = [np.prod(self._SHAPES[name]) for name in names]
                np.testing.assert_allclose(values, sizes, atol=1)
        return counts[exact][0], [c for names, (c, _) in counts.items() if names != exact]

    @parameterized.parameters(
        (tf_gc.ThreeLC(), 1),
        (tf_gc.ThreeLC(sparsity_multiplier=1.0), 1),
        (tf_gc.THC(), 2),
        (tf_gc.Auto(systems=(None,)), 1, 1 / 3),  # the first step delivers residuals
        (tf_gc.Auto(systems=(tf_gc.ThreeLC(),)), 1),
        (tf_gc.Auto(systems=(tf_gc.THC(),)), 2),
    )
    def test_they_travel_with_a_compressed_bucket(self, compressor, exchanges, of_their_own=0):
        for reduce_op, dtype in ("SUM", "float32"), ("MEAN", "float16"):
            arguments = {"reduce_op": reduce_op, "dtypes": {"bias": dtype}}
            for workers in 2, 3:
                self.assertEqual(
                    self._exchanges(compressor, workers, **arguments), (of_their_own, [exchanges])
                )

    @parameterized.parameters(
        tf_gc.THC(topology="ring"),
        tf_gc.Marsit(),
        tf_gc.TopK(0.1),
        tf_gc.Auto(systems=(tf_gc.Marsit(),)),
        # The gradient of "last" is known first.
        tf_gc.Policy(tf_gc.Marsit(), rules={"last": tf_gc.ThreeLC()}),
    )
    def test_they_have_an_exchange_of_their_own_with_others(self, compression):
        exact, _ = self._exchanges(compression)
        self.assertEqual(exact, 1)

    @parameterized.parameters(
        (tf_gc.TopK(0.1), 1),
        (tf_gc.MSTopK(0.1), 1),
        (tf_gc.DGC(0.1), 1),
        (tf_gc.DGC(0.1, clip_norm=1.0), 2),
        (tf_gc.ARTopK(0.1), 2),  # indices, sums
        (tf_gc.ARTopK(0.1, "variance", "tree"), 3),  # norms before
        (tf_gc.ScaleCom(10), 2),
        (tf_gc.Auto(systems=(tf_gc.ScaleCom(10),)), 2),
        (tf_gc.RandomK(0.1), 1),
        (tf_gc.PowerSGD(1), 2),  # both factors
        (tf_gc.EFSignSGD(), 1),
        (tf_gc.OneBit(), 1),
        (tf_gc.QSGD(), 1),
        (tf_gc.SSDM(), 1),
        (tf_gc.StochasticTernary(), 1),
        (tf_gc.Marsit(), 1),
        (tf_gc.Marsit(0.01, full_precision_every=2), 1),
        (tf_gc.SignSGD(), 1),
        (tf_gc.CascadingSSDM(), 1),
        (tf_gc.Int8(), 2),  # scales before
    )
    def test_what_workers_agree_in_travels_with_other_messages(self, compression, exchanges):
        for workers in 2, 3:
            _, of_matrices = self._exchanges(compression, workers)
            self.assertEqual(of_matrices, [exchanges])


class TrafficTest(parameterized.TestCase):
    def test_steps_with_other_variables_count(self):
        self.assertEqual(one(shared_cluster(2).run(programs.traffic_of_two_lists, 6, 4)), [6, 4])

    def test_small_exact_sums_take_32_bits_up_and_down_in_the_mean_over_workers(self):
        seen = shared_cluster(3).run(programs.traffic_of_a_small_sum, 300, 20)
        values, up, down = zip(*seen, strict=True)
        self.assertEqual(set(values), {2 * 300 * 20 * 2 // 3})
        for bits in (up, down):
            self.assertBetween(np.mean(bits), 32, 34)


class SmallReductionsTest(parameterized.TestCase):
    """`reduce` of what is no gradient."""

    @parameterized.product(
        [
            {"reduce_op": "SUM", "dtype": "float32"},
            {"reduce_op": "MEAN", "dtype": "float32"},
            {"reduce_op": "SUM", "dtype": "int64"},
            {"reduce_op": "MEAN", "dtype": "bfloat16"},
        ],
        workers=[2, 3],
    )
    def test_scalars_are_reduced_in_one_all_gather(self, reduce_op, dtype, workers):
        results = shared_cluster(workers).run(
            programs.reduce_values, tf_gc.ThreeLC(), reduce_op, 4.0, dtype
        )
        total = 4.0 * (workers + 1) * workers / 2 / (workers if reduce_op == "MEAN" else 1)
        for reduced, collectives_of_tensorflow in results:
            self.assertEqual(reduced, [total, total, 2 * total, 2 * total])
            self.assertEmpty(collectives_of_tensorflow)

    @parameterized.named_parameters(
        ("vector", tf_gc.ThreeLC(), "SUM", np.full(2, 4.0), "float32"),
        ("mean_of_integers", tf_gc.ThreeLC(), "MEAN", 4.0, "int32"),
        ("uncompressed", None, "SUM", 4.0, "float32"),
    )
    def test_other_values_are_tensorflows(self, compression, reduce_op, value, dtype):
        results = shared_cluster(2).run(
            programs.reduce_values, compression, reduce_op, value, dtype
        )
        for reduced, collectives_of_tensorflow in results:
            np.testing.assert_array_equal(reduced[0], value * (3 if reduce_op == "SUM" else 1.5))
            self.assertNotEmpty(collectives_of_tensorflow)

    def test_ragged_values_are_reduced_along_an_axis(self):
        np.testing.assert_array_equal(one(shared_cluster(2).run(programs.reduce_ragged)), [8, 4])

    @parameterized.parameters((0, 1), (1024, 3))
    def test_packs_are_as_large_as_the_user_says(self, bytes_per_pack, packs):
        counts = shared_cluster(2).run(programs.packs_of_tensorflow, bytes_per_pack)
        self.assertEqual(one(counts), packs)

    @parameterized.product(
        compression=[None, tf_gc.ThreeLC()],
        sum_and_read=[(tf.VariableAggregation.SUM, 6.0), (tf.VariableAggregation.MEAN, 2.0)],
        size=[3, 1025],
    )
    def test_a_variable_that_is_reduced_when_read(self, compression, sum_and_read, size):
        aggregation, expected = sum_and_read
        results = shared_cluster(3).run(programs.read_on_demand, compression, aggregation, (size,))
        for values, collectives_of_tensorflow in results:
            for value, of_all in zip(values, [expected, expected, 6.0], strict=True):
                np.testing.assert_allclose(value, np.full(size, of_all))
            is_tensorflows = compression is None or size > 1024
            self.assertEqual(bool(collectives_of_tensorflow), is_tensorflows)


class EmbeddingsTest(parameterized.TestCase):
    """tf.IndexedSlices through tf_gc.EmbeddingRows."""

    @parameterized.parameters((2, "SUM"), (3, "MEAN"))
    def test_rows_are_summed_exactly_with_32_bits(self, workers, reduce_op):
        delivered, _ = self._reduce(workers, tf_gc.EmbeddingRows(bits=32), reduce_op=reduce_op)
        for step, tables in enumerate(delivered):
            self._check(tables, step, workers, reduce_op, tolerance=1e-6)

    @parameterized.parameters((2, 8, "float32"), (3, 4, "bfloat16"))
    def test_rows_in_few_bits_agree_and_are_counted(self, workers, bits, dtype):
        delivered, traffic = self._reduce(workers, tf_gc.EmbeddingRows(bits), dtype=dtype)
        for step, tables in enumerate(delivered):
            # The sum of scales of at most 6, over the levels; and the type's rounding.
            tolerance = workers * 6 / (2 ** (bits - 1) - 1) + (0.1 if dtype == "bfloat16" else 0)
            self._check(tables, step, workers, "SUM", tolerance)
        counts = {v["name"]: v for v in traffic["variables"]}
        rows = {
            name: sum(len(set(programs.embedding_rows(s, worker=0)[name][0])) for s in range(2))
            for name in programs.EMBEDDINGS
        }
        for name, shape in programs.EMBEDDINGS.items():
            values = 2 * (workers - 1) / workers * rows[name] * np.prod(shape[1:])
            self.assertAlmostEqual(counts[name]["values_sent"], values, delta=1)
            # Each worker sends its values to all others, with a scale and an index for each row.
            self.assertBetween(
                counts[name]["bits_per_value"], workers / 2 * bits, workers / 2 * (bits + 8)
            )

    def test_warm_up_is_exact(self):
        delivered, _ = self._reduce(2, tf_gc.EmbeddingRows(bits=2, start_step=1))
        self._check(delivered[0], 0, 2, "SUM", tolerance=1e-6)
        self.assertEqual(delivered[1][0][0], self._expected(1, 2, "SUM")["users"][0])
        with self.assertRaises(AssertionError):
            self._check(delivered[1], 1, 2, "SUM", tolerance=1e-6)

    def test_a_row_that_is_not_finite_on_a_worker_is_nan_on_all_and_no_other_row_is(self):
        delivered, _ = self._reduce(3, tf_gc.EmbeddingRows(), bad_worker=2)
        for step, [(indices, values), (_, others)] in enumerate(delivered):
            bad = programs.embedding_rows(step, worker=2)["users"][0][0]
            is_nan = np.isnan(values).any(axis=1)
            self.assertEqual([i for i, nan in zip(indices, is_nan, strict=True) if nan], [bad])
            self.assertTrue(np.isfinite(others).all())

    def _reduce(self, workers, compressor, reduce_op="SUM", **kwargs):
        """What all workers deliver, and the traffic of the first."""
        results = shared_cluster(workers).run(
            programs.reduce_embeddings, compressor, reduce_op, **kwargs
        )
        return one([delivered for delivered, _ in results]), results[0][1]

    def _expected(self, step, workers, reduce_op):
        """By table the ascending indices, and the sums of their rows."""
        all_rows = [programs.embedding_rows(step, worker) for worker in range(workers)]
        divisor = workers if reduce_op == "MEAN" else 1
        expected = {}
        for name in programs.EMBEDDINGS:
            indices = np.concatenate([rows[name][0] for rows in all_rows]).tolist()
            values = np.concatenate([rows[name][1] for rows in all_rows])
            unique, sums = rows_reference.sum_rows(indices, values)
            expected[name] = unique, sums / divisor
        return expected

    def _check(self, tables, step, workers, reduce_op, tolerance):
        expected = self._expected(step, workers, reduce_op)
        for (indices, values), (unique, sums) in zip(tables, expected.values(), strict=True):
            self.assertEqual(indices, unique)
            np.testing.assert_allclose(values, sums, rtol=0, atol=tolerance)


class KerasTest(parameterized.TestCase):
    """fit, evaluate and predict of Keras 3 and tf_keras."""

    @some_of(1, 2, 3, count=2)
    def test_fit_evaluate_and_predict_work(self, workers):
        results = shared_cluster(workers).run(programs.fit, tf_gc.ThreeLC(), 3, evaluate=True)
        result = one([{k: v for k, v in r.items() if k != "traffic"} for r in results])
        self.assertLess(result["loss"][-1], result["loss"][0])
        self.assertContainsSubset({"loss", "accuracy"}, result["evaluated"])
        # Keras gives each worker its part of the data, and all of them the whole result.
        self.assertEqual(result["predicted_shape"], (64, 3))
        self.assertEqual(result["residuals"], 2 if workers > 1 else 0)

    @some_of(3, 2)
    def test_weights_agree_bit_for_bit_after_fifty_steps(self, workers):
        results = shared_cluster(workers).run(programs.fit, tf_gc.ThreeLC(1.5), 5, 10)
        one([r["weights"] for r in results])
        for result in results:
            self.assertEqual(result["traffic"]["steps"], 50)

    @some_of_named(
        ("gradient_accumulation", {"gradient_accumulation_steps": 2}),
        ("run_eagerly", {"run_eagerly": True}),
        ("dict_data", {"structure": "dict"}),
        ("clipping_and_momentum", {"optimizer": "SGD", "momentum": 0.9, "clipnorm": 1.0}),
        ("steps_per_execution", {"steps_per_execution": 3}),
        ("moving_average", {"use_ema": True}),
        count=4,
    )
    def test_keras_feature(self, arguments):
        results = shared_cluster(2).run(programs.fit, tf_gc.ThreeLC(), 2, 6, **arguments)
        result = one([{k: v for k, v in r.items() if k != "traffic"} for r in results])
        self.assertLess(result["loss"][-1], result["loss"][0])
        self.assertEqual(result["residuals"], 2)

    @parameterized.parameters(False, True)
    def test_a_worker_without_samples_leaves_batch_normalization_as_it_is(self, synchronized):
        cluster = shared_cluster(2)
        full, last_of_one = (
            cluster.run(programs.fit_batch_normalization, samples, synchronized)
            for samples in (32, 33)
        )
        one([weights for _, _, weights in last_of_one])
        for statistics, weights_are_finite, _ in last_of_one:
            self.assertTrue(np.isfinite(statistics).all())
            self.assertTrue(weights_are_finite)
        if not synchronized:
            np.testing.assert_allclose(last_of_one[1][0], full[1][0], rtol=1e-6)

    def test_steps_per_execution_changes_no_bit(self):
        fingerprints = [
            one(
                [
                    r["weights"]
                    for r in shared_cluster(2).run(
                        programs.fit, tf_gc.ThreeLC(), 1, 6, steps_per_execution=n
                    )
                ]
            )
            for n in (1, 3)
        ]
        self.assertEqual(*fingerprints)

    def test_tf_keras_fit_gives_the_same_weights_as_keras_3(self):
        cluster = shared_cluster(2, **_LEGACY_KERAS)
        legacy = one([r["weights"] for r in cluster.run(programs.fit, tf_gc.ThreeLC(), 2)])
        new = one([r["weights"] for r in shared_cluster(2).run(programs.fit, tf_gc.ThreeLC(), 2)])
        self.assertEqual(legacy, new)

    def test_no_compression_gives_the_stock_strategys_weights(self):
        cluster = shared_cluster(2, **_LEGACY_KERAS)
        stock = one(cluster.run(programs.stock_fit, 2))
        ours = one([r["weights"] for r in cluster.run(programs.fit, None, 2)])
        self.assertEqual(ours, stock)

    @some_of(False, True)
    def test_a_step_that_tf_keras_skips_delivers_nothing(self, legacy_optimizer):
        for before, after in shared_cluster(2, **_LEGACY_KERAS).run(
            programs.overflow_of_another_variable, tf_gc.ARTopK(0.1), legacy_optimizer
        ):
            for value_before, value_after in zip(before, after, strict=True):
                np.testing.assert_array_equal(value_after, value_before)

    @some_of(False, True)
    def test_a_static_loss_scale_harms_no_other_variable(self, legacy_optimizer):
        for before, after in shared_cluster(2, **_LEGACY_KERAS).run(
            programs.overflow_of_another_variable,
            tf_gc.ARTopK(0.1),
            legacy_optimizer,
            dynamic=False,
            initial_scale=128.0,
        ):
            for value_before, value_after in zip(before, after, strict=True):
                self.assertTrue(np.isfinite(value_after).all())
                self.assertTrue((value_after != value_before).any())

    @some_of(False, True)
    def test_an_overflow_on_one_worker_skips_the_step_on_all(self, legacy_keras):
        cluster = shared_cluster(2, **(_LEGACY_KERAS if legacy_keras else {}))
        result = one(cluster.run(programs.fit_with_an_overflow, tf_gc.ThreeLC(), 1))
        self.assertTrue(result["finite"])
        self.assertGreater(result["compressed_steps"], 0)

    @some_of(False, True)
    def test_a_compiled_step_is_refused_in_words_that_help(self, legacy_keras):
        cluster = shared_cluster(2, **(_LEGACY_KERAS if legacy_keras else {}))
        for error in cluster.outcomes(programs.fit, tf_gc.ThreeLC(), jit_compile=True):
            self.assertIn("use model.compile(jit_compile=False)", str(error))

    @some_of(False, True)
    def test_a_loop_may_compile_the_forward_and_backward_pass(self, legacy_keras):
        cluster = shared_cluster(2, **(_LEGACY_KERAS if legacy_keras else {}))
        losses, _ = one(cluster.run(programs.loop_with_xla, tf_gc.ThreeLC(), 20))
        self.assertLess(losses[-1], 0.5 * losses[0])

    @some_of(False, True)
    def test_a_model_that_is_gone_leaves_nothing_but_its_traffic(self, legacy_keras):
        cluster = shared_cluster(2, **(_LEGACY_KERAS if legacy_keras else {}))
        seen, names, variables = one(cluster.run(programs.build_models_in_turn, 4))
        self.assertLen({buckets for buckets, _, _ in seen}, 1, seen)
        self.assertLen({slots for _, slots, _ in seen}, 1, seen)
        steps = [steps for _, _, steps in seen]
        self.assertEqual(steps, [steps[0] * i for i in range(1, 5)])
        self.assertLessEqual(variables, 2 * len(names))

    @parameterized.parameters("keras", "tf_keras")
    def test_steps_are_those_of_the_optimizer_with_or_without_its_first_variable(self, package):
        cluster = shared_cluster(2)
        counted = cluster.run(
            programs.steps_without_the_first_variable, package, tf_gc.ThreeLC(), 3
        )
        self.assertEqual(one(counted), [4])

    @parameterized.parameters(None, 0)
    def test_steps_go_on_where_the_first_variable_is_gone_on_some_workers(self, kept_by):
        with Cluster(2) as cluster:
            counted = cluster.run(programs.steps_after_the_first_variable_is_gone, kept_by)
        self.assertEqual(one(counted), {"ONLY_FIRST_REPLICA/second:steps": 4})

    def test_variables_without_names_have_random_numbers_of_their_own(self):
        first, second = shared_cluster(2).run(programs.reduce_unnamed_variables_alike)[0]
        self.assertFalse(np.array_equal(first, second))

    def test_slots_may_go_while_a_thread_looks_at_them(self):
        left = shared_cluster(2).run(programs.restorations_while_variables_go, 200)
        self.assertEqual(one(left), 0)

    def test_a_checkpoint_has_the_slots_of_living_models_whenever_workers_let_go_of_others(self):
        directory = self.create_tempdir().full_path
        with Cluster(2) as cluster:
            names = one(cluster.run(programs.save_while_one_worker_has_an_old_model, directory))
        self.assertLen([name for name in names if "steps" in name], 1, names)

    def test_a_checkpoint_right_after_another_has_no_slots_of_a_model_that_is_gone(self):
        directory = self.create_tempdir().full_path
        [(first, second)] = shared_cluster(1).run(programs.save_again_without_a_model, directory)
        self.assertNotEmpty(first)
        self.assertEmpty(second)

    def test_two_models_of_one_shape_keep_separate_residuals(self):
        result = one(shared_cluster(2).run(programs.two_models_of_one_shape))
        self.assertEqual(result["count"], 4)
        self.assertTrue(result["differ"])
        self.assertTrue(result["nonzero"])
        self.assertEqual(result["steps"], 6)  # three of each

    def test_residuals_outlive_a_second_fit_and_a_new_trace(self):
        result = one(shared_cluster(2).run(programs.fit_twice))
        self.assertDictEqual(result, {"same": True, "count": 2, "was_nonzero": True, "steps": 8})


class CheckpointTest(parameterized.TestCase):
    @parameterized.parameters(2, 3)
    def test_residuals_survive_a_change_of_the_number_of_workers(self, restored_by):
        with tempfile.TemporaryDirectory() as directory:
            saved = shared_cluster(2).run(programs.checkpoint, directory, 3)
            restored = shared_cluster(restored_by).run(programs.restore, directory, 0)
        self.assertGreater(np.abs(sum(saved)).max(), 0)
        np.testing.assert_allclose(sum(restored), sum(saved), atol=1e-5)

    @parameterized.product(restored_by=[1, 2, 3], reduce_op=["SUM", "MEAN"])
    def test_what_waits_is_delivered_by_another_number_of_workers(self, restored_by, reduce_op):
        combine = {"SUM": np.sum, "MEAN": np.mean}[reduce_op]
        with tempfile.TemporaryDirectory() as directory:
            saved = shared_cluster(2).run(programs.checkpoint, directory, 3, reduce_op)
            results = shared_cluster(restored_by).run(
                programs.restore_and_reduce, directory, 0, reduce_op
            )
        delivered, residuals = zip(*results, strict=True)
        self.assertGreater(np.abs(delivered[0]).max(), 0)
        np.testing.assert_allclose(
            delivered[0] + combine(residuals, axis=0), combine(saved, axis=0), atol=1e-5
        )

    def test_one_worker_finds_what_waits_by_the_same_names(self):
        with tempfile.TemporaryDirectory() as directory:
            saved = shared_cluster(2).run(programs.restore_unlike_names, directory)
            [delivered] = shared_cluster(1).run(programs.restore_unlike_names, directory)
        for of_workers, total in zip(zip(*saved, strict=True), delivered, strict=True):
            np.testing.assert_allclose(total, sum(of_workers), atol=1e-5)

    @parameterized.parameters(1, 2)
    def test_what_waits_for_a_slot_is_saved_again(self, restored_by):
        with tempfile.TemporaryDirectory() as directory:
            shared_cluster(2).run(programs.checkpoint, directory, 3)
            for before, after in shared_cluster(restored_by).run(programs.save_again, directory, 0):
                graph = "_CHECKPOINTABLE_OBJECT_GRAPH"
                self.assertGreater(len(before), 2)
                self.assertCountEqual(before, after)
                for name in before.keys() - {graph}:
                    np.testing.assert_array_equal(before[name], after[name])

    def test_the_last_of_two_checkpoints_counts(self):
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as later:
            shared_cluster(2).run(programs.checkpoint, first, 3)
            saved = shared_cluster(2).run(programs.checkpoint, later, 5)
            restored = shared_cluster(2).run(programs.restore_twice, first, later)
        np.testing.assert_allclose(sum(restored), sum(saved), atol=1e-5)

    def test_what_has_come_after_a_checkpoint_is_forgotten_with_it(self):
        with tempfile.TemporaryDirectory() as directory:
            results = shared_cluster(2).run(programs.go_back, directory)
        for (first, *others), warnings in results:
            for again in others:
                np.testing.assert_array_equal(again, first)
            for warning in warnings:
                self.assertIn("no residuals for any variable, which begin at 0", warning)
            self.assertLen(warnings, 2)

    @parameterized.parameters(None, tf_gc.ThreeLC())
    def test_a_program_without_compression_leaves_residuals_out(self, compression):
        with tempfile.TemporaryDirectory() as directory:
            shared_cluster(2).run(programs.checkpoint, directory, 3)
            saved = shared_cluster(2).run(programs.save_unused, directory, compression)
        for names in saved:
            self.assertEqual(any("variable" in name for name in names), compression is not None)

    @parameterized.parameters(False, True)
    def test_one_worker_alone_delivers_what_more_of_them_have_left(self, are_rows):
        with tempfile.TemporaryDirectory() as directory:
            saved = shared_cluster(2).run(programs.checkpoint, directory, 3)
            values = [np.float32(value) for value in (np.inf, 0, 0)]
            [(sums, residual, warnings)] = shared_cluster(1).run(
                programs.restore_alone, directory, 0, values, are_rows
            )
        # Who scales losses leaves out the first step.
        np.testing.assert_array_equal(sums[0], np.inf)
        np.testing.assert_allclose(sums[1], sum(saved), atol=1e-5)
        np.testing.assert_array_equal(sums[2], 0)
        np.testing.assert_array_equal(residual, 0)
        self.assertEmpty(warnings)

    def test_equal_names_are_numbered_in_the_optimizers_order(self):
        big_last = tf_gc.Policy(tf_gc.ThreeLC(1.0), rules={"^variable$": tf_gc.ThreeLC(1.0)})
        expected = {"variable": (64, 64), "variable_1": (32, 32), "variable_2": (48, 48)}
        for policy in tf_gc.ThreeLC(1.0), tf_gc.ThreeLC(), tf_gc.TopK(0.1), big_last:
            for names, _ in shared_cluster(2).run(programs.residuals_of_equal_names, policy):
                self.assertEqual(names, expected)

    @parameterized.parameters(
        ([[2], [0, 1, 2], [1, 2]], 1),
        ([[0], [1, 2], [2]], 0),  # the optimizer's order
    )
    def test_equal_names_whose_numbers_a_restart_may_change_are_told_once(self, lists, count):
        for warnings in shared_cluster(2).run(programs.warnings_of_equal_names, lists):
            self.assertLen(warnings, count)
            for warning in warnings:
                self.assertIn("several variables are called w:", warning)

    @parameterized.named_parameters(
        ("variable", _FEW, _ALL, "no residuals for variable_1, which begin at 0$"),
        ("residual", _ALL, _FEW, "residuals that no variable has taken so far: variable_1$"),
        ("all", _FEW, tf_gc.Policy(), "no variable has taken so far: variable, variable_2$"),
        ("none", _FEW, _FEW, None),
    )
    def test_variables_and_residuals_without_each_other_are_named(self, saved, restored, message):
        with tempfile.TemporaryDirectory() as directory:
            for policy, expected in (saved, None), (restored, message):
                results = shared_cluster(2).run(
                    programs.residuals_of_equal_names, policy, directory
                )
                for _, warnings in results:
                    self.assertLen(warnings, int(expected is not None))
                    if expected:
                        self.assertRegex(warnings[0], expected)


class FailureTest(parameterized.TestCase):
    """Each on a cluster of its own, as a failed collective runtime stays failed."""

    @parameterized.parameters(0, 1)
    def test_the_death_of_a_worker_is_unavailable_on_all_others(self, victim):
        with Cluster(3) as cluster:
            cluster.run(programs.reduce_steps, tf_gc.ThreeLC(), "SUM", 1)
            errors = kill_in_a_step(cluster, victim, programs.reduce_for_ever)
        self.assertEqual(errors, ["UnavailableError"] * 2)

    @parameterized.parameters((3, 1800), (None, 3))
    def test_a_worker_that_never_starts_is_deadline_exceeded(self, timeout_seconds, default):
        with Cluster(2, absent=[1]) as cluster:
            [error] = cluster.outcomes(programs.start, timeout_seconds, default)
        self.assertIsInstance(error, tf.errors.DeadlineExceededError)
        self.assertIn("worker 1", error.message)

    @parameterized.parameters(
        (
            tf_gc.Policy(
                default=tf_gc.ThreeLC(1.0), rules={"second": tf_gc.ARTopK(0.1)}, min_elements=0
            ),
            (64, 64),
        ),
        (tf_gc.DiLoCo(start_step=10), (2048, 2304)),  # a bucket each
    )
    def test_a_step_that_is_repeated_on_one_worker_is_an_error_on_all(self, compression, shape):
        with Cluster(2) as cluster:
            errors = cluster.outcomes(programs.repeat_half_a_step, compression, shape)
        for error in errors:
            self.assertIsInstance(error, tf.errors.OpError)
        self.assertRegex("".join(map(str, errors)), "the optimizer's step is [01], here it is [01]")

    def test_a_worker_that_does_not_come_is_deadline_exceeded(self):
        with Cluster(2) as cluster:
            errors = cluster.outcomes(programs.come_late, 20, 1)
        self.assertIsInstance(errors[0], tf.errors.DeadlineExceededError)
        self.assertIn("task:1", errors[0].message)
        self.assertIsNone(errors[1])

    def test_a_slot_that_is_not_there_is_named(self):
        [error] = shared_cluster(1).outcomes(programs.ask_for_a_slot, "momentum")
        self.assertIsInstance(error, ValueError)
        self.assertIn("v has no slot 'momentum'; it has: none. A compressor's", str(error))

    def test_a_variable_has_one_gradient(self):
        for compression in tf_gc.ThreeLC(), tf_gc.TopK(0.1):
            with Cluster(2) as cluster:
                for error in cluster.outcomes(programs.reduce_twice, compression):
                    self.assertIsInstance(error, ValueError)
                    self.assertIn("variable has more than one gradient", str(error))

    @parameterized.parameters(
        ({"multiplier": 2.0}, r"\bmultiplier must be above 0 and less than 2, got"),
        (
            {"multiplier": 64.0, "scale": "unit"},
            r"\bmultiplier must be above 0 and less than 64, got",
        ),
        ({"residual_shape": (5, 7)}, r"residuals\[0\] must be a float32 variable of shape"),
        ({"bucket_rank": 1}, "bucket must be a scalar resource handle"),
        (
            {"units": [1.0] * 111},
            r"units\[0\] must have the shape \[112\], for rows = 48 and 64 col",
        ),
        ({"units": [1.0] * 112, "rows": (47,)}, r"rows\[0\] must divide the 3072 values .*got 47"),
        (
            {"units": [1.0] * 112, "statistics": [1.0] * 111},
            r"statistics\[0\] must have the shape \[112\], as units\[0\] has",
        ),
        ({"units": [1.0] * 112, "rows": (48, 48)}, "rows must have one number for each"),
        (
            {"variables": 2, "rows": (48, 48)},
            r"residuals\[1\] must be another variable than residuals\[0\]",
        ),
    )
    def test_a_bad_input_of_the_op_is_refused_by_name(self, arguments, message):
        with Cluster(2) as cluster:
            for error in cluster.outcomes(programs.bad_inputs, **arguments):
                self.assertIsInstance(error, tf.errors.InvalidArgumentError)
                self.assertRegex(error.message, message)

    @parameterized.parameters(
        (
            {"units": [1.0] * 112, "unit_rows": (47,)},
            r"unit_rows\[0\] must divide the 3072 values .*got 47",
        ),
        (
            {"units": [1.0] * 111},
            r"units\[0\] must have the shape \[112\], for unit_rows = 48 and 64 col",
        ),
        ({"unit_rows": (48, 48)}, "unit_rows must have one number for each"),
        (
            {"variables": 2, "unit_rows": (48, 48)},
            r"residuals\[1\] must be another variable than residuals\[0\]",
        ),
    )
    def test_a_bad_input_of_thcs_op_is_refused_by_name(self, arguments, message):
        with Cluster(2) as cluster:
            for error in cluster.outcomes(programs.bad_inputs_of_thc, **arguments):
                self.assertIsInstance(error, tf.errors.InvalidArgumentError)
                self.assertRegex(error.message, message)

    @parameterized.named_parameters(
        (
            "hyperparameter",
            {"compressions": (tf_gc.ThreeLC(1.0), tf_gc.ThreeLC(1.75))},
            ("the compressor of bucket 0", "sparsity_multiplier=1.0", "sparsity_multiplier=1.75"),
        ),
        (
            "bits",
            {"compressions": (tf_gc.THC(bits=2), tf_gc.THC(bits=4))},
            ("the compressor of bucket 0", "bits=2", "bits=4"),
        ),
        (
            "schedule",
            {
                "compressions": tuple(
                    tf_gc.Marsit(keras.optimizers.schedules.ExponentialDecay(rate, 1000, 0.9))
                    for rate in (0.25, 0.5)
                )
            },
            ("the compressor of bucket 0", "learning_rate': 0.25", "learning_rate': 0.5"),
        ),
        (
            "system",
            {"compressions": (tf_gc.ThreeLC(1.0), tf_gc.Policy())},
            ("the compressor of bucket 0", "ThreeLC(", "Uncompressed("),
        ),
        (
            "none",
            {"compressions": (tf_gc.ThreeLC(1.0), None)},
            ("the compression", "None", "of gradients"),
        ),
        (
            "diloco",
            {"compressions": (tf_gc.DiLoCo(4), tf_gc.ThreeLC())},
            ("the compression", "DiLoCo", "of gradients"),
        ),
        (
            "inner_steps",
            {"compressions": (tf_gc.DiLoCo(4), tf_gc.DiLoCo(5))},
            ("the inner_steps of DiLoCo", "4", "5"),
        ),
        (
            "start_step",
            {"compressions": (tf_gc.DiLoCo(4, start_step=1), tf_gc.DiLoCo(4, start_step=2))},
            ("the start_step of DiLoCo", "1", "2"),
        ),
        (
            "name",
            {"names": ("left", "right")},
            ("the variables of bucket 0", "left float32(48, 64)", "right float32(48, 64)"),
        ),
        (
            "dtype",
            {"dtypes": ("float32", "float16")},
            ("the variables of bucket 0", "v float32(48, 64)", "v float16(48, 64)"),
        ),
        ("reduce_op", {"ops": ("SUM", "MEAN")}, ("the reduce_op", "SUM", "MEAN")),
        ("version", {"versions": ("0.1", "0.2")}, ("the version of tf_gc", "0.1", "0.2")),
        (
            "tensorflow",
            {"tensorflow": ("2.21.0", "2.21.1")},
            ("the version of TensorFlow", "2.21.0", "2.21.1"),
        ),
        (
            "buckets",
            {"compressions": (tf_gc.ThreeLC(1.0), tf_gc.ThreeLC())},
            ("the number of buckets", "is 2 on worker 1", "1 on worker 0"),
        ),
    )
    def test_workers_that_do_not_reduce_the_same_are_told_the_difference(self, arguments, words):
        arguments = {"compressions": (tf_gc.ThreeLC(1.0),) * 2, **arguments}
        errors = shared_cluster(2).outcomes(programs.different_programs, **arguments)
        for rank, error in enumerate(errors):
            self.assertIsInstance(error, ValueError)
            field, *values = words
            self.assertIn(field, str(error))
            self.assertIn(f"on worker {1 - rank}", str(error))
            if field != "the number of buckets" or rank == 0:
                for value in values:
                    self.assertIn(value, str(error))

    @parameterized.parameters("constant", "default", "nonlocal", "beside no value")
    def test_workers_whose_functions_have_other_numbers_are_told_so(self, kind):
        for error in shared_cluster(2).outcomes(programs.different_functions, kind):
            self.assertIsInstance(error, ValueError)
            for word in ("the compressor of bucket 0", "0.25", "0.5"):
                self.assertIn(word, str(error))

    def test_workers_whose_functions_are_the_same_agree(self):
        shared_cluster(2).run(programs.equal_functions)

    def test_a_schedule_of_keras_may_have_no_config(self):
        shared_cluster(2).run(programs.reduce_with_a_schedule_without_config)


if __name__ == "__main__":
    absltest.main()
