"""What the tests of ops and of NumPy functions share."""

import contextlib
import json
import os
import pathlib
import resource

import hypothesis
import numpy as np

_GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")


def set_up_hypothesis(max_examples):
    """Properties are tried with so many examples, the same ones each time."""
    hypothesis.settings.register_profile(
        "tf_gc", deadline=None, derandomize=True, database=None, max_examples=max_examples
    )
    hypothesis.settings.load_profile("tf_gc")


def golden(name):
    """The content of tests/golden/<name>.json."""
    with open(os.path.join(_GOLDEN, name + ".json"), encoding="utf-8") as file:
        return json.load(file)


@contextlib.contextmanager
def limited_memory(room):
    """A context in which the process gets at most `room` more bytes of memory."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def gaussian(shape, seed=0):
    """Normally distributed float32 values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def gradient(shape, seed=0):
    """Float32 values most of which are small, as gradients are."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * rng.choice([0.01, 1.0], shape)
    return values.astype(np.float32)


def random_bytes(size, seed=0):
    """Bytes all values of which are equally likely."""
    return np.random.default_rng(seed).integers(0, 256, size).astype(np.uint8)
