#!/usr/bin/env bash
# Prints the figures of docs/performance.md and docs/scale.md: make benchmark, on an idle machine.
set -euo pipefail
cd "$(dirname "$0")/.."

bazel build --noshow_progress --ui_event_filters=-info //benchmarks:kernels_benchmark
bazel-bin/benchmarks/kernels_benchmark --benchmark_enable_random_interleaving=true \
  --benchmark_min_time=0.03 --benchmark_repetitions=9 --benchmark_report_aggregates_only=true

bazel build --noshow_progress --ui_event_filters=-info \
  //benchmarks:parameter_server_round_benchmark //benchmarks:parameter_server_load_benchmark
bazel-bin/benchmarks/parameter_server_round_benchmark --benchmark_repetitions=3 \
  --benchmark_report_aggregates_only=true
bazel-bin/benchmarks/parameter_server_load_benchmark --benchmark_min_time=3

.venv/bin/python benchmarks/top_k_benchmark.py
.venv/bin/python benchmarks/top_k_benchmark.py --threads 2

launch=(.venv/bin/tf_gc-launch --workers 2)
"${launch[@]}" benchmarks/all_reduce_benchmark.py
.venv/bin/tf_gc-launch --workers 12 benchmarks/all_reduce_benchmark.py \
  --mebibytes 4 --variables 10 --turns 2 --steps 6
.venv/bin/python benchmarks/memory_benchmark.py
if [ "$(id -u)" = 0 ]; then
  "${launch[@]}" --bandwidth 100mbit benchmarks/all_reduce_benchmark.py --turns 2 --steps 5
  .venv/bin/python benchmarks/all_reduce_chart.py --out docs/performance/all_reduce.png
  .venv/bin/python benchmarks/overlap_profile.py --out docs/scale/overlap.png
fi

servers=(.venv/bin/tf_gc-launch --workers 3 --ps 1)
"${servers[@]}" benchmarks/parameter_server_benchmark.py
if [ "$(id -u)" = 0 ]; then
  "${servers[@]}" --bandwidth 100mbit benchmarks/parameter_server_benchmark.py \
    --variables 1 --rows 1024 --columns 1024 --steps 18 --steps_per_call 3 --turns 2
fi
