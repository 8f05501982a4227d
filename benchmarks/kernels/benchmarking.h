// What the benchmarks of the kernels share.
//
// Rates are bytes of float32 a second, whatever a kernel makes of them. Those
// of docs/performance.md are divided by that of Memcpy in the same run:
//
//   bazel run //benchmarks:kernels_benchmark -- --benchmark_filter=Memcpy

#ifndef TF_GC_BENCHMARKS_KERNELS_BENCHMARKING_H_
#define TF_GC_BENCHMARKS_KERNELS_BENCHMARKING_H_

#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "benchmark/benchmark.h"
#include "ops/kernels/dispatch.h"
#include "ops/kernels/parallel.h"

namespace tf_gc::kernels {

// 64 MiB of float32: well above the caches.
inline constexpr int64_t kValues = int64_t{1} << 24;

inline void SetRate(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * kValues * sizeof(float));
}

// Gaussian values.
inline std::vector<float> RandomValues(int64_t n) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

// Two threads, each with half of the work.
inline void TwoThreads(int64_t total, int64_t /*cost*/,
                       const ParallelWork& work) {
  const int64_t half = total / 2;
  std::thread other([&] {
    if (half > 0) work(0, half);
  });
  if (half < total) work(half, total);
  other.join();
}

// Registers run(state, parallel_for) as name/<instruction set>/<threads> for
// every instruction set and for one thread and two.
template <typename Run>
bool RegisterForAll(const std::string& name, const Run& run) {
  for (const InstructionSet set : SupportedInstructionSets()) {
    for (const int threads : {1, 2}) {
      const std::string full_name = name + "/" +
                                    std::string(InstructionSetName(set)) + "/" +
                                    std::to_string(threads);
      const ParallelFor parallel_for =
          threads == 1 ? ParallelFor(SingleThread) : ParallelFor(TwoThreads);
      benchmark::RegisterBenchmark(full_name.c_str(),
                                   [=](benchmark::State& state) {
                                     SetInstructionSet(set);
                                     run(state, parallel_for);
                                   })
          ->UseRealTime();
    }
  }
  return true;
}

}  // namespace tf_gc::kernels

#endif  // TF_GC_BENCHMARKS_KERNELS_BENCHMARKING_H_
