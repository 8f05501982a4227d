"""The record of an adaptive run, and what tf_gc-launch report makes of it."""

import contextlib
import io
import json
import pathlib
import sys
import warnings

import numpy as np
from absl.testing import absltest, parameterized

import tf_gc
from tf_gc import launch
from tf_gc.adaptive.run_record import (
    Bucket,
    ControlPoint,
    RunRecord,
    RunRecordError,
    read_run,
)
from tf_gc.launch import report

_BUCKETS = [Bucket("dense/kernel and 3 more", 3000), Bucket("bias", 1000)]
_CANDIDATES = ["uncompressed", "3LC", "THC", "AR-Topk ring"]
_RATIOS = [0.1, 0.011]
_POINTS = [
    ControlPoint(10, 1.5, 0.1, 1e-3, 1e8, [0, 0], why="the start"),
    ControlPoint(20, 2.5, 0.2, 2e-3, 1e7, [3, 1], 0.1, 0.9, "the bandwidth fell"),
    ControlPoint(50, 4.0, None, None, None, [3, 3], 0.011, 0.5),
    ControlPoint(60, 5.0, 0.1, 1e-3, 1e8, [0, 0]),
]
_HEADER = {
    "tf_gc": "0.1.0",
    "workers": 4,
    "rank": 0,
    "buckets": [bucket._asdict() for bucket in _BUCKETS],
    "candidates": _CANDIDATES,
    "ratios": _RATIOS,
}
_POINT = _POINTS[1]._asdict()


def _without(fields, name):
    return {key: value for key, value in fields.items() if key != name}


class _RecordTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path, "run.json")

    def write(self, points=_POINTS, buckets=_BUCKETS, candidates=_CANDIDATES):
        with RunRecord(
            self.path,
            workers=4,
            rank=1,
            buckets=buckets,
            candidates=candidates,
            ratios=_RATIOS,
        ) as record:
            for point in points:
                record.append(point)


class RunRecordTest(_RecordTest):
    def test_what_was_written_is_read(self):
        self.write()
        run = read_run(self.path)
        self.assertEqual(run, (tf_gc.__version__, 4, 1, _BUCKETS, _CANDIDATES, _RATIOS, _POINTS))

    def test_the_file_is_lines_of_json_as_documented(self):
        self.write(_POINTS[:2])
        header, first, second = map(json.loads, self.path.read_text().splitlines())
        self.assertEqual(header, {**_HEADER, "tf_gc": tf_gc.__version__, "rank": 1})
        self.assertEqual(
            second,
            {
                "step": 20,
                "seconds": 2.5,
                "step_seconds": 0.2,
                "latency": 0.002,
                "bandwidth": 1e7,
                "choices": [3, 1],
                "ratio": 0.1,
                "gain": 0.9,
                "why": "the bandwidth fell",
            },
        )
        self.assertIsNone(first["ratio"])

    def test_choices_may_be_an_array(self):
        self.write([_POINTS[1]._replace(choices=np.array([3, 1]))])
        self.assertEqual(read_run(self.path).points, _POINTS[1:2])

    def test_a_bucket_may_have_no_value(self):
        buckets = [Bucket("empty", 0), _BUCKETS[1]]
        self.write(buckets=buckets)
        self.assertEqual(read_run(self.path).buckets, buckets)

    def test_each_point_is_there_at_once(self):
        with RunRecord(
            self.path, workers=2, rank=0, buckets=_BUCKETS, candidates=_CANDIDATES
        ) as record:
            self.assertEmpty(read_run(self.path).points)
            for count, point in enumerate(_POINTS, 1):
                record.append(point)
                self.assertLen(read_run(self.path).points, count)

    def test_a_torn_last_line_is_left_out(self):
        self.write()
        text = self.path.read_text()
        for length in range(text.rindex('{"step"'), len(text)):
            self.path.write_text(text[:length])
            self.assertEqual(read_run(self.path).points, _POINTS[:-1])

    def test_a_record_that_was_there_is_replaced(self):
        self.path.write_text("something else\n")
        self.write()
        self.assertEqual(read_run(self.path).points, _POINTS)

    def test_a_run_that_went_back_to_a_checkpoint_goes_on_from_there(self):
        again = _POINTS[1]._replace(step=15), _POINTS[2]._replace(step=40)
        self.write([*_POINTS, *again])
        self.assertEqual(read_run(self.path).points, [_POINTS[0], *again])

    def test_a_number_that_is_not_finite_is_not_written(self):
        with self.assertRaises(ValueError):
            self.write([_POINTS[0]._replace(gain=float("nan"))])

    @parameterized.parameters(
        ([], "is empty"),
        ([{**_HEADER, "workers": 0}], ":1: header has workers 0"),
        ([_without(_HEADER, "buckets")], ":1: header has no 'buckets'"),
        ([{**_HEADER, "buckets": []}], ":1: header has no buckets"),
        ([{**_HEADER, "buckets": [{"label": "a", "values": -1}]}], ":1: header has values -1"),
        ([{**_HEADER, "candidates": "3LC"}], ":1: header has candidates '3LC', must be a list"),
        ([{**_HEADER, "ratios": [2.0]}], r":1: header has ratios \[2.0\]"),
        ([_POINT], ":1: header has no 'buckets'"),
        ([[1, 2]], ":1: header"),
        ([_HEADER, _without(_POINT, "gain")], ":2: control point has no 'gain'"),
        ([_HEADER, 7], ":2: control point"),
        ([_HEADER, {**_POINT, "step": -1}], ":2: control point has step -1, must be .* at least 0"),
        ([_HEADER, {**_POINT, "choices": [1]}], ":2: control point has 1 choices for 2 buckets"),
        ([_HEADER, {**_POINT, "choices": [1, 4]}], ":2: control point has choices"),
        ([_HEADER, {**_POINT, "choices": [1, -1]}], ":2: control point has choices"),
        ([_HEADER, {**_POINT, "choices": [True, 1]}], ":2: control point has choices"),
        ([_HEADER, {**_POINT, "bandwidth": "fast"}], ":2: control point has bandwidth 'fast'"),
        ([_HEADER, {**_POINT, "latency": -1.0}], ":2: control point has latency -1.0"),
        ([_HEADER, {**_POINT, "latency": float("nan")}], ":2: control point has latency nan"),
        ([_HEADER, {**_POINT, "seconds": None}], ":2: control point has seconds null"),
        ([_HEADER, {**_POINT, "why": 3}], ":2: control point has why 3, must be a text"),
    )
    def test_the_error_says_which_line_is_wrong(self, lines, message):
        self.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with self.assertRaisesRegex(RunRecordError, message):
            read_run(self.path)

    @parameterized.parameters(
        ("{}x\n", ":1: header is not JSON"),
        ("\x89PNG", "has no whole line"),
        ("\x89PNG\n", ":1: header is not JSON"),
        (json.dumps(_HEADER) + "\n\n", ":2: control point is not JSON"),
    )
    def test_what_is_no_record_is_an_error(self, text, message):
        self.path.write_text(text, encoding="latin-1")
        with self.assertRaisesRegex(RunRecordError, message):
            read_run(self.path)


class SharesTest(_RecordTest):
    def setUp(self):
        super().setUp()
        self.write()
        self.run_read = read_run(self.path)

    def test_a_decision_lasts_until_the_next_one(self):
        self.assertEqual(report.steps_at(self.run_read).tolist(), [10, 30, 10, 0])
        alone = self.run_read._replace(points=self.run_read.points[:1])
        self.assertEqual(report.steps_at(alone).tolist(), [1])

    def test_buckets_count_by_their_values(self):
        self.assertEqual(
            report.value_shares(self.run_read).tolist(),
            [[1, 0, 0, 0], [0, 0.25, 0, 0.75], [0, 0, 0, 1], [1, 0, 0, 0]],
        )

    def test_the_summary_has_the_shares_and_the_changes(self):
        output = io.StringIO()
        report.print_summary(self.run_read, report.rich.console.Console(file=output, width=100))
        text = output.getvalue()
        # Of 10, 30 and 10 steps: 10; 30 / 4; 30 * 3 / 4 + 10.
        for name, share in (("uncompressed", "20.0%"), ("3LC", "15.0%"), ("AR-Topk ring", "65.0%")):
            self.assertRegex(text, f"{name} *│ *{share}")
        self.assertNotIn("THC", text)
        self.assertRegex(text, r"2 *│ *20 *│ *2\.5 *│ *the bandwidth fell")
        self.assertRegex(text, r"bandwidth \(Mbit/s\) *│ *10 *│ *100 *│ *100 ")
        self.assertIn("60 steps in 5.0 s", text)


class ReportTest(_RecordTest):
    def test_long_names_are_cut_at_their_ends(self):
        self.assertEqual(report._shortened("3LC (sharded)"), "3LC (sharded)")
        long = "3LC(sparsity_multiplier=1.9) (sharded)"
        self.assertEqual(report._shortened(long), "3LC(sparsity_multiplier…")

    def report(self, *arguments):
        """Returns the exit code, and what is written to standard output and error."""
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = launch.main(["tf_gc-launch", "report", *map(str, arguments)])
        return code, output.getvalue(), errors.getvalue()

    def pixels(self, path):
        from matplotlib import image

        return image.imread(path)

    def test_the_figure_lies_beside_the_record_and_shows_the_run(self):
        figures = []
        for points in (_POINTS, [*_POINTS[:2], *_POINTS[3:]]):
            self.write(points)
            code, output, errors = self.report(self.path)
            self.assertEqual(code, 0, errors)
            self.assertIn(f"Written: {self.path.with_suffix('.png')}", output)
            figures.append(self.pixels(self.path.with_suffix(".png")))
        self.assertGreater(len(np.unique(figures[0].reshape(-1, 4), axis=0)), 20)
        self.assertFalse(np.array_equal(*figures))

    def test_names_are_no_markup(self):
        names = ["Mine(tag='[bold]')", "Mine(tag='[/c]')"]
        self.write([_POINTS[0]._replace(choices=[0, 1], why="[/d]")], candidates=names)
        code, output, errors = self.report(self.path)
        self.assertEqual(code, 0, errors)
        for name in (*names, "[/d]"):
            self.assertIn(name, output)

    def test_the_file_that_is_named_is_there(self):
        self.write()
        code, output, _ = self.report(f"--output={self.path.parent / 'figure'}", self.path)
        self.assertEqual(code, 0)
        self.assertTrue(pathlib.Path(output.rpartition("Written: ")[2].strip()).exists())

    def test_runs_of_other_names_have_other_figures(self):
        with absltest.mock.patch.object(report, "draw") as draw:
            for name in ("lr0.1", "lr0.01"):
                self.write()
                code, _, errors = self.report(self.path.rename(self.path.with_name(name)))
                self.assertEqual(code, 0, errors)
        drawn = [call.args[-1].name for call in draw.call_args_list]
        self.assertEqual(drawn, ["lr0.1.png", "lr0.01.png"])

    def test_the_output_may_lie_elsewhere_and_have_another_format(self):
        self.write()
        output = self.path.parent / "figure.svg"
        code, _, _ = self.report(f"--output={output}", self.path)
        self.assertEqual(code, 0)
        self.assertIn("<svg", output.read_text())
        self.assertFalse(self.path.with_suffix(".png").exists())

    @parameterized.named_parameters(
        ("one_point", _POINTS[:1]),
        ("nothing_measured", _POINTS[2:3]),
        (
            "a_dead_link",
            [_POINTS[0]._replace(bandwidth=0.0, latency=0.0, seconds=0.0, step=0), *_POINTS],
        ),
        (
            "many_changes",
            [ControlPoint(i, float(i), 0.1, 1e-3, 1e8, [0, 1], why="again") for i in range(200)],
        ),
    )
    def test_unusual_runs_are_drawn_without_a_warning(self, points):
        self.write(points)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            code, _, errors = self.report(self.path)
        self.assertEqual(code, 0, errors)

    def test_a_run_without_values_is_drawn_without_a_warning(self):
        self.write(buckets=[Bucket("empty", 0)] * 2)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            code, _, errors = self.report(self.path)
        self.assertEqual(code, 0, errors)

    def test_a_run_without_control_points_is_told(self):
        self.write([])
        code, _, errors = self.report(self.path)
        self.assertEqual(code, 1)
        self.assertIn("has come to no control point yet", errors)

    @parameterized.parameters(
        ([], "one file is drawn, 0 are given"),
        (["a", "b"], "one file is drawn, 2 are given"),
        (["--colour=red", "a"], "colour"),
    )
    def test_a_wrong_command_line_returns_2(self, arguments, message):
        code, _, errors = self.report(*arguments)
        self.assertEqual(code, 2)
        self.assertIn(message, errors)

    def test_what_cannot_be_read_or_written_is_named(self):
        code, _, errors = self.report("absent.json")
        self.assertEqual(code, 1)
        self.assertIn("absent.json", errors)
        self.write()
        code, _, errors = self.report("--output=/absent/run.png", self.path)
        self.assertEqual(code, 1)
        self.assertIn("/absent/run.png", errors)
        code, _, errors = self.report("--output=run.gear", self.path)
        self.assertEqual(code, 1)
        self.assertIn("gear", errors)

    def test_without_matplotlib_the_summary_comes_and_the_error_names_the_extra(self):
        self.write()
        with absltest.mock.patch.dict(sys.modules, {"matplotlib": None}):
            code, output, errors = self.report(self.path)
        self.assertEqual(code, 1)
        self.assertIn("pip install 'tf-gc[report]'", errors)
        self.assertIn("AR-Topk ring", output)

    def test_help_says_what_it_does(self):
        code, output, _ = self.report("--help")
        self.assertEqual(code, 0)
        self.assertIn("usage: tf_gc-launch report", output)


if __name__ == "__main__":
    absltest.main()
