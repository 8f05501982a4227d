"""Behaviour of `python -m tf_gc.server`, by itself and under tf_gc-launch."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

from absl.testing import absltest, parameterized

from tests.cases import some_of
from tf_gc import launch

_PACKAGE_ROOT = pathlib.Path(launch.__file__).resolve().parents[2]
_TIMEOUT_SECONDS = 300.0

_CLUSTER = {"worker": ["localhost:1", "localhost:2"], "ps": ["localhost:3"]}


def _config(task_type, index, cluster=_CLUSTER):
    return json.dumps({"cluster": cluster, "task": {"type": task_type, "index": index}})


def _environment(config=None):
    path = [str(_PACKAGE_ROOT), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    environment.pop("TF_CONFIG", None)
    return {**environment, "TF_CONFIG": config} if config is not None else environment


def _run_to_its_end(config, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "tf_gc.server", *arguments],
        env=_environment(config),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )


@contextlib.contextmanager
def _running(config):
    """Yields a server that was started, and kills it at the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "tf_gc.server"],
        env=_environment(config),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


class ConfigTest(parameterized.TestCase):
    @parameterized.parameters(
        (None, "TF_CONFIG is not set"),
        ("", "TF_CONFIG is not set"),
        ("{", "TF_CONFIG is not JSON: "),
        ("[]", "TF_CONFIG has no task.type"),
        ("{}", "TF_CONFIG has no task.type"),
        ('{"task": {"type": "ps"}}', "TF_CONFIG has no cluster.ps"),
        ('{"task": {"type": "ps"}, "cluster": {"worker": []}}', "TF_CONFIG has no cluster.ps"),
        ('{"task": {"type": "ps"}, "cluster": {"ps": []}}', "TF_CONFIG has no task.index"),
        ('{"task": {"type": 1}}', "TF_CONFIG: task.type is 1, not a string"),
        (_config("ps", 0, {"ps": "a:1"}), "TF_CONFIG: cluster.ps is 'a:1', not a list"),
        (_config("ps", "0"), "TF_CONFIG: task.index is '0', not an integer"),
        (_config("worker", 2), "TF_CONFIG: task.index is 2, and cluster.worker has 2 entries"),
        (_config("worker", -1), "TF_CONFIG: task.index is -1, and cluster.worker has 2 entries"),
        (_config("ps", 0, {"ps": ["a:99999"]}), "TF_CONFIG: cluster.ps has 'a:99999', which is no"),
        (_config("ps", 0, {"ps": ["a"]}), "TF_CONFIG: cluster.ps has 'a', which is no host:port"),
        (
            _config("chief", 0),
            'TF_CONFIG: task.type is "chief", and a server is a "worker" or a "ps"',
        ),
    )
    def test_what_is_wrong_is_said_beside_an_example(self, config, message):
        result = _run_to_its_end(config)
        self.assertEqual(result.returncode, 1)
        self.assertIn(message, result.stderr.splitlines()[-1])
        self.assertIn("    TF_CONFIG='{", result.stderr)
        self.assertNotIn("Traceback", result.stderr)

    def test_an_argument_is_an_error(self):
        result = _run_to_its_end(_config("ps", 0), "--", "train.py")
        self.assertEqual(result.returncode, 1)
        self.assertIn("unexpected argument: train.py", result.stderr)

    def test_help_has_an_example_that_is_right(self):
        text = _run_to_its_end(None, "--help").stdout
        config = json.loads(re.search(r"TF_CONFIG='(.*?)'", text, re.DOTALL)[1])
        self.assertEqual(config["task"], {"type": "ps", "index": 0})
        self.assertEqual(set(config["cluster"]), {"worker", "ps", "chief"})


class ProcessTest(parameterized.TestCase):
    @some_of(signal.SIGTERM, signal.SIGINT)
    def test_a_server_says_where_it_listens_and_ends_quietly(self, number):
        [port] = launch.free_ports(1)
        config = _config("ps", 0, {"ps": [f"127.0.0.1:{port}"]})
        with _running(config) as process:
            self.assertEqual(process.stdout.readline(), f"ps 0 listens at 127.0.0.1:{port}\n")
            socket.create_connection(("127.0.0.1", port)).close()
            process.send_signal(number)
            output, errors = process.communicate(timeout=_TIMEOUT_SECONDS)
        self.assertEqual(process.returncode, -number)
        self.assertEqual(output, "")
        self.assertNotIn("Traceback", errors)

    def test_an_address_that_is_taken_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            address = f"127.0.0.1:{other.getsockname()[1]}"
            result = _run_to_its_end(_config("worker", 0, {"worker": [address]}))
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"tf_gc.server: worker 0 cannot listen at {address}: ", result.stderr)
        self.assertNotIn("Traceback", result.stderr)


# A quadratic whose minimum is at 3. Its step uses ops that a server has only with tf_gc; all
# gradients are equal, so that 3LC is exact.
_CHIEF = """
import json, os, pathlib, signal, sys
import tensorflow as tf
import tf_gc

def kill(task_type):
    config = json.loads(os.environ["TF_CONFIG"])
    config["task"] = {"type": task_type, "index": 0}
    variable = f"TF_CONFIG={json.dumps(config)}".encode()
    launcher = os.getppid()
    for pid in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        if variable in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(bytes(1)):
            os.kill(int(pid), signal.SIGKILL)

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = tf.Variable(tf.zeros([100]))

@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = 0.5 * tf.reduce_sum((weights - 3.0) ** 2)
    gradient = tape.gradient(loss, weights)
    encoded, _ = tf_gc.ops.three_lc_encode(gradient, tf.zeros([100]), 1.0)
    weights.assign_sub(0.2 * tf_gc.ops.three_lc_decode(encoded, [100]))

def train():
    weights.assign(tf.zeros([100]))
    for _ in range(50):
        coordinator.schedule(step)
    coordinator.join()
    for _ in range(50):  # what an update took from old weights dies out when all are from new ones
        coordinator.schedule(step)
        coordinator.join()
    print(weights.device, f"{weights[0].numpy():.3f}")

train()
for victim in sys.argv[1:]:
    kill(victim)
    train()
"""
_TRAINED = "/job:ps/replica:0/task:0/device:CPU:0 3.000"


class LaunchTest(absltest.TestCase):
    """Servers that tf_gc-launch starts, and a chief with TensorFlow's own strategy."""

    def launch(self, workers, *victims):
        program = self.create_tempfile("chief.py", _CHIEF).full_path
        return subprocess.run(
            [
                *(sys.executable, "-m", "tf_gc.launch", f"--workers={workers}", "--ps=1"),
                *(program, *victims),
            ],
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )

    def test_a_chief_trains_on_workers_and_a_parameter_server(self):
        result = self.launch(2)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertCountEqual(
            re.sub(r":\d+$", "", result.stdout, flags=re.MULTILINE).splitlines(),
            [
                "[worker 0] worker 0 listens at 127.0.0.1",
                "[worker 1] worker 1 listens at 127.0.0.1",
                "[ps 0] ps 0 listens at 127.0.0.1",
                f"[chief] {_TRAINED}",
            ],
        )
        self.assertNotIn("[tf_gc-launch]", result.stderr)

    def test_training_goes_on_when_its_only_worker_was_killed(self):
        result = self.launch(1, "worker")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count(_TRAINED), 2)
        self.assertIn("worker 0 ended: killed by SIGKILL; it starts again", result.stderr)

    def test_the_chief_notices_that_its_parameter_server_was_killed(self):
        result = self.launch(1, "ps")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stdout.count(_TRAINED), 1)
        self.assertIn("ps 0 ended: killed by SIGKILL; training cannot", result.stderr)
        self.assertIn("UnavailableError", result.stderr)


if __name__ == "__main__":
    absltest.main()
