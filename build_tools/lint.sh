#!/usr/bin/env bash
# Checks the format and the common mistakes of all sources; --fix mends the format.
set -euo pipefail
cd "$(dirname "$0")/.."

fix="${1:-}"
# Assignments, which end this where git fails; process substitutions would not.
cpp=$(git ls-files '*.cc' '*.h' '*.cu' '*.cuh')
starlark=$(git ls-files 'WORKSPACE' '*BUILD' '*.bzl' | grep -v '^third_party/offline_rules/')
mapfile -t cpp <<<"$cpp"
mapfile -t starlark <<<"$starlark"
[ -x node_modules/.bin/buildifier ] || npm install --silent --no-save --no-fund --no-audit @bazel/buildifier@8.2.1

if [ "$fix" = --fix ]; then
  .venv/bin/clang-format -i "${cpp[@]}"
  .venv/bin/ruff check --quiet --fix .
  .venv/bin/ruff format --quiet .
  node_modules/.bin/buildifier "${starlark[@]}"
else
  .venv/bin/clang-format --dry-run -Werror "${cpp[@]}"
  .venv/bin/ruff check --quiet .
  .venv/bin/ruff format --quiet --check .
  node_modules/.bin/buildifier -mode=check "${starlark[@]}"
fi
