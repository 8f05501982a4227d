#!/usr/bin/env bash
# make clusters: runs what docs/clusters says, one test after the other.
set -euo pipefail
cd "$(dirname "$0")/../.."

venv=build/clusters_venv
if [ ! -x $venv/bin/ray ]; then
  .venv/bin/python -m venv $venv
  $venv/bin/pip install --quiet -r tests/cluster_guides/requirements.txt
fi
# What .venv has, TensorFlow above all, comes first.
packages="$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
for test in tests/cluster_guides/*_test.py; do
  PYTHONPATH=".:$packages" $venv/bin/python "$test"
done
