"""The tests of all files beside this one, in a process that imports TensorFlow once.

Each file is a program, too: python -m tests.ops.rows_ops_test RowsTest
"""

import importlib
import pathlib
import unittest

from absl.testing import absltest

_OWN = pathlib.Path(__file__)
_MODULES = sorted(path.stem for path in _OWN.parent.glob("*_test.py") if path.name != _OWN.name)


def load_tests(loader, tests, pattern):
    del tests, pattern
    modules = (importlib.import_module(f"tests.ops.{name}") for name in _MODULES)
    return unittest.TestSuite(map(loader.loadTestsFromModule, modules))


if __name__ == "__main__":
    absltest.main()
