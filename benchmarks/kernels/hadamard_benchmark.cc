// Speed of the Hadamard transforms, and of FFHT, a fast one in C, if the
// environment variable TF_GC_FFHT_LIBRARY names a shared library of it:
//
//   git clone https://github.com/FALCONN-LIB/FFHT
//   (cd FFHT && gcc -O3 -march=native -shared -fPIC -o libffht.so fht.c
//   fast_copy.c) TF_GC_FFHT_LIBRARY=$PWD/FFHT/libffht.so bazel run
//     //benchmarks:kernels_benchmark -- --benchmark_filter=Row
//     --benchmark_enable_random_interleaving=true --benchmark_repetitions=20
//     --benchmark_min_time=0.02 --benchmark_report_aggregates_only=true
//
// FFHT transforms in place and leaves the factor size^(-1/2) out; the kernels
// here include it, and write to memory of their own unless a row's name says
// otherwise.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "benchmarks/kernels/benchmarking.h"
#include "ops/kernels/hadamard.h"

namespace tf_gc::kernels {
namespace {

constexpr Seed kSeed = {1, 2};

// All rows of `size` values that kValues has.
template <typename Transform>
void TransformRows(benchmark::State& state, int64_t size,
                   const Transform& transform) {
  const std::vector<float> values = RandomValues(kValues);
  std::vector<float> transformed(kValues);
  for (auto _ : state) {
    transform(values.data(), kValues / size, size, transformed.data());
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

void TransformRow(benchmark::State& state, InstructionSet set, int64_t size,
                  bool is_in_place) {
  SetInstructionSet(set);
  std::vector<float> values = RandomValues(size);
  std::vector<float> transformed(is_in_place ? 0 : size);
  float* const to = is_in_place ? values.data() : transformed.data();
  for (auto _ : state) {
    Hadamard(values.data(), 1, size, to, SingleThread);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * size * sizeof(float));
}

using FfhtFunction = int (*)(float* values, int log_size);

void FfhtRow(benchmark::State& state, FfhtFunction transform, int log_size) {
  const int64_t size = int64_t{1} << log_size;
  // Others would grow without end.
  std::vector<float> values(size, 0.0f);
  for (auto _ : state) {
    transform(values.data(), log_size);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * size * sizeof(float));
}

void RegisterRows(FfhtFunction ffht) {
  for (int log_size = 10; log_size <= 24; ++log_size) {
    const std::string name = "Row/2^" + std::to_string(log_size);
    benchmark::RegisterBenchmark(
        (name + "/FFHT").c_str(),
        [=](benchmark::State& state) { FfhtRow(state, ffht, log_size); });
    for (const InstructionSet set : SupportedInstructionSets()) {
      const std::string set_name =
          name + "/" + std::string(InstructionSetName(set));
      const int64_t size = int64_t{1} << log_size;
      benchmark::RegisterBenchmark(
          set_name.c_str(), [=](benchmark::State& state) {
            TransformRow(state, set, size, /*is_in_place=*/false);
          });
      benchmark::RegisterBenchmark(
          (set_name + "/in place").c_str(), [=](benchmark::State& state) {
            TransformRow(state, set, size, /*is_in_place=*/true);
          });
    }
  }
}

const bool kRegistered = [] {
  for (const int log_size : {10, 13, 24}) {
    const int64_t size = int64_t{1} << log_size;
    RegisterForAll(
        "Hadamard/2^" + std::to_string(log_size),
        [=](benchmark::State& state, const ParallelFor& parallel_for) {
          TransformRows(state, size, [&](auto... arguments) {
            Hadamard(arguments..., parallel_for);
          });
        });
  }
  RegisterForAll(
      "RandomizedHadamard/2^24",
      [](benchmark::State& state, const ParallelFor& parallel_for) {
        TransformRows(
            state, kValues,
            [&](const float* values, int64_t rows, int64_t size, float* to) {
              RandomizedHadamard(values, rows, size, kSeed, to, parallel_for);
            });
      });
  RegisterForAll(
      "InverseRandomizedHadamard/2^24",
      [](benchmark::State& state, const ParallelFor& parallel_for) {
        TransformRows(
            state, kValues,
            [&](const float* values, int64_t rows, int64_t size, float* to) {
              InverseRandomizedHadamard(values, rows, size, kSeed, to,
                                        parallel_for);
            });
      });
  const char* const library = std::getenv("TF_GC_FFHT_LIBRARY");
  if (library != nullptr) {
    void* const handle = dlopen(library, RTLD_NOW);
    void* const symbol = handle ? dlsym(handle, "fht_float") : nullptr;
    if (symbol == nullptr) {
      std::fprintf(stderr, "TF_GC_FFHT_LIBRARY: %s\n", dlerror());
      std::exit(1);
    }
    RegisterRows(reinterpret_cast<FfhtFunction>(symbol));
  }
  return true;
}();

}  // namespace
}  // namespace tf_gc::kernels
