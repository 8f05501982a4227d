#!/usr/bin/env bash
# Sets everything up on a fresh Debian machine: ./setup.sh
# Installs what is missing, makes .venv, builds the ops and the package. A second
# run installs nothing and rebuilds only what has changed.
set -euo pipefail
cd "$(dirname "$0")"

fail() {
  echo "setup.sh: $*" >&2
  exit 1
}

# Runs a command whose words are shown only if it fails.
quietly() {
  local words
  words=$("$@" 2>&1) || { echo "$words" >&2 && return 1; }
}

for place in . .venv build .bazelrc.user; do
  [ ! -e "$place" ] || [ -w "$place" ] ||
    fail "$(realpath "$place") is $(stat -c %U "$place")'s, and $(id -un) may not write there:" \
      "run this as $(stat -c %U "$place"), or in a clone of your own"
done
home=${HOME:-~}
mkdir -p "$home/.cache" 2>/dev/null && [ -w "$home/.cache" ] ||
  fail "Bazel needs $home/.cache, where $(id -un) may not write: set HOME to a folder of your own"

packages=()
[ -n "${BAZEL:-}" ] || command -v bazel >/dev/null || command -v bazelisk >/dev/null ||
  packages+=(bazel-bootstrap)
command -v g++ >/dev/null || packages+=(g++)
[ -e /usr/include/gtest/gtest.h ] || packages+=(libgtest-dev)
[ -e /usr/include/gmock/gmock.h ] || packages+=(libgmock-dev)
[ -e /usr/include/benchmark/benchmark.h ] || packages+=(libbenchmark-dev)
python="${PYTHON:-python3.11}"
if ! command -v "$python" >/dev/null; then
  [ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is no command here: name one that is"
  python=python3
fi
"$python" -c 'import ensurepip, sysconfig, os; assert os.path.exists(sysconfig.get_path("include") + "/Python.h")' \
  2>/dev/null || packages+=(python3-dev python3-venv)
if [ ${#packages[@]} -gt 0 ]; then
  command -v apt-get >/dev/null ||
    fail "there is no apt-get here: install what Debian calls ${packages[*]}, then run this again"
  sudo=()
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null ||
      fail "root is needed once: run 'sudo apt-get install ${packages[*]}', then this again"
    sudo=(sudo)
  fi
  echo "Installing ${packages[*]} with apt-get ..."
  quietly "${sudo[@]}" apt-get update -qq &&
    quietly "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends "${packages[@]}" ||
    fail "apt-get could not install ${packages[*]}, for what it says above"
fi

if [ ! -x .venv/bin/pip ]; then  # or it was interrupted
  "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' ||
    fail "Python 3.10 to 3.13 is needed, and $python is $("$python" -V):" \
      "name another one, as in PYTHON=python3.11 ./setup.sh"
  "$python" -m venv .venv
elif [ -n "${PYTHON:-}" ]; then
  ours=$(.venv/bin/python -V) given=$("$python" -V)
  [ "${ours%.*}" = "${given%.*}" ] ||
    fail ".venv has $ours, and PYTHON=$PYTHON is $given: remove .venv first"
fi
# What is compiled is kept: another branch, or a wheel, compiles what differs.
cat >.bazelrc.user <<END
build --repo_env=PYTHON_BIN_PATH=$PWD/.venv/bin/python
build --disk_cache=$PWD/build/bazel_cache
END

install() {
  .venv/bin/pip install -qq --disable-pip-version-check "$@" ||
    fail "pip could not install $*, for what it says above"
}

# Once for every content of these files.
wanted=$(cat requirements-dev.txt pyproject.toml build_tools/keras_alone.py | sha256sum)
[ "$(cat .venv/tf_gc_requirements 2>/dev/null)" = "$wanted" ] && is_new= || is_new=1
if [ "$is_new" ]; then
  echo "Installing TensorFlow and the tools into .venv with pip ..."
  install -r requirements-dev.txt
  # Its metadata asks for the distribution `tensorflow`, which the CPU build replaces.
  install --no-deps 'tf-keras==2.21.*'
  .venv/bin/python build_tools/keras_alone.py
fi
echo "Building with Bazel what has changed ..."
.venv/bin/python setup.py -q build_bazel --inplace
if [ "$is_new" ]; then
  install --no-build-isolation --no-deps -e . # which builds nothing anew
  echo "$wanted" >.venv/tf_gc_requirements
fi
