"""examples/compare.py, which `make train` runs, with reports in place of trainings."""

import contextlib
import io
import json
import pathlib
import sys
from unittest import mock

from absl.testing import absltest, flagsaver

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))
import compare


def _report(seconds_per_step):
    epoch = {"seconds": 1.0, "loss": 0.5, "accuracy": 0.9, "bytes_sent": 2000, "steps": 2}
    return {
        "compressor": "ThreeLC()",
        "seconds_per_step": seconds_per_step,
        "epochs": [epoch],
        "final": {"accuracy": 0.9},
        "traffic": {"ratio": 20.0, "bits_per_value": 1.6},
    }


class CompareTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.out = pathlib.Path(self.create_tempdir())

    def compare(self, seconds_per_step):
        """Returns what is printed where every training takes these seconds."""
        report = _report(seconds_per_step)
        with (
            flagsaver.flagsaver(out=str(self.out)),
            mock.patch.object(compare, "train", return_value=report),
            contextlib.redirect_stdout(io.StringIO()) as printed,
        ):
            self.assertEqual(compare.main(["compare"]), 0)
        return printed.getvalue()

    def test_speed_is_that_of_uncompressed_training(self):
        self.assertRegex(self.compare(0.25), r"3LC .* 0\.250 .* 1\.0 │\n")

    def test_trainings_of_too_few_steps_to_be_timed_are_compared_in_all_else(self):
        self.assertRegex(self.compare(None), r"3LC +│ +90\.0 % │ +- │ .* 20\.0 │ +- │\n")
        written = json.loads((self.out / "train.json").read_text(encoding="utf-8"))
        self.assertEqual(written["runs"]["3LC"], [_report(None)])


if __name__ == "__main__":
    absltest.main()
