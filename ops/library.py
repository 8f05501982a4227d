"""Loads libtf_gc_ops.so: `library.tf_gc_<name>` are its ops."""

import os

import tensorflow as tf


def _load():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libtf_gc_ops.so")
    if not os.path.exists(path):
        raise ImportError(f"{path} is missing: run ./setup.sh or pip install . in a clone")
    return tf.load_op_library(path)


library = _load()

# Gradients do not flow through encodings.
for _name in dir(library):
    if _name.startswith("TfGc_"):
        tf.no_gradient(_name.replace("_", ">"))
