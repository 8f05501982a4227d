"""That the tests which build_tools/matrix.py names are there."""

import importlib
import pathlib
import sys
import unittest

from absl.testing import absltest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "build_tools"))

import matrix


class SuiteTest(absltest.TestCase):
    def test_what_it_names_is_there(self):
        for program, names in matrix.SUITE.items():
            if names:
                loader = unittest.TestLoader()
                module = importlib.import_module(pathlib.PurePath(program).stem)
                loader.loadTestsFromNames(names, module)
                self.assertEmpty(loader.errors)


if __name__ == "__main__":
    absltest.main()
