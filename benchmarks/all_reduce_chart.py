"""Draws the time of an all-reduce: TensorFlow's, in float16, gloo's, and tf_gc's systems.

    sudo .venv/bin/python benchmarks/all_reduce_chart.py --out docs/performance/all_reduce.png

It runs all_reduce_benchmark.py and, where PyTorch is installed, gloo_benchmark.py.
"""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

from absl import app, flags
from rich.console import Console

_BANDWIDTHS = flags.DEFINE_list("bandwidths", ["", "100mbit"], "Of the links; empty for loopback.")
_OUT = flags.DEFINE_string("out", "all_reduce.png", "The picture.")

_FOLDER = pathlib.Path(__file__).parent
_WORKERS, _MEBIBYTES = 2, 16
_COLOURS = {True: "#f58518", False: "#9aa5b1"}  # tf_gc's, the others'
_OTHERS = ("TensorFlow", "TensorFlow, float16", "gloo")


def _figures(bandwidth, benchmark, *arguments):
    """Returns the milliseconds of each contender of a benchmark."""
    link = ("--bandwidth", bandwidth) if bandwidth else ()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "figures.json")
        launch = (sys.executable, "-m", "tf_gc.launch", "--workers", str(_WORKERS), *link)
        flags_ = (f"--mebibytes={_MEBIBYTES}", f"--json={path}", *arguments)
        command = (*launch, _FOLDER / benchmark, *flags_)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        [result] = json.loads(path.read_text(encoding="utf-8"))
    return {row["name"]: 1e3 * row["median_seconds"] for row in result["figures"]}


def _measure(bandwidth):
    figures = _figures(bandwidth, "all_reduce_benchmark.py", "--steps=5", "--turns=3")
    if importlib.util.find_spec("torch"):
        figures |= _figures(bandwidth, "gloo_benchmark.py", "--steps=15")
    return dict(sorted(figures.items(), key=lambda item: item[1]))


def _draw(by_bandwidth):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(by_bandwidth), figsize=(11, 4.2), squeeze=False)
    for axis, (bandwidth, figures) in zip(axes[0], by_bandwidth.items(), strict=True):
        colours = [_COLOURS[name not in _OTHERS] for name in figures]
        bars = axis.barh(list(figures), list(figures.values()), color=colours)
        axis.bar_label(bars, fmt="%.0f", padding=3, fontsize=9)
        axis.invert_yaxis()
        axis.set_title(f"{bandwidth}/s" if bandwidth else "loopback", loc="left", fontsize=10)
        axis.set_xlabel(f"ms for {_MEBIBYTES} MiB, {_WORKERS} workers")
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.12)
    figure.tight_layout()
    pathlib.Path(_OUT.value).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(_OUT.value, dpi=110)


def main(argv):
    del argv
    console = Console(stderr=True)
    by_bandwidth = {}
    for bandwidth in _BANDWIDTHS.value:
        with console.status(bandwidth or "loopback"):
            by_bandwidth[bandwidth] = _measure(bandwidth)
    for bandwidth, figures in by_bandwidth.items():
        console.print(bandwidth or "loopback", figures)
    _draw(by_bandwidth)


if __name__ == "__main__":
    app.run(main)
