"""Keeps Keras from importing scikit-learn and Matplotlib.

Keras imports both where they are installed, and SciPy with them. That is a third of the time in
which TensorFlow is imported, and nothing here calls what Keras makes of them. All others may import
both as ever.

    .venv/bin/python build_tools/keras_alone.py    # makes .venv's Python import this when it starts
"""

import sys

_NOT_FOR_KERAS = "matplotlib", "sklearn"


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        del path, target
        if name in _NOT_FOR_KERAS and _importer().startswith("keras."):
            raise ModuleNotFoundError(f"{name} is not for Keras here: {__file__}", name=name)


def _importer():
    """Returns the name of the module that has the import statement."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "")


def main():
    import pathlib
    import shutil
    import sysconfig

    packages = pathlib.Path(sysconfig.get_path("purelib"))
    shutil.copy(__file__, packages)
    pathlib.Path(packages, "keras_alone.pth").write_text("import keras_alone\n", encoding="ascii")


if __name__ == "__main__":
    main()
else:
    sys.meta_path.insert(0, _Finder)
