"""PEP 517 backend: setuptools, and TensorFlow to build against.

Headers are taken from the TensorFlow of the environment that tf_gc is installed
into. Only where there is none does the build get one of its own.
"""

import os
import subprocess
import sys
import tomllib

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def target_has_tensorflow():
    """Whether TensorFlow is installed outside pip's isolated build environment."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorflow') is None)"
    return subprocess.run([sys.executable, "-c", probe], env=environment).returncode == 0


def _tensorflow():
    if target_has_tensorflow():
        return []
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        return tomllib.load(file)["project"]["optional-dependencies"]["cpu"]


def get_requires_for_build_wheel(config_settings=None):
    return build_meta.get_requires_for_build_wheel(config_settings) + _tensorflow()


def get_requires_for_build_editable(config_settings=None):
    return build_meta.get_requires_for_build_editable(config_settings) + _tensorflow()
