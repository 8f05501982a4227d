"""Callbacks for `fit` of the Keras that `tf.keras` is: Keras 3, or with TF_USE_LEGACY_KERAS=1 in
the environment tf_keras."""

from tf_gc.keras.backup import BackupAndRestore

__all__ = ["BackupAndRestore"]
