"""What the examples report of a training, and what the evaluations' tables say of reports."""

import pathlib
import subprocess
import sys
from unittest import mock

from absl import flags
from absl.testing import absltest, parameterized

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))
import common
import evaluate_adam
import evaluations
import trainings

from tests.cases import some_of


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

    def _rows(self, *names, **values):
        def report(training):
            name = training.path.name.split("-10mbit")[0]
            return {**_report(training), **values} if name in names else None

        with mock.patch.object(trainings.Training, "report", report):
            return evaluate_adam.time_rows(self._task, "10mbit")

    def test_times_are_those_to_the_end_of_uncompressed_training(self):
        self.assertEqual(
            self._rows("none", "3lc"),
            [["uncompressed", "1.000", "2", "1.0"], ["3LC", "0.500", "1", "2.0"]],
        )

    def test_a_training_that_was_too_short_to_be_timed_has_a_dash(self):
        self.assertEqual(self._rows("none", seconds_per_step=None)[0][1], "-")

    def test_nothing_takes_the_place_of_uncompressed_training(self):
        self.assertEqual(
            self._rows("3lc", "thc"), [["3LC", "0.500", "-", "-"], ["THC", "1.000", "-", "-"]]
        )


_EXAMPLES = pathlib.Path(common.__file__).parent


class TablesTest(absltest.TestCase):
    def test_a_table_without_rows_leaves_the_page_as_it_is(self):
        page = pathlib.Path(self.create_tempdir(), "page.md")
        page.write_text("measured before", encoding="utf-8")
        console = mock.Mock()
        evaluations.write_table(["system", "bits"], [], page, console)
        self.assertEqual(page.read_text(encoding="utf-8"), "measured before")
        self.assertIn("left as it is", console.print.call_args[0][0])
        evaluations.write_table(["system", "bits"], [["3LC", "1.6"]], page, console)
        self.assertIn("| 3LC | 1.6 |", page.read_text(encoding="utf-8"))


class CommandsTest(parameterized.TestCase):
    def _run(self, program, *arguments):
        command = [sys.executable, str(_EXAMPLES / f"{program}.py"), *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr

    @parameterized.parameters(
        ("digits", ["compressor", "epochs", "optimizer", "json"]),
        ("evaluate", ["programs", "report_only", "docs", "bandwidth", "systems"]),
        ("compare", ["bandwidth", "seeds"]),
    )
    def test_help_has_the_flags_that_the_docs_use(self, program, names):
        _, text = self._run(program, "--help")
        for name in names:
            self.assertRegex(text, rf"--(\[no\])?{name}:")

    @some_of(
        ("evaluate", "--programs=fashion_mnist", "one or more of digits, bytes_lm"),
        ("compare", "--out=/proc/results", "out: nothing can be written to /proc/results"),
        ("digits", "--batch_size=2000", "batch_size=2000 on 1 workers .* than the 1437 examples"),
        ("evaluate", "--seeds=", "seeds=.*one or more"),
        ("study_adam", "--report_only", "report_only: this study keeps no reports"),
        count=3,
    )
    def test_what_cannot_be_is_refused_by_name(self, program, argument, message):
        code, text = self._run(program, argument)
        self.assertNotEqual(code, 0)
        self.assertRegex(text, message)
        self.assertNotIn("Traceback", text)

    def test_a_training_of_no_epochs_is_refused_by_name(self):
        with self.assertRaisesRegex(flags.IllegalFlagValueError, "epochs"):
            common.FLAGS["epochs"].parse("0")


if __name__ == "__main__":
    absltest.main()
