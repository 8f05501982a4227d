"""Tests, or cases of them, that `make test` leaves to `make test-long` as they take long.

Most of what is left out is a variant: another case shows the same of another system, another Keras
or another number of workers. The rest are rarer situations, above all of backups.
"""

import itertools
import os
import random
import unittest

from absl.testing import parameterized

ALL_CASES = "TF_GC_ALL_CASES" in os.environ

in_test_long = unittest.skipUnless(ALL_CASES, "make test-long runs it")


def some_of(*cases, count=1):
    """Tries the first `count` cases, or all of them in `make test-long`."""
    tried = cases if ALL_CASES else cases[:count]
    return parameterized.parameters(*map(_arguments, tried))


def some_of_named(*cases, count=1):
    """The same, of cases whose first values are their names."""
    return parameterized.named_parameters(*(cases if ALL_CASES else cases[:count]))


def some_of_product(count=1, **values):
    """The same, of all combinations of the values, in an order in which each of them comes soon."""
    cases = [dict(zip(values, case, strict=True)) for case in itertools.product(*values.values())]
    return some_of(*random.Random(0).sample(cases, len(cases)), count=count)


def _arguments(case):
    """A case as `parameterized` takes a single one, too: a list would be several."""
    if isinstance(case, list):
        return tuple(case)
    return case if isinstance(case, (tuple, dict)) else (case,)
