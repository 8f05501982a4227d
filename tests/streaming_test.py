"""examples/streaming.py on two workers, which takes half a minute: make matrix runs it.

Where tensorflow-io is installed, as with TensorFlow 2.17 there, it must read Parquet.
"""

import importlib.util
import pathlib
import re
import subprocess
import sys

from absl.testing import absltest

_PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "examples" / "streaming.py"
_SMALL = ("--layers=1", "--width=32", "--steps_per_epoch=40", "--shards=4", "--bandwidth=100mbit")


class StreamingTest(absltest.TestCase):
    def test_each_worker_reads_shards_of_its_own_and_they_learn(self):
        result = subprocess.run(
            [sys.executable, _PROGRAM, *_SMALL],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        output = result.stdout
        self.assertEqual(result.returncode, 0, output)
        reader = "TFRecords by tf.data, as"
        if importlib.util.find_spec("tensorflow_io"):
            reader = "Parquet by tensorflow-io"
        for worker in (0, 1):
            [line] = re.findall(rf"worker {worker}\] reads (.*)", output)
            self.assertStartsWith(line, reader)
            [line] = re.findall(rf"worker {worker}\] fetched .* MB: (.*)", output)
            # Training may end before the last one has come.
            in_order = ["held_out", f"text-{worker}-of-4", f"text-{worker + 2}-of-4"]
            fetched = re.findall(r"(\S+) after", line)
            self.assertGreater(len(fetched), 1)
            self.assertEqual(fetched, in_order[: len(fetched)])
        [bits] = re.findall(r"final bits_per_byte (.*)", output)
        self.assertLess(float(bits), 6)  # of 8
        self.assertRegex(output, r"40 steps: each worker sent .* bits a value")


if __name__ == "__main__":
    absltest.main()
