"""examples/trainings.py: what ends a training, and what ends all of them."""

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
    @parameterized.parameters(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    def test_a_signal_ends_all(self, number):
        """The launcher takes signals; a program that has more to train must hear of them."""
        with (
            mock.patch.object(trainings.launch, "launch", return_value=128 + number),
            self.assertRaises(SystemExit) as raised,
        ):
            _training().run()
        self.assertEqual(raised.exception.code, 128 + number)

    @parameterized.parameters(1, 128 + signal.SIGKILL)
    def test_a_failure_ends_one(self, code):
        with (
            mock.patch.object(trainings.launch, "launch", return_value=code),
            self.assertRaisesRegex(trainings.TrainingFailedError, f"one: exit code {code}"),
        ):
            _training().run()

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
