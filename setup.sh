#!/usr/bin/env bash
# Sets everything up on a fresh Debian machine: ./setup.sh
# Installs what is missing, makes .venv, builds the ops and the package. A second
# run installs nothing and rebuilds only what has changed.
set -euo pipefail
cd "$(dirname "$0")"

packages=()
command -v bazel >/dev/null || command -v bazelisk >/dev/null || packages+=(bazel-bootstrap)
command -v g++ >/dev/null || packages+=(g++)
[ -e /usr/include/gtest/gtest.h ] || packages+=(libgtest-dev)
[ -e /usr/include/gmock/gmock.h ] || packages+=(libgmock-dev)
[ -e /usr/include/benchmark/benchmark.h ] || packages+=(libbenchmark-dev)
python="${PYTHON:-python3.11}"
command -v "$python" >/dev/null || python=python3
"$python" -c 'import ensurepip, sysconfig, os; assert os.path.exists(sysconfig.get_path("include") + "/Python.h")' \
  2>/dev/null || packages+=(python3-dev python3-venv)
if [ ${#packages[@]} -gt 0 ]; then
  sudo=()
  if [ "$(id -u)" != 0 ]; then
    if ! command -v apt-get >/dev/null || ! sudo -n true 2>/dev/null; then
      echo "Please install, then run this again: ${packages[*]}" >&2
      exit 1
    fi
    sudo=(sudo)
  fi
  echo "Installing ${packages[*]} ..."
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${packages[@]}"
fi

[ -x .venv/bin/python ] || "$python" -m venv .venv
# What is compiled is kept: another branch, or a wheel, compiles what differs.
cat >.bazelrc.user <<END
build --repo_env=PYTHON_BIN_PATH=$PWD/.venv/bin/python
build --disk_cache=$PWD/build/bazel_cache
END
# Once for every content of the requirements.
wanted=$(cat requirements-dev.txt pyproject.toml | sha256sum)
if [ "$(cat .venv/tf_gc_requirements 2>/dev/null)" != "$wanted" ]; then
  echo "Installing TensorFlow and the tools into .venv ..."
  .venv/bin/pip install -q --disable-pip-version-check -r requirements-dev.txt
  # Its metadata asks for the distribution `tensorflow`, which the CPU build replaces.
  .venv/bin/pip install -q --disable-pip-version-check --no-deps 'tf-keras==2.21.*'
  .venv/bin/pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .
  echo "$wanted" >.venv/tf_gc_requirements
else
  .venv/bin/python setup.py -q build_bazel --inplace
fi
