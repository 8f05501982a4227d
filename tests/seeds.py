"""Random numbers that are the same in every run of a program."""

import random

import numpy as np
import tensorflow as tf


def set_random_seed(seed):
    """Does what `set_random_seed` of Keras 3 and of tf_keras do.

    After tf_keras's own up to version 2.18, its layers raise TypeError on Python 3.12.
    """
    random.seed(seed)
    np.random.seed(seed)
    tf.random.set_seed(seed)
