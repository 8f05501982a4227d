"""Hyper-parameters that change while training."""

import math
import pickle

import hypothesis.strategies as st
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import given
from tests.testing import set_up_hypothesis

from tf_gc import schedules
