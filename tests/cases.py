"""Parameters of tests that take long."""

import os

from absl.testing import parameterized


def some_of(*cases, count=1):
    """Tries the first `count` cases, or all of them in `make test-long`."""
    tried = cases if "TF_GC_ALL_CASES" in os.environ else cases[:count]
    return parameterized.parameters(*(c if isinstance(c, (tuple, dict)) else (c,) for c in tried))
