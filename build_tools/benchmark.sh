#!/usr/bin/env bash
# Prints the figures of docs/performance.md: make benchmark, on an idle machine.
set -euo pipefail
cd "$(dirname "$0")/.."

bazel build --noshow_progress --ui_event_filters=-info //benchmarks:kernels_benchmark
bazel-bin/benchmarks/kernels_benchmark --benchmark_enable_random_interleaving=true \
  --benchmark_min_time=0.1 --benchmark_repetitions=10 --benchmark_report_aggregates_only=true

.venv/bin/python benchmarks/top_k_benchmark.py
.venv/bin/python benchmarks/top_k_benchmark.py --threads 2

launch=(.venv/bin/tf_gc-launch --workers 2)
"${launch[@]}" benchmarks/all_reduce_benchmark.py
if [ "$(id -u)" = 0 ]; then
  "${launch[@]}" --bandwidth 100mbit benchmarks/all_reduce_benchmark.py --turns 2 --steps 5
fi
