"""examples/compare.py, which `make train` runs, with reports in place of trainings."""

import contextlib
import io
import json
import os
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
            mock.patch.object(compare.network_namespaces, "_tool", return_value="true"),
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

    def test_another_user_than_root_is_told_with_which_command_links_are_slow(self):
        with mock.patch.object(os, "geteuid", return_value=1000):
            self.assertRegex(self.compare(0.25), "To see links of 100mbit: sudo .*python")

    def test_root_in_a_container_is_told_what_that_needs(self):
        with (
            mock.patch.object(os, "geteuid", return_value=0),
            mock.patch.object(compare.network_namespaces, "_has_capabilities", lambda: False),
        ):
            printed = self.compare(0.25)
        self.assertIn("docker run --cap-add=SYS_ADMIN --cap-add=NET_ADMIN", printed)
        self.assertNotIn("sudo", printed)


if __name__ == "__main__":
    absltest.main()
