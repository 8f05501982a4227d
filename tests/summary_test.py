"""The line with which a launch ends, of programs that know nothing of it."""

import json
import pathlib
import sys

from absl.testing import absltest, parameterized
from rich.filesize import decimal

from tf_gc import launch
from tf_gc.launch import summary

_ON_WORKERS = """
import json, pathlib, sys, time
import tensorflow as tf, tf_gc

late, steps = pathlib.Path(sys.argv[1]), 5
strategy = tf_gc.MultiWorkerMirroredStrategy(compression={compression})
rank = strategy.cluster_resolver.task_id
with strategy.scope():
    variable = tf.Variable(tf.zeros([64, 64]))

@tf.function
def step():
    return strategy.run(lambda: strategy.reduce_gradients([(tf.ones([64, 64]), variable)])[0][0])

for number in range(steps):
    if rank == 1 and number == 2:
        while not late.exists():
            time.sleep(0.02)
        time.sleep(0.5)
    if rank == 0 and number == 2:
        late.touch()
    step()
waited, total = map(float, tf_gc.ops.time_waited())
print(json.dumps({{**strategy.traffic.as_dict(), "waited": waited, "total": total}}), flush=True)
{end}
"""

_IN_TURN = """
import gc, json, time, weakref, tensorflow as tf, tf_gc

def train(steps, late):
    "The worker with the number `late` comes late to the last step, or all before the first."
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=tf_gc.ThreeLC())
    with strategy.scope():
        variable = tf.Variable(tf.zeros([64, 64]))
    pairs = [(tf.ones([64, 64]), variable)]
    if late is None:
        time.sleep(2)
    for step in range(steps):
        if step == steps - 1 and strategy.cluster_resolver.task_id == late:
            time.sleep(2)
        strategy.run(lambda: strategy.reduce_gradients(pairs)[0][0])
    return weakref.ref(strategy)

first, second = train(2, late=1), train(3, late=None)
gc.collect()
alive = [first() is not None, second() is not None]
time = tf_gc.ops.time_waited()
numbers = {"is_alive": alive, "waited": float(time.waited), "total": float(time.total)}
print(json.dumps(numbers), flush=True)
"""

_ON_SERVERS = """
import json, tensorflow as tf, tf_gc
strategy = tf_gc.ParameterServerStrategy(
    tf.distribute.cluster_resolver.TFConfigClusterResolver(), compression=tf_gc.ThreeLC()
)
with strategy.scope():
    variable = tf.Variable(tf.zeros([64, 64]))

@tf.function
def train_step():
    def step():
        strategy.push_gradients([(tf.ones([64, 64]) + variable, variable)], update)
    strategy.run(step)

def update(grads_and_vars):
    for gradient, updated in grads_and_vars:
        updated.assign_sub(gradient)

coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
for _ in range(3):
    coordinator.schedule(train_step)
coordinator.join()
print(json.dumps(strategy.traffic.as_dict()), flush=True)
"""


class SummaryTest(parameterized.TestCase):
    def run_program(self, body, *arguments, **kwargs):
        """Returns the exit code, what each process printed as JSON, and the launcher's lines."""
        program = self.create_tempfile("program.py", body).full_path
        lines = []
        command = [sys.executable, "-u", program, *arguments]
        code = launch.launch(command, on_line=lines.append, **kwargs)
        printed = [json.loads(line.text) for line in lines if line.text.startswith('{"')]
        return code, printed, [line.text for line in lines if line.process == "tf_gc-launch"]

    def train(self, compression="tf_gc.ThreeLC()", end=""):
        body = _ON_WORKERS.format(compression=compression, end=end)
        late = pathlib.Path(self.create_tempdir().full_path, "late")
        return self.run_program(body, str(late), workers=2, grace=60)

    def test_it_is_of_all_workers(self):
        code, printed, said = self.train()
        self.assertEqual(code, 0)
        self.assertLen(printed, 2)
        sent, values, waited, total = (
            sum(of_worker[name] for of_worker in printed)
            for name in ("bytes_sent", "values_sent", "waited", "total")
        )
        self.assertEqual(
            said,
            [
                f"5 steps: each worker sent {decimal(round(sent / 2))}, {8 * sent / values:.3g} "
                f"bits a value, and waited {waited / total:.0%} of the time"
            ],
        )
        self.assertLess(8 * sent / values, 8)
        # Who comes first has waited for who comes late.
        self.assertGreater(max(of_worker["waited"] for of_worker in printed), 0.25)
        for of_worker in printed:
            self.assertLess(of_worker["waited"], of_worker["total"])

    def test_it_is_of_all_pushes_and_pulls_with_parameter_servers(self):
        code, [printed], said = self.run_program(_ON_SERVERS, workers=1, ps=1)
        self.assertEqual(code, 0)
        pushed, pulled = (
            f"{way} {decimal(printed[f'bytes_{way}'])}, {printed[f'bits_per_value_{way}']:.3g} bits"
            for way in ("pushed", "pulled")
        )
        self.assertEqual(printed["updates"], 3)
        self.assertIn(f"3 updates: the workers {pushed} a value, and {pulled} a value", said)

    def test_it_is_of_all_strategies_and_keeps_the_latest_alone(self):
        code, printed, (said,) = self.run_program(_IN_TURN, workers=2)
        self.assertEqual(code, 0)
        self.assertEqual([of_worker["is_alive"] for of_worker in printed], [[False, True]] * 2)
        # The time of the first is of the process, and so in that of the second.
        waited, total = (
            sum(of_worker[name] for of_worker in printed) for name in ("waited", "total")
        )
        self.assertStartsWith(said, "5 steps: ")
        self.assertEndsWith(said, f"waited {waited / total:.0%} of the time")

    def test_there_is_none_where_tensorflow_reduces(self):
        code, printed, said = self.train(compression="None")
        self.assertEqual((code, len(printed), said), (0, 2, []))

    def test_there_is_none_of_a_program_that_has_failed(self):
        code, printed, said = self.train(end='raise ValueError("at the end")')
        self.assertEqual((code, len(printed)), (1, 2))
        self.assertRegex(" ".join(said), "^worker . failed first: exit code 1$")

    def test_a_process_that_has_written_nothing_is_left_out(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        self.assertIsNone(summary.read_summary(folder))
        for rank, waited in enumerate((3.0, 1.0)):
            numbers = {
                "steps": 1200,
                "bytes_sent": 1_000_000 * (rank + 1),
                "values_sent": 12_000_000,
                "seconds_waited": waited,
                "seconds": 10.0,
            }
            (folder / f"worker {rank}.json").write_text(json.dumps(numbers))
        self.assertEqual(
            summary.read_summary(folder),
            "1200 steps: each worker sent 1.5 MB, 1 bits a value, and waited 20% of the time",
        )

    def test_what_nobody_waited_for_is_no_share(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / "worker 0.json").write_text('{"steps": 2, "bytes_sent": 4, "values_sent": 8}')
        self.assertEndsWith(summary.read_summary(folder), "waited 0% of the time")

    def test_a_strategy_that_cannot_be_asked_is_told_and_left_out(self):
        class Strategy:
            def numbers(self):
                raise ConnectionError("the server is gone")

        with self.assertLogs(level="WARNING") as logs:
            self.assertEqual(summary._read(Strategy().numbers), {})
        self.assertIn("the server is gone", logs.output[0])


if __name__ == "__main__":
    absltest.main()
