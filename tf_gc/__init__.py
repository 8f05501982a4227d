import os

_directory = os.path.dirname(os.path.abspath(__file__))
if not os.path.isdir(os.path.join(_directory, "ops")):
    # A source tree, or Bazel's runfiles: `ops` lies beside this package.
    __path__.append(os.path.dirname(_directory))
