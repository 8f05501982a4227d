"""`tf_gc-launch report`: draws what an adaptive run did."""

import pathlib
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
import rich.console
import rich.table
import rich.text
from absl import flags

from tf_gc.adaptive.run_record import Run, RunRecordError, read_run

_USAGE = """\
usage: tf_gc-launch report [--output run.png] run.json

Draws what an adaptive run did: latency, bandwidth, choices, ratio, gain and step time over the
steps, and the share of steps with each choice and ratio. run.json is what a training with
compression=tf_gc.Auto(record="run.json") writes on worker 0; it may be read while the run goes on.
The figure goes to --output, by default to the file of the same name that ends in .png, and a
summary to the terminal. Needs matplotlib.
"""
_MISSING = "the figure needs matplotlib: pip install 'tf-gc[report]'"

# Okabe and Ito's, which differ for all kinds of colour vision; hatches tell what comes after them.
_COLOURS = ("#999999", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_HATCHES = (None, "///", "...", "xxx")
_INK = "#0072B2"
_MOST_CHANGES = 20  # in the summary
_LONGEST_NAME = 24


def main(argv: Sequence[str]) -> int:
    """Runs the command line `argv`, whose first word is "report"; returns the exit code."""
    values = flags.FlagValues()
    flags.DEFINE_string("output", None, "", flag_values=values)
    flags.DEFINE_boolean("help", False, "", short_name="h", flag_values=values)
    try:
        paths = values(list(argv))[1:]
        if values.help:
            print(_USAGE, end="")
            return 0
        if len(paths) != 1:
            raise flags.Error(f"one file is drawn, {len(paths)} are given")
        path = pathlib.Path(paths[0])
        output = pathlib.Path(values.output or f"{str(path).removesuffix('.json')}.png")
        if not output.suffix:
            output = output.with_suffix(".png")
        run = read_run(path)
        if not run.points:
            raise RunRecordError(f"{path}: the run has come to no control point yet")
        print_summary(run, rich.console.Console())
        draw(run, output)
    except flags.Error as error:
        print(f"tf_gc-launch report: {error}\n{_USAGE}", end="", file=sys.stderr)
        return 2
    except (ImportError, OSError, ValueError) as error:
        print(f"tf_gc-launch report: {error}", file=sys.stderr)
        return 1
    print(f"Written: {output}")
    return 0


def steps_at(run: Run) -> np.ndarray:
    """Returns for each point of how many steps its decision was: up to the next point's.

    That of the last point is not known: it counts as none, unless it is the only one.
    """
    steps = [point.step for point in run.points]
    return np.diff(steps, append=steps[-1] + (len(steps) == 1))


def value_shares(run: Run) -> np.ndarray:
    """Returns the share of the values under each candidate: [points, candidates], float64."""
    values = np.array([bucket.values for bucket in run.buckets], float)
    shares = np.zeros([len(run.points), len(run.candidates)])
    for row, point in zip(shares, run.points, strict=True):
        np.add.at(row, list(point.choices), values / max(1, values.sum()))
    return shares


def _choice_density(run):
    """Returns the share of all values of all steps under each candidate."""
    return np.average(value_shares(run), axis=0, weights=steps_at(run))


def _ratio_density(run) -> dict[float, float]:
    """Returns the share of steps with each ratio, of those that had one."""
    return _density((point.ratio for point in run.points), steps_at(run))


def _density(keys: Iterable[Hashable], weights: Iterable[int]) -> dict:
    counts = Counter()
    for key, weight in zip(keys, weights, strict=True):
        if key is not None:
            counts[key] += int(weight)
    total = counts.total()
    return {key: count / total for key, count in sorted(counts.items())} if total else {}


def print_summary(run: Run, console: rich.console.Console) -> None:
    """Prints what was measured, the shares of choices and ratios, and the changes."""
    last = run.points[-1]
    values = sum(bucket.values for bucket in run.buckets)
    console.print(
        f"{run.workers} workers, {len(run.buckets)} buckets of {values:,} values; "
        f"{last.step:,} steps in {last.seconds:,.1f} s; written by worker {run.rank}, "
        f"tf_gc {run.version}",
        highlight=False,
    )
    table = rich.table.Table("", "least", "median", "most")
    for column in table.columns[1:]:
        column.justify = "right"
    for title, scale, name in (
        ("latency (ms)", 1e3, "latency"),
        ("bandwidth (Mbit/s)", 1e-6, "bandwidth"),
        ("step (ms)", 1e3, "step_seconds"),
        ("ratio", 1, "ratio"),
        ("gain", 1, "gain"),
    ):
        known = scale * _known(run, name)
        if known.size:
            quantiles = np.quantile(known, (0, 0.5, 1), method="nearest")
            table.add_row(title, *(f"{value:.4g}" for value in quantiles))
    console.print(table)
    table = rich.table.Table("choice", "share of steps and values")
    table.columns[1].justify = "right"
    for name, share in zip(run.candidates, _choice_density(run), strict=True):
        if share:
            table.add_row(rich.text.Text(name), f"{share:.1%}")
    console.print(table)
    changes = _changes(run)
    if changes:
        table = rich.table.Table("", "step", "seconds", "change", title="Changes", expand=False)
        for number, point in changes[:_MOST_CHANGES]:
            why = rich.text.Text(point.why)
            table.add_row(str(number), str(point.step), f"{point.seconds:.1f}", why)
        console.print(table)
    if len(changes) > _MOST_CHANGES:
        console.print(f"and {len(changes) - _MOST_CHANGES} more")


def _changes(run):
    """Returns the points with a change, numbered as in the figure."""
    return list(enumerate((point for point in run.points if point.why), 1))


def _series(run, name, scale=1.0):
    """Returns an attribute of all points, NaN where it is not known."""
    values = [getattr(point, name) for point in run.points]
    return scale * np.array([np.nan if value is None else value for value in values], float)


def _known(run, name):
    """Returns an attribute of the points where it is known."""
    values = _series(run, name)
    return values[~np.isnan(values)]


def draw(run: Run, path: pathlib.Path) -> None:
    """Writes the figure of a run that has points to `path`, in the format of its suffix.

    Raises:
      ImportError: matplotlib is not installed.
      OSError: the file cannot be written.
      ValueError: matplotlib knows no format of this suffix.
    """
    try:
        from matplotlib import figure as figures
        from matplotlib import ticker
    except ImportError as error:
        raise ImportError(_MISSING) from error
    figure = figures.Figure(figsize=(11, 12), layout="constrained")
    grid = figure.add_gridspec(6, 2, width_ratios=(4, 1), height_ratios=(1, 1, 1.4, 1.2, 1, 1))
    panels = [figure.add_subplot(grid[row, 0]) for row in range(6)]
    latency, bandwidth, choices, ratio, gain, step_time = panels
    steps = np.array([point.step for point in run.points])
    for panel, title, name, scale, drawstyle in (
        (latency, "latency", "latency", 1, "steps-post"),
        (bandwidth, "bandwidth", "bandwidth", 1, "steps-post"),
        (ratio, "ratio", "ratio", 1, "steps-post"),
        (gain, "gain", "gain", 1, "default"),
        (step_time, "step time (ms)", "step_seconds", 1e3, "steps-pre"),
    ):
        values = _series(run, name, scale)
        if np.isnan(values).all():
            panel.text(0.5, 0.5, "none", transform=panel.transAxes, ha="center", va="center")
            panel.set_yticks([])
        panel.plot(steps, values, ".-", color=_INK, drawstyle=drawstyle, markersize=4)
        panel.set_ylabel(title)
        panel.grid(alpha=0.3)
    for panel in panels:
        panel.set_xlim(steps[0], max(steps[-1], steps[0] + 1))
        panel.tick_params(labelbottom=panel is step_time)
    step_time.set_ylim(bottom=0)
    gain.set_ylim(0, 1.05)
    for panel, name, unit in ((latency, "latency", "s"), (bandwidth, "bandwidth", "bit/s")):
        known = _known(run, name)
        known = known[known > 0]
        if known.size:
            panel.set_yscale("log")
            # Whole decades, so that there always are labels.
            low, high = np.log10(known.min()), np.log10(known.max())
            panel.set_ylim(10 ** np.floor(low - 0.05), 10 ** np.ceil(high + 0.05))
        panel.yaxis.set_major_formatter(ticker.EngFormatter(unit))
    _draw_choices(run, steps, choices, figure.add_subplot(grid[2, 1]))
    _draw_ratios(run, ratio, figure.add_subplot(grid[3, 1]))
    _draw_changes(run, panels)
    step_time.set_xlabel("step")
    seconds = latency.secondary_xaxis("top")
    seconds.set_xlabel("seconds since the start")
    _label_seconds(run, steps, seconds)
    figure.align_ylabels(panels)
    values = sum(bucket.values for bucket in run.buckets)
    figure.suptitle(f"{run.workers} workers, {values:,} values in {len(run.buckets)} buckets")
    figure.savefig(path, dpi=120)


def _draw_choices(run, steps, panel, density):
    """Draws the share of values under each candidate, and behind it that of all steps."""
    shares = _choice_density(run)
    used = [index for index in range(len(run.candidates)) if value_shares(run)[:, index].any()]
    styles = {
        index: {
            "facecolor": _COLOURS[index % len(_COLOURS)],
            "hatch": _HATCHES[index // len(_COLOURS) % len(_HATCHES)],
            "edgecolor": "white",
            "linewidth": 0,
        }
        for index in used
    }
    low = np.zeros(len(steps))
    for index in used:
        high = low + 100 * value_shares(run)[:, index]
        panel.fill_between(steps, low, high, step="post", **styles[index])
        low = high
    panel.set(ylabel="choices\n(% of values)", ylim=(0, 100))
    for row, index in enumerate(used):
        density.barh(row, 100 * shares[index], **styles[index])
    names = [_shortened(run.candidates[index]) for index in used]
    _label_density(density, range(len(used)), names, "% of values and steps")
    density.set_ylim(-0.6, len(used) - 0.4)


def _shortened(name):
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _draw_ratios(run, panel, density):
    """Draws the candidates as lines behind the ratio, and the share of steps with each."""
    known = _known(run, "ratio")
    marks = sorted({*run.ratios, *known})
    if not marks or min(marks) <= 0:
        density.set_axis_off()
        return
    limits = (min(marks) / 1.7, max(marks) * 1.7)
    names = [f"{mark:g}" for mark in marks]
    panel.set_yscale("log")
    panel.minorticks_off()
    panel.set_yticks(marks, names)
    panel.set_ylim(limits)
    shares = _ratio_density(run)
    density.set_yscale("log")
    density.minorticks_off()
    for ratio, share in shares.items():
        density.barh(ratio, 100 * share, height=0.4 * ratio, color=_INK)
    _label_density(density, marks, names, "% of steps with a ratio")
    density.set_ylim(limits)


def _label_density(density, places, names, title):
    density.set_yticks(places, names)
    density.yaxis.tick_right()
    density.set(xlim=(0, 100), xticks=(0, 50, 100))
    density.set_title(title, fontsize="medium")
    for side in ("top", "left"):
        density.spines[side].set_visible(False)


def _draw_changes(run, panels):
    """Marks the points with a change, and numbers them as in the summary while there is room."""
    changes = _changes(run)
    for number, point in changes:
        for panel in panels:
            panel.axvline(point.step, color="black", linestyle=":", linewidth=0.8)
        if len(changes) <= _MOST_CHANGES:
            panels[1].annotate(
                str(number),
                (point.step, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize="small",
            )


def _label_seconds(run, steps, axis):
    """Puts round numbers of seconds where their steps are, as many as have room."""
    from matplotlib import ticker

    seconds = _series(run, "seconds")
    places = {}
    for mark in ticker.MaxNLocator(8).tick_values(seconds[0], seconds[-1]):
        place = np.interp(mark, seconds, steps)
        has_room = all(abs(place - other) > 0.06 * np.ptp(steps) for other in places)
        if seconds[0] <= mark <= seconds[-1] and has_room:
            places[place] = f"{mark:g}"
    axis.set_xticks([*places], [*places.values()])
