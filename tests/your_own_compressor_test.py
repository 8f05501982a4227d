"""docs/your_own_compressor.md: its code, as it stands there, passes its test."""

import pathlib
import re
import sys
import tempfile

from absl.testing import absltest

_PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "your_own_compressor.md"


def _write_files(directory):
    """Writes each block of Python that begins with a file's name to that file."""
    page = _PAGE.read_text(encoding="utf-8")
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL):
        pathlib.Path(directory, name).write_text(code, encoding="utf-8")


_directory = tempfile.TemporaryDirectory()
_write_files(_directory.name)
sys.path.insert(0, _directory.name)  # and, so, of the workers

import clipped_four_bit_test  # noqa: E402


class PageTest(clipped_four_bit_test.ClippedFourBitTest):
    workers = (2, 3)


def tearDownModule():
    _directory.cleanup()


if __name__ == "__main__":
    absltest.main()
