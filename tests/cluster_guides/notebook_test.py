"""The guide's notebook, run from its first cell to its last: make clusters."""

import os
import pathlib
import sys
from unittest import mock

import nbclient
import nbformat
from absl.testing import absltest

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def _text(cell):
    return "".join(output.get("text", "") for output in cell.outputs)


class NotebookTest(absltest.TestCase):
    def test_both_ways_to_start_workers_train_compressed(self):
        notebook = nbformat.read(_ROOT / "examples/clusters/notebook.ipynb", as_version=4)
        environment = {
            "PATH": f"{_ROOT}/.venv/bin:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, sys.path)]),
        }
        with mock.patch.dict(os.environ, environment):
            nbclient.NotebookClient(
                notebook, resources={"metadata": {"path": self.create_tempdir().full_path}}
            ).execute()
        _, launch, _, call = [cell for cell in notebook.cells if cell.cell_type == "code"][1:]
        print(_text(launch), _text(call))
        for worker in range(2):
            self.assertRegex(_text(launch), rf"worker {worker}: accuracy 0\.9\d")
            self.assertIn(f"[worker {worker}] the mean is 0.50", _text(call))
        self.assertIn("140 steps: each worker sent", _text(launch))


if __name__ == "__main__":
    absltest.main()
