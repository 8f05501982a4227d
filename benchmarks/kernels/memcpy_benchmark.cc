// What the other rates are compared with.

#include <cstring>
#include <vector>

#include "benchmarks/kernels/benchmarking.h"

namespace tf_gc::kernels {
namespace {

void Memcpy(benchmark::State& state, const ParallelFor& parallel_for) {
  const std::vector<float> from(kValues, 1.0f);
  std::vector<float> to(kValues, 2.0f);
  for (auto _ : state) {
    parallel_for(kValues, 1, [&](int64_t begin, int64_t end) {
      std::memcpy(to.data() + begin, from.data() + begin,
                  (end - begin) * sizeof(float));
    });
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

const bool kRegistered = [] {
  for (const int threads : {1, 2}) {
    const ParallelFor parallel_for =
        threads == 1 ? ParallelFor(SingleThread) : ParallelFor(TwoThreads);
    benchmark::RegisterBenchmark(
        ("Memcpy/" + std::to_string(threads)).c_str(),
        [=](benchmark::State& state) { Memcpy(state, parallel_for); })
        ->UseRealTime();
  }
  return true;
}();

}  // namespace
}  // namespace tf_gc::kernels
