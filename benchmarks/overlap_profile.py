"""Draws where the exchanges of a step lie beside its back-propagation, from TensorFlow's profiler.

    sudo .venv/bin/python benchmarks/overlap_profile.py --out docs/scale/overlap.png

For each bandwidth two workers train a deep dense network. The first one's profile has the
operations of a step, and an event "tf_gc exchange" for each bucket, from when its gradients
are there until all workers have their sum.
"""

import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import tf_gc

_BANDWIDTHS = flags.DEFINE_list("bandwidths", ["100mbit", "1gbit"], "Of the workers' links.")
_COMPRESSOR = flags.DEFINE_string("compressor", "ThreeLC()", "One of tf_gc.compressors.")
_OUT = flags.DEFINE_string("out", "overlap.png", "The picture.")
_EVENTS = flags.DEFINE_string("events", None, "For workers: the file to write events to.")

_LAYERS, _UNITS, _BATCH = 24, 1024, 128  # 25 million parameters
_WARM_UP_STEPS, _STEPS = 6, 2
_EXCHANGE = "tf_gc exchange"
_COLOURS = {"forward": "#9aa5b1", "backward": "#4c78a8", "exchange": "#f58518"}


def _model():
    layers = [keras.layers.Dense(_UNITS, activation="relu") for _ in range(_LAYERS)]
    model = keras.Sequential([keras.Input([_UNITS]), *layers, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1e-3), loss, steps_per_execution=1)
    return model


def _profile(folder):
    """Trains, the last steps with the profiler on the first worker."""
    compressor = tf_gc.compressors.from_string(_COMPRESSOR.value)
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compressor)
    with strategy.scope():
        model = _model()
    steps = _WARM_UP_STEPS + _STEPS
    data = tf.data.Dataset.from_tensors(
        (tf.random.stateless_normal([2 * _BATCH, _UNITS], [0, 0]), tf.zeros([2 * _BATCH]))
    ).unbatch().batch(2 * _BATCH).repeat(steps)  # fmt: skip
    is_first = strategy.cluster_resolver.task_id == 0

    class Profiler(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if is_first and batch == _WARM_UP_STEPS:
                tf.profiler.experimental.start(folder)

    model.fit(data, epochs=1, steps_per_epoch=steps, verbose=0, callbacks=[Profiler()])
    if is_first:
        tf.profiler.experimental.stop()


def _events(folder):
    """Returns [kind, name, begin, end] of the last step, in milliseconds from its begin."""
    space = xplane_pb2.XSpace()
    [path] = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
    space.ParseFromString(pathlib.Path(path).read_bytes())
    events = []
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                kind, name = _kind_and_name(plane, event)
                begin = line.timestamp_ns / 1e6 + event.offset_ps / 1e9
                if kind:
                    events.append([kind, name, begin, begin + event.duration_ps / 1e9])
    # Between two steps is the longest time from the end of a forward pass to the next one.
    forward = sorted(begin for kind, _, begin, _ in events if kind == "forward")
    start = forward[int(np.argmax(np.diff(forward))) + 1]
    return [[kind, name, b - start, e - start] for kind, name, b, e in events if b >= start]


def _kind_and_name(plane, event):
    """Returns what an event is in a step, or None, and the operation's name."""
    name = plane.event_metadata[event.metadata_id].name
    if name == _EXCHANGE:
        stats = {plane.stat_metadata[stat.metadata_id].name: stat for stat in event.stats}
        return "exchange", stats["op"].str_value or plane.stat_metadata[stats["op"].ref_value].name
    if "/sequential" not in name:
        return None, name
    return "backward" if "gradient_tape" in name else "forward", name


def _launch(bandwidth):
    with tempfile.TemporaryDirectory() as folder:
        events = os.path.join(folder, "events.json")
        launch = (sys.executable, "-m", "tf_gc.launch", "--workers", "2", "--bandwidth", bandwidth)
        flags_ = (f"--compressor={_COMPRESSOR.value}", f"--events={events}")
        subprocess.run([*launch, __file__, *flags_], check=True, stdout=subprocess.DEVNULL)
        return json.loads(pathlib.Path(events).read_text(encoding="utf-8"))


def _draw(by_bandwidth):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    figure, axes = pyplot.subplots(len(by_bandwidth), figsize=(9, 2.6 * len(by_bandwidth)))
    for axis, (bandwidth, events) in zip(np.atleast_1d(axes), by_bandwidth.items(), strict=True):
        exchanges = sorted((e for e in events if e[0] == "exchange"), key=lambda e: e[2])
        rows = {name: 1 + i for i, (_, name, *_) in enumerate(exchanges)}
        for kind, name, begin, end in events:
            row = rows.get(name, 0)
            axis.barh(row, end - begin, left=begin, height=0.8, color=_COLOURS[kind])
        axis.set_yticks(range(len(rows) + 1), ["compute", *(f"bucket {i}" for i in rows.values())])
        axis.invert_yaxis()
        axis.set_title(f"{bandwidth}/s, {_COMPRESSOR.value}", loc="left", fontsize=10)
        axis.set_xlabel("ms")
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(
        handles=[Patch(color=colour, label=kind) for kind, colour in _COLOURS.items()],
        loc="upper right",
        ncols=len(_COLOURS),
        frameon=False,
    )
    figure.tight_layout()
    figure.savefig(_OUT.value, dpi=110)


def main(argv):
    del argv
    if "TF_CONFIG" not in os.environ:
        _draw({bandwidth: _launch(bandwidth) for bandwidth in _BANDWIDTHS.value})
        return
    with tempfile.TemporaryDirectory() as folder:
        _profile(folder)
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
            text = json.dumps(_events(folder))
            pathlib.Path(_EVENTS.value).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    app.run(main)
