"""PEP 517 backend: setuptools, and TensorFlow to build against.

Headers are taken from the TensorFlow of the environment that tf_gc is installed
into. Only where there is none does the build get one of its own.
"""

import os
import sys

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from supported import extras, installed_tensorflow, tensorflow_to_build_for


def _tensorflow():
    return [] if installed_tensorflow() else extras(tensorflow_to_build_for())["cpu"]


def get_requires_for_build_wheel(config_settings=None):
    return build_meta.get_requires_for_build_wheel(config_settings) + _tensorflow()


def get_requires_for_build_editable(config_settings=None):
    return build_meta.get_requires_for_build_editable(config_settings) + _tensorflow()
