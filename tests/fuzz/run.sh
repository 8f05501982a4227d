#!/usr/bin/env bash
# Builds every fuzzer with clang and runs each for its share of the time, one on
# each processor, from the inputs in tests/fuzz/corpus on; fails on the first
# finding, whose input is kept in the printed folder.
#
#   tests/fuzz/run.sh [seconds] [--merge]
#
# Seconds: of processor time, 60 in total if not given. --merge adds to the corpus what has reached
# new branches, and removes what others reach with fewer bytes.
#
# Needs: apt-get install clang libclang-rt-14-dev
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

total="${1:-60}"
merge="${2:-}"
corpus="$PWD/tests/fuzz/corpus"
fuzzers=(tests/fuzz/*_fuzzer.cc)
fuzzers=("${fuzzers[@]%.cc}")
share=$(((total + ${#fuzzers[@]} - 1) / ${#fuzzers[@]}))

work="$(mktemp -d)"
bazel build --config=asan --nobuild_tests_only "${fuzzers[@]/#tests\/fuzz\////tests/fuzz:}"
bin="$(bazel info --config=asan bazel-bin)/tests/fuzz"

run() {
  local name="$1"
  mkdir -p "$work/corpus/$name" "$work/findings/$name" "$corpus/$name"
  if ! "$bin/$name" -max_total_time="$share" -max_len=1024 -print_final_stats=1 \
    -artifact_prefix="$work/findings/$name/" "$work/corpus/$name" \
    "$corpus/$name" 2>"$work/$name.log"; then
    tail -40 "$work/$name.log"
    echo "$name: a finding, see $work/findings/$name" >&2
    return 255 # ends xargs
  fi
  echo "$name: $share s, $(grep -o "number_of_executed_units: *[0-9]*" "$work/$name.log")"
  if [ "$merge" = --merge ]; then
    mkdir "$work/merged_$name"
    # Branches alone, not how often they are taken: dozens of files, not hundreds.
    "$bin/$name" -merge=1 -use_counters=0 -max_len=1024 "$work/merged_$name" \
      "$corpus/$name" "$work/corpus/$name" 2>"$work/$name.log"
    rm -rf "${corpus:?}/$name"
    mv "$work/merged_$name" "$corpus/$name"
    echo "$name: $(find "$corpus/$name" -type f | wc -l) inputs"
  fi
}
export -f run
export bin corpus merge share work
printf '%s\n' "${fuzzers[@]##*/}" | xargs -P "$(nproc)" -I{} bash -euo pipefail -c 'run {}'
rm -r "$work"
