"""Policies, fusion, traffic, and the checks of hyper-parameters."""

import dataclasses
import re

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import given
from hypothesis import strategies as st

import tf_gc
from tf_gc.compressors import Uncompressed
from tf_gc.fusion import Gradient, plan_buckets
from tf_gc.policy import as_policy

_MATRIX = tf.TensorShape([64, 64])


class ThreeLCTest(parameterized.TestCase):
    @parameterized.parameters(0.0, 2.0, -1.0, float("nan"), float("inf"))
    def test_a_multiplier_out_of_range_is_refused_by_name_and_value(self, value):
        with self.assertRaisesRegex(ValueError, rf"sparsity_multiplier.*\(0, 2\).*{value!r}"):
            tf_gc.ThreeLC(value)

    def test_units_that_are_none_are_refused_by_name_and_value(self):
        with self.assertRaisesRegex(ValueError, "units must be 'gradient' or .*got 'rows'"):
            tf_gc.ThreeLC(units="rows")

    def test_it_is_frozen(self):
        with self.assertRaises(dataclasses.FrozenInstanceError):
            tf_gc.ThreeLC().sparsity_multiplier = 1.5

    def test_is_printed_with_what_was_given(self):
        for compressor, expected in (
            (tf_gc.ThreeLC(), "ThreeLC()"),
            (tf_gc.ThreeLC(1.75), "ThreeLC(sparsity_multiplier=1.75)"),
            (tf_gc.ThreeLC(units="gradient"), "ThreeLC(units='gradient')"),
            (
                tf_gc.ThreeLC(1.5, "second_moment"),
                "ThreeLC(sparsity_multiplier=1.5, units='second_moment')",
            ),
            (tf_gc.ThreeLC(unit_multiplier=8.0), "ThreeLC(unit_multiplier=8.0)"),
            (tf_gc.Auto(systems=(), ratios=(0.1,)), "Auto(systems=(), ratios=(0.1,))"),
        ):
            self.assertEqual(str(compressor), expected)
            self.assertEqual(tf_gc.compressors.from_string(expected), compressor)


class ChoiceTest(parameterized.TestCase):
    @parameterized.parameters(
        (tf_gc.THC, "bits", 4.0),
        (tf_gc.UniformTHC, "bits", np.float32(4)),
        (tf_gc.EmbeddingRows, "bits", 8.0),
        (tf_gc.ScaleCom, "strided", 1.0),
    )
    def test_a_float_is_no_choice_even_if_it_equals_one(self, compressor, name, value):
        with self.assertRaisesRegex(ValueError, rf"^{name} must be .*{re.escape(repr(value))}$"):
            compressor(**{name: value})

    def test_numpys_integers_are_integers(self):
        self.assertEqual(tf_gc.THC(bits=np.int64(3)), tf_gc.THC(bits=3))


class ServerCodecsTest(absltest.TestCase):
    def test_a_compressor_without_them_names_those_that_servers_know(self):
        message = (
            "TopK cannot be used with parameter servers; "
            "use BFloat16, Float16, Int8, THC, ThreeLC, Uncompressed, UniformTHC or None"
        )
        with self.assertRaisesRegex(ValueError, f"^{message}$"):
            tf_gc.TopK().server_codecs(pushes=1)

    def test_units_that_servers_do_not_know_are_refused(self):
        with self.assertRaisesRegex(ValueError, "use units='gradient'$"):
            tf_gc.THC(units="second_moment").server_codecs(pushes=1)

    def test_thc_rounds_at_random_unless_it_is_told_otherwise(self):
        for compressor, rounding in (
            (tf_gc.THC(), "stochastic"),
            (tf_gc.THC(rounding="nearest"), "nearest"),
        ):
            self.assertIn(f" rounding={rounding} ", compressor.server_codecs(pushes=1).push)


class PolicyTest(parameterized.TestCase):
    def test_small_variables_and_vectors_are_left_alone_by_default(self):
        policy = tf_gc.Policy(default=tf_gc.ThreeLC())
        self.assertIsNone(policy.compressor_for("bias", tf.TensorShape([100_000])))
        self.assertIsNone(policy.compressor_for("kernel", tf.TensorShape([31, 33])))
        self.assertEqual(policy.compressor_for("kernel", tf.TensorShape([32, 32])), tf_gc.ThreeLC())

    def test_embeddings_have_a_compressor_of_their_own(self):
        rows = tf_gc.EmbeddingRows(bits=4)
        self.assertEqual(as_policy(rows), tf_gc.Policy(embeddings=rows))
        for message, arguments in [
            (r"must be a tf_gc.EmbeddingRows, .*ThreeLC", {"embeddings": tf_gc.ThreeLC()}),
            ("exclude each other", {"embeddings": rows, "sparse_as_dense": True}),
            (r"default is for dense gradients: .*Policy\(embeddings=", {"default": rows}),
            (r"rules\['table'\] is for dense", {"rules": {"table": rows}}),
        ]:
            with self.assertRaisesRegex(ValueError, message):
                tf_gc.Policy(**arguments)
        with self.assertRaisesRegex(ValueError, "bits must be 2, .*got 6"):
            tf_gc.EmbeddingRows(bits=6)

    def test_vectors_are_compressed_when_asked_for(self):
        policy = tf_gc.Policy(default=tf_gc.ThreeLC(), compress_vectors=True)
        self.assertEqual(policy.compressor_for("bias", tf.TensorShape([2048])), tf_gc.ThreeLC())

    def test_the_first_matching_rule_decides_alone(self):
        policy = tf_gc.Policy(
            default=tf_gc.ThreeLC(),
            rules={"head/": None, "kernel": tf_gc.ThreeLC(1.75), "bias": tf_gc.ThreeLC(1.5)},
        )
        self.assertIsNone(policy.compressor_for("head/kernel", _MATRIX))
        self.assertEqual(policy.compressor_for("body/kernel", _MATRIX), tf_gc.ThreeLC(1.75))
        self.assertEqual(policy.compressor_for("bias", tf.TensorShape([3])), tf_gc.ThreeLC(1.5))

    @parameterized.parameters(
        ({"min_elements": -1}, "min_elements must be 0 or more, got -1"),
        ({"min_elements": float("nan")}, "min_elements must be 0 or more, got nan"),
        ({"min_elements": "1024"}, "min_elements must be 0 or more, got '1024'"),
        ({"compress_vectors": "no"}, "compress_vectors must be True or False, got 'no'"),
        ({"sparse_as_dense": 1}, "sparse_as_dense must be True or False, got 1"),
        ({"rules": [("a", None)]}, "rules must be a dict"),
        ({"rules": {1: None}}, "rules: 1 is no regular expression"),
        ({"default": "3lc"}, "default"),
        ({"rules": {"(": None}}, "regular expression"),
        ({"rules": {"a": 3}}, r"rules\['a'\]"),
    )
    def test_bad_attributes_are_refused_by_name(self, attributes, message):
        with self.assertRaisesRegex(ValueError, message):
            tf_gc.Policy(**attributes)

    def test_a_strategy_takes_a_compressor_a_policy_or_none(self):
        policy = tf_gc.Policy()
        self.assertIs(as_policy(policy), policy)
        self.assertIsNone(as_policy(None))
        self.assertEqual(as_policy(tf_gc.ThreeLC()), tf_gc.Policy(default=tf_gc.ThreeLC()))
        with self.assertRaisesRegex(ValueError, "compression"):
            as_policy("3lc")


class FromStringTest(parameterized.TestCase):
    @parameterized.parameters(
        ("none", None),
        ("ThreeLC", tf_gc.ThreeLC()),
        ("THC(3, granularity=20)", tf_gc.THC(3, granularity=20)),
        ("THC(p=1/128)", tf_gc.THC(p=1 / 128)),
        ("Auto(systems=(None, THC(3)))", tf_gc.Auto(systems=(None, tf_gc.THC(3)))),
        ("Auto(systems=[None, ThreeLC()])", tf_gc.Auto(systems=(None, tf_gc.ThreeLC()))),
        (
            "DiLoCo(50, compression=ThreeLC(1.75))",
            tf_gc.DiLoCo(50, compression=tf_gc.ThreeLC(1.75)),
        ),
        (
            "DiLoCo(9, OuterSGD(0.5, nesterov=False))",
            tf_gc.DiLoCo(9, tf_gc.OuterSGD(0.5, 0.9, False)),
        ),
    )
    def test_a_text_stands_for_a_compressor(self, text, compressor):
        self.assertEqual(tf_gc.compressors.from_string(text), compressor)

    @parameterized.parameters(
        ("FourLC()", "'FourLC': choose from (?!.*OuterSGD).*, DiLoCo, auto, or none"),
        ("DiLoCo(compression=FourLC())", "'FourLC'"),
        ("TopK(0.1", "TopK"),
        ("TopK(1 / 0)", "division by zero"),
        ("TopK('a' / 2)", "unsupported"),
        ("TopK(ratio=2)", "ratio"),
        ("TopK(quantity=2)", "quantity"),
        ("TopK(exit)", "'exit' is no hyper-parameter"),
        ("ThreeLC(units=gradient)", "'gradient' is no hyper-parameter: .* quotes"),
        ("DiLoCo(50, compression=ThreeLC)", "'ThreeLC' is no hyper-parameter: .* ThreeLC()"),
        ("print()", "'print'"),
        ("", "'' is no compressor"),
        ("(1)", "is no compressor"),
        ("OuterSGD()", "is no compressor"),
    )
    def test_any_other_text_is_a_value_error(self, text, message):
        with self.assertRaisesRegex(ValueError, message):
            tf_gc.compressors.from_string(text)


class FusionTest(parameterized.TestCase):
    @given(
        st.lists(
            st.builds(
                Gradient,
                compressor=st.sampled_from([Uncompressed(), tf_gc.ThreeLC()]),
                dtype=st.sampled_from([tf.float32, tf.float16]),
                size=st.integers(0, 3000),
            ),
            max_size=30,
        )
    )
    def test_every_gradient_is_in_one_bucket_of_its_kind_and_size(self, gradients):
        buckets = plan_buckets(gradients, bucket_bytes=4096)
        self.assertCountEqual([i for bucket in buckets for i in bucket], range(len(gradients)))
        for bucket in buckets:
            members = [gradients[i] for i in bucket]
            self.assertLen({g.compressor for g in members}, 1)
            if members[0].compressor != Uncompressed():
                self.assertLen({g.dtype for g in members}, 1)
            self.assertTrue(len(bucket) == 1 or sum(g.size * g.dtype.size for g in members) <= 4096)

    def test_exact_gradients_of_all_types_travel_together(self):
        dtypes = [tf.float32, tf.bfloat16, tf.float16, tf.float32]
        exact = [Gradient(Uncompressed(), dtype, 10) for dtype in dtypes]
        self.assertEqual(plan_buckets(exact, bucket_bytes=4096), [[3, 2, 1, 0]])

    def test_the_last_variables_travel_first(self):
        gradients = [Gradient(tf_gc.ThreeLC(), tf.float32, 600) for _ in range(4)]
        self.assertEqual(plan_buckets(gradients, bucket_bytes=4800), [[3, 2], [1, 0]])

    @parameterized.parameters(
        (tf_gc.THC(units="second_moment"), [[3, 1], [2, 0]]),
        (tf_gc.Auto(), [[3, 1], [2, 0]]),
        (tf_gc.THC(units="gradient"), [[3, 2, 1, 0]]),
        (tf_gc.ThreeLC(), [[3, 2, 1, 0]]),
    )
    def test_variables_without_units_are_not_in_blocks_with_others(self, compressor, expected):
        gradients = [
            Gradient(compressor, tf.float32, 10, has_units=has_units)
            for has_units in (False, True, False, True)
        ]
        self.assertEqual(plan_buckets(gradients, bucket_bytes=4096), expected)

    def test_a_variable_without_values_has_no_bucket_of_its_own(self):
        sizes = {10: True, 0: False}
        gradients = [Gradient(tf_gc.Auto(), tf.float32, *of_one) for of_one in sizes.items()]
        self.assertEqual(plan_buckets(gradients, bucket_bytes=4096), [[1, 0]])

    def test_a_whole_model_is_cut_where_indices_end(self):
        gradients = [Gradient(tf_gc.ARTopK(0.01), tf.float32, 2**30)] * 3
        self.assertEqual(plan_buckets(gradients, bucket_bytes=4096), [[2], [1], [0]])
        gradients = [Gradient(tf_gc.ARTopK(0.01), tf.float16, 2**30 - 1)] * 3
        self.assertEqual(plan_buckets(gradients, bucket_bytes=4096), [[2, 1], [0]])


class TrafficTest(absltest.TestCase):
    def test_bits_and_ratio(self):
        traffic = tf_gc.Traffic(
            steps=2, bytes_sent=100, bytes_received=90, values_sent=800, uncompressed_bytes=3200
        )
        self.assertEqual(traffic.bits_per_value, 1.0)
        self.assertEqual(traffic.ratio, 32.0)
        self.assertEqual(traffic.as_dict()["ratio"], 32.0)
        self.assertIn("2 steps", str(traffic))

    def test_second_moments_are_bytes_but_no_values(self):
        traffic = tf_gc.Traffic(bytes_sent=100, values_sent=400, second_moment_bytes_sent=5)
        self.assertEqual(traffic.bits_per_value, 2.0)
        self.assertEqual(traffic.second_moment_bits_per_value, 0.1)
        self.assertEqual(traffic.as_dict()["second_moment_bits_per_value"], 0.1)
        self.assertIn("2.000 bits a value (0.100 of second moments)", str(traffic))
        self.assertNotIn("second", str(tf_gc.Traffic()))

    def test_nothing_sent_is_no_division_by_zero(self):
        self.assertEqual(tf_gc.Traffic().bits_per_value, 0.0)
        self.assertEqual(tf_gc.Traffic().ratio, 1.0)


if __name__ == "__main__":
    absltest.main()
