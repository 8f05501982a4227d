// Speed of top-k selection, chunk-wise selection, histograms of magnitudes, the
// packing of indices, and sums of what workers have selected.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/kernels/benchmarking.h"
#include "ops/kernels/chunk_argmax.h"
#include "ops/kernels/index_packing.h"
#include "ops/kernels/magnitude_histogram.h"
#include "ops/kernels/selected_sum.h"
#include "ops/kernels/top_k.h"

namespace tf_gc::kernels {
namespace {

using Values = std::vector<float>;
using Indices = std::vector<int32_t>;

// ---- Top-k ------------------------------------------------------------------

// Values by name: Gaussian ones, and some that are hard to select from.
const Values& GetValues(const std::string& name) {
  static auto* values_by_name = new std::map<std::string, Values>();
  const auto found = values_by_name->find(name);
  if (found != values_by_name->end()) return found->second;
  Values values =
      name == "gaussian" ? RandomValues(kValues) : Values(kValues, 1.0f);
  std::mt19937 generator(2);
  for (int64_t i = 0; i < kValues; ++i) {
    if (name == "ascending") values[i] = static_cast<float>(i);
    if (name == "mostly zero")
      values[i] = generator() % 500 == 0 ? 1.0f + i : 0;
    if (name == "few values") values[i] = static_cast<float>(generator() % 5);
    if (name == "heavy tail") {
      values[i] = std::pow(static_cast<float>(generator()) * 0x1p-32f, -9.0f);
    }
  }
  return values_by_name->emplace(name, std::move(values)).first->second;
}

void TopK(benchmark::State& state, const ParallelFor& parallel_for,
          const std::string& name, int64_t n, int64_t k) {
  const Values& values = GetValues(name);
  Indices indices(k);
  for (auto _ : state) {
    TopKIndices(values.data(), n, k, indices.data(), parallel_for);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * n * sizeof(float));
}

void RegisterTopK(const std::string& label, const std::string& name, int64_t n,
                  int64_t k) {
  RegisterForAll("TopK/" + label,
                 [=](benchmark::State& state, const ParallelFor& parallel_for) {
                   TopK(state, parallel_for, name, n, k);
                 });
}

const bool kTopKRegistered = [] {
  constexpr int64_t kSmall = int64_t{1} << 20;
  RegisterTopK("2^20/1%", "gaussian", kSmall, kSmall / 100);
  RegisterTopK("0.1%", "gaussian", kValues, kValues / 1000);
  RegisterTopK("1%", "gaussian", kValues, kValues / 100);
  RegisterTopK("10%", "gaussian", kValues, kValues / 10);
  RegisterTopK("25%", "gaussian", kValues, kValues / 4);
  RegisterTopK("50%", "gaussian", kValues, kValues / 2);
  RegisterTopK("all but 1", "gaussian", kValues, kValues - 1);
  for (const std::string name :
       {"equal", "ascending", "mostly zero", "few values", "heavy tail"}) {
    RegisterTopK(name + "/1%", name, kValues, kValues / 100);
  }
  return true;
}();

// ---- Chunks -----------------------------------------------------------------

void Argmax(benchmark::State& state, const ParallelFor& parallel_for,
            int64_t chunk) {
  const Values& values = GetValues("gaussian");
  Indices indices(NumChunks(kValues, chunk));
  for (auto _ : state) {
    ChunkArgmax(values.data(), kValues, chunk, indices.data(), parallel_for);
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

const bool kArgmaxRegistered = [] {
  for (const int64_t chunk : {2, 4, 7, 8, 16, 17, 30, 64, 100, 1000}) {
    RegisterForAll(
        "ChunkArgmax/" + std::to_string(chunk),
        [=](benchmark::State& state, const ParallelFor& parallel_for) {
          Argmax(state, parallel_for, chunk);
        });
  }
  return true;
}();

// ---- Histograms
// --------------------------------------------------------------

void Histogram(benchmark::State& state, const ParallelFor& parallel_for,
               const std::string& name) {
  const Values& values = GetValues(name);
  std::vector<int64_t> counts(kMagnitudeBins);
  std::vector<double> squares(kMagnitudeBins);
  for (auto _ : state) {
    MagnitudeHistogram(values.data(), kValues, counts.data(), squares.data(),
                       parallel_for);
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

const bool kHistogramRegistered = [] {
  for (const std::string name :
       {"gaussian", "equal", "mostly zero", "heavy tail"}) {
    RegisterForAll(
        "MagnitudeHistogram/" + name,
        [=](benchmark::State& state, const ParallelFor& parallel_for) {
          Histogram(state, parallel_for, name);
        });
  }
  return true;
}();

// ---- Packing ----------------------------------------------------------------

// About a percentage of all indices, at random.
const Indices& GetIndices(int percent) {
  static auto* by_percent = new std::map<int, Indices>();
  const auto found = by_percent->find(percent);
  if (found != by_percent->end()) return found->second;
  std::mt19937 generator(3);
  Indices indices;
  for (int64_t i = 0; i < kValues; ++i) {
    if (static_cast<int>(generator() % 100) < percent) {
      indices.push_back(static_cast<int32_t>(i));
    }
  }
  return by_percent->emplace(percent, std::move(indices)).first->second;
}

void SetCounters(benchmark::State& state, int64_t k) {
  state.counters["bits_per_index"] =
      8.0 * static_cast<double>(PackedIndicesSize(k, kValues)) / k;
  state.counters["indices_per_second"] = benchmark::Counter(
      static_cast<double>(k), benchmark::Counter::kIsIterationInvariantRate);
}

// What the op does: the check, too.
void Pack(benchmark::State& state, InstructionSet set, int percent) {
  SetInstructionSet(set);
  const Indices& indices = GetIndices(percent);
  const int64_t k = indices.size();
  std::vector<uint8_t> packed(PackedIndicesSize(k, kValues));
  for (auto _ : state) {
    benchmark::DoNotOptimize(FindNotAscending(indices.data(), k, kValues));
    PackIndices(indices.data(), k, kValues, packed.data());
    benchmark::ClobberMemory();
  }
  SetCounters(state, k);
}

void Unpack(benchmark::State& state, InstructionSet set, int percent) {
  SetInstructionSet(set);
  Indices indices = GetIndices(percent);
  const int64_t k = indices.size();
  std::vector<uint8_t> packed(PackedIndicesSize(k, kValues));
  PackIndices(indices.data(), k, kValues, packed.data());
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        UnpackIndices(packed.data(), k, kValues, indices.data()));
    benchmark::ClobberMemory();
  }
  SetCounters(state, k);
}

const bool kPackingRegistered = [] {
  for (const InstructionSet set : SupportedInstructionSets()) {
    for (const int percent : {1, 10, 25, 50}) {
      const std::string suffix = "/" + std::string(InstructionSetName(set)) +
                                 "/" + std::to_string(percent) + "%";
      benchmark::RegisterBenchmark(
          ("PackIndices" + suffix).c_str(),
          [=](benchmark::State& state) { Pack(state, set, percent); });
      benchmark::RegisterBenchmark(
          ("UnpackIndices" + suffix).c_str(),
          [=](benchmark::State& state) { Unpack(state, set, percent); });
    }
  }
  return true;
}();

// ---- Sums of what workers have selected -------------------------------------

void Sum(benchmark::State& state, const ParallelFor& parallel_for,
         int64_t workers, int percent) {
  const Indices& selected = GetIndices(percent);
  const int64_t k = selected.size(), size = SelectedSize(k, kValues);
  std::vector<uint8_t> messages(workers * size);
  for (int64_t w = 0; w < workers; ++w) {
    PackIndices(selected.data(), k, kValues, messages.data() + w * size);
  }
  Indices indices(workers * k);
  Values sums(kValues);
  for (auto _ : state) {
    benchmark::DoNotOptimize(SumSelected(messages.data(), workers, k, kValues,
                                         parallel_for, indices.data(),
                                         sums.data()));
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

const bool kSumRegistered = [] {
  for (const int64_t workers : {2, 8}) {
    for (const int percent : {1, 10}) {
      RegisterForAll(
          "SumSelected/" + std::to_string(workers) + "/" +
              std::to_string(percent) + "%",
          [=](benchmark::State& state, const ParallelFor& parallel_for) {
            Sum(state, parallel_for, workers, percent);
          });
    }
  }
  return true;
}();

}  // namespace
}  // namespace tf_gc::kernels
