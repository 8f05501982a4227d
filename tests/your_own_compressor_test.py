"""docs/your_own_compressor.md: its code, as it stands there, passes its test."""

import pathlib
import re
import subprocess
import sys
import tempfile

_PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "your_own_compressor.md"


def main():
    """Writes each block of Python that begins with a file's name to that file; runs the test."""
    with tempfile.TemporaryDirectory() as directory:
        page = _PAGE.read_text(encoding="utf-8")
        for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL):
            pathlib.Path(directory, name).write_text(code, encoding="utf-8")
        program = pathlib.Path(directory, "clipped_four_bit_test.py")
        return subprocess.call([sys.executable, program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
