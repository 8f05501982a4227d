"""How build_tools/run_tests.py counts the cases of reports."""

import importlib.util
import pathlib

from absl.testing import absltest

_FILE = pathlib.Path(__file__).resolve().parent.parent / "build_tools" / "run_tests.py"
_REPORT = """<testsuites><testsuite name="a">
  <testcase name="passed"/>
  <testcase name="failed"><failure message="it is 2"/></testcase>
  <testcase name="raised"><error message="it is none"/></testcase>
  <testcase name="left out"><skipped message="for make test-long"/></testcase>
  <testcase name="left out by GoogleTest" status="notrun"/>
</testsuite></testsuites>"""


def _load():
    spec = importlib.util.spec_from_file_location("run_tests", _FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class CountTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self._folder = pathlib.Path(self.create_tempdir().full_path)

    def _count(self, *texts):
        reports = [self._folder / f"{number}.xml" for number in range(len(texts))]
        for report, text in zip(reports, texts, strict=True):
            if text is not None:
                report.write_text(text, encoding="utf-8")
        return _load().count(reports)

    def test_cases_of_all_reports_are_counted(self):
        self.assertEqual(self._count(_REPORT, _REPORT), (2, 4, 4))

    def test_a_test_that_was_killed_has_failed(self):
        self.assertEqual(self._count(_REPORT, "", None), (1, 4, 2))


if __name__ == "__main__":
    absltest.main()
