"""examples/trainings.py: what ends a training, what ends all of them, whose a report is."""

import json
import os
import pathlib
import signal
import sys
import tempfile
from unittest import mock

from absl.testing import absltest, parameterized

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))
import trainings


def _training():
    return trainings.Training("digits", "one", pathlib.Path("none.json"), "none", (), workers=2)


class TrainingsTest(parameterized.TestCase):
    def run_program(self, body):
        """Runs a training by one worker, of a program in place of an example."""
        folder = self.create_tempdir()
        folder.create_file("digits.py", f"import os, signal, time\n{body}\n")
        with mock.patch.object(trainings, "_HERE", pathlib.Path(folder)):
            _training()._replace(workers=1).run()

    @parameterized.parameters(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    def test_a_signal_ends_all(self, number):
        """The launcher takes signals; a program that has more to train must hear of them."""
        with self.assertRaises(SystemExit) as raised:
            self.run_program(f"os.kill({os.getpid()}, {number}); time.sleep(600)")
        self.assertEqual(raised.exception.code, 128 + number)

    def test_a_worker_that_was_told_to_end_by_others_ends_one(self):
        with self.assertRaisesRegex(trainings.TrainingFailedError, "one: exit code 143"):
            self.run_program("os.kill(os.getpid(), signal.SIGTERM); time.sleep(600)")

    @parameterized.parameters(1, 128 + signal.SIGKILL)
    def test_a_failure_ends_one(self, code):
        with (
            mock.patch.object(trainings.launch, "launch", return_value=code),
            self.assertRaisesRegex(trainings.TrainingFailedError, f"one: exit code {code}"),
        ):
            _training().run()

    def test_what_was_too_short_to_be_timed_is_no_part_of_a_mean(self):
        self.assertEqual(trainings.mean([1.0, None, 3.0], "{:.1f}"), "2.0")
        self.assertEqual(trainings.mean([None], "{:.1f}"), "-")

    @parameterized.parameters(
        {"program": "bytes_lm"},
        {"compressor": "ThreeLC()"},
        {"flags": ("--seed=1", "--parameters=1")},
        {"workers": 3},
        {"servers": 1},
        {"bandwidth": "10mbit"},
        {"bandwidth": None},
        {"phases": (trainings.Phase(1, "100mbit", "1ms"),)},
    )
    def test_a_report_is_of_one_command_and_its_links(self, **other):
        path = pathlib.Path(self.create_tempdir(), "report.json")
        training = _training()._replace(path=path, flags=("--seed=1",), bandwidth="100mbit")

        def launch(command, **kwargs):
            path.write_text(json.dumps({"compressor": "none"}), encoding="utf-8")
            return 0

        with mock.patch.object(trainings.launch, "launch", launch):
            training.run()
        self.assertEqual(training._replace(title="two").report()["compressor"], "none")
        self.assertIsNone(training._replace(**other).report())

    def test_a_report_that_was_not_written_to_its_end_is_none(self):
        path = pathlib.Path(self.create_tempdir(), "report.json")
        for text in ("", '{"compressor": "no'):
            path.write_text(text, encoding="utf-8")
            self.assertIsNone(_training()._replace(path=path).report())

    def test_a_training_that_failed_has_no_report(self):
        path = pathlib.Path(self.create_tempdir(), "report.json")
        training = _training()._replace(path=path)

        def launch(command, **kwargs):
            path.write_text(json.dumps({"compressor": "none"}), encoding="utf-8")
            return 1

        with (
            mock.patch.object(trainings.launch, "launch", launch),
            self.assertRaises(trainings.TrainingFailedError),
        ):
            training.run()
        self.assertIsNone(training.report())

    def test_an_example_trains_with_auto(self):
        with tempfile.TemporaryDirectory() as directory:
            training = trainings.Training(
                "digits",
                "Auto",
                pathlib.Path(directory, "report.json"),
                "Auto()",
                ("--epochs=1", "--steps_per_epoch=4"),
                workers=2,
            )
            training.run()
            self.assertEqual(training.report()["epochs"][-1]["steps"], 4)


if __name__ == "__main__":
    absltest.main()
