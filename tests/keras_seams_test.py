"""What happens with a version of Keras that lacks a place that tf_gc replaces a function in."""

import importlib.util
import sys
import types
from unittest import mock

import tensorflow as tf
from absl.testing import absltest
from tf_gc.strategy import keras_seams


class _Strategy:
    compression = object()


class UnknownKerasTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        module = types.ModuleType("new_keras.optimizers")

        class Optimizer:
            def __init__(self, rate=0.1):
                self.rate = rate

        module.Optimizer = Optimizer
        self.module = module
        seams = (
            ("new_keras.optimizers", "Optimizer", "aggregate", lambda function: function),
            ("new_keras.optimizers", "Optimizer", "apply", lambda function: function),
        )
        self.enter_context(mock.patch.dict(sys.modules, {"new_keras.optimizers": module}))
        self.enter_context(mock.patch.object(keras_seams, "_SEAMS", seams))

    def test_what_does_not_use_it_does_not_notice(self):
        keras_seams.redirect()
        keras_seams.redirect()
        self.assertEqual(self.module.Optimizer(rate=0.5).rate, 0.5)

    def test_who_needs_it_is_told_what_is_missing_and_what_to_do(self):
        keras_seams.redirect()
        with (
            mock.patch.object(tf.distribute, "get_strategy", _Strategy),
            self.assertRaisesRegex(
                RuntimeError,
                "this version of new_keras, which has no new_keras.optimizers.Optimizer.aggregate. "
                "Install the version",
            ),
        ):
            self.module.Optimizer()

    def test_a_class_that_is_missing_is_warned_of(self):
        del self.module.Optimizer
        with self.assertLogs("absl", "WARNING") as logs:
            keras_seams.redirect()
        self.assertIn("new_keras.optimizers.Optimizer.aggregate", logs.output[0])


# Older versions of Keras 3 have not got these optimizers.
_NOT_IN_ALL = ("keras.src.optimizers.muon", "keras.src.optimizers.schedule_free_adamw")


class InstalledKerasTest(absltest.TestCase):
    def test_keras_3_and_tf_keras_have_every_place(self):
        for module, class_name, function, _ in keras_seams._SEAMS:
            if module in _NOT_IN_ALL and importlib.util.find_spec(module) is None:
                continue
            with self.subTest(module=module, owner=class_name, function=function):
                owner = importlib.import_module(module)
                owner = getattr(owner, class_name) if class_name else owner
                self.assertTrue(hasattr(owner, function))


class ArgumentsTest(absltest.TestCase):
    def test_arguments_may_be_given_by_position(self):
        import tf_keras

        keras_seams.redirect()
        for optimizers in tf_keras.optimizers, tf_keras.optimizers.legacy:
            variable = tf.Variable(1.0)
            optimizers.SGD(0.5).apply_gradients([(tf.constant(1.0), variable)], None, True)
            self.assertEqual(variable.numpy(), 0.5)


if __name__ == "__main__":
    absltest.main()
