"""What the examples report of a training, and what the evaluations' tables say of reports."""

import pathlib
import sys
from unittest import mock

from absl.testing import absltest, parameterized

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))
import common
import evaluate_adam
import trainings


class RecorderTest(parameterized.TestCase):
    @parameterized.named_parameters(
        ("of_two_kinds", [9, 9, 9, *[1, 3] * 12, 1], 49 / 25),
        ("of_which_few_are_long", [9, 9, 9, *[1] * 40, 5, *[1] * 40, 5], 90 / 82),
        ("of_which_one_stalls", [9, 9, 9, *[1] * 10, 100, *[1] * 10], 1),
        ("of_which_there_is_one", [9, 9, 9, 2], 2),
        ("none", [9, 9, 9], None),
    )
    def test_seconds_per_step_are_those_of_all_kinds_of_steps(self, seconds, expected):
        recorder = common._Recorder("accuracy", mock.Mock())
        clock = [0.0]
        with mock.patch.object(common.time, "perf_counter", lambda: clock[0]):
            recorder.on_epoch_begin(0)
            for batch, step in enumerate(seconds):
                clock[0] += step
                recorder.on_train_batch_end(batch)
        if expected is None:
            self.assertIsNone(recorder.seconds_per_step)
        else:
            self.assertAlmostEqual(recorder.seconds_per_step, expected)


def _report(training):
    """Of a training that 3LC ends in half of the seconds that the others take; all end alike."""
    second = 0.5 if training.compressor == "ThreeLC()" else 1.0
    epochs = [{"bits_per_byte": 3 - i, "seconds": second * (1 + i)} for i in range(2)]
    return {"seconds_per_step": second, "epochs": epochs}


class TimeRowsTest(absltest.TestCase):
    """Of docs/adam.md's tables."""

    def setUp(self):
        super().setUp()
        self._task = evaluate_adam.TASKS[0]

    def _rows(self, *names):
        def report(training):
            name = training.path.name.split("-10mbit")[0]
            return _report(training) if name in names else None

        with mock.patch.object(trainings.Training, "report", report):
            return evaluate_adam.time_rows(self._task, "10mbit")

    def test_times_are_those_to_the_end_of_uncompressed_training(self):
        self.assertEqual(
            self._rows("none", "3lc"),
            [["uncompressed", "1.000", "2", "1.0"], ["3LC", "0.500", "1", "2.0"]],
        )

    def test_nothing_takes_the_place_of_uncompressed_training(self):
        self.assertEqual(
            self._rows("3lc", "thc"), [["3LC", "0.500", "-", "-"], ["THC", "1.000", "-", "-"]]
        )


if __name__ == "__main__":
    absltest.main()
