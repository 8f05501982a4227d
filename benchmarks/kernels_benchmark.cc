// Speed of the 3LC kernels on one thread, as float bytes a second, beside
// memcpy of the same buffer: bytes_per_second of two rows give the ratio.
//
//   bazel run //benchmarks:kernels_benchmark

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "ops/kernels/dispatch.h"
#include "ops/kernels/three_lc.h"

namespace tf_gc::kernels {
namespace {

// 64 MiB of float32: well above the caches.
constexpr int64_t kValues = int64_t{1} << 24;

constexpr int kWarmUpSteps = 10;

// A gradient, its residual, and their payload.
struct Gradient {
  std::vector<float> values;
  std::vector<float> residual;
  std::vector<uint8_t> payload;
  float scale;
  int64_t payload_size;
};

std::vector<float> RandomValues(std::mt19937& generator) {
  std::normal_distribution<float> normal;
  std::vector<float> values(kValues);
  for (float& value : values) value = normal(generator);
  return values;
}

// Gaussian values, and the residual after as many steps of training as it takes
// for the payload to look as it then does. A new step's values are the last
// one's, shifted and mirrored: as good as fresh ones, and much faster to make.
Gradient MakeGradient(float sparsity_multiplier) {
  std::mt19937 generator(1);
  Gradient gradient = {RandomValues(generator), std::vector<float>(kValues),
                       std::vector<uint8_t>(ThreeLcBufferSize(kValues)), 0, 0};
  for (int step = 0; step < kWarmUpSteps; ++step) {
    gradient.scale =
        sparsity_multiplier *
        MaxAbsSum(gradient.values.data(), gradient.residual.data(), kValues);
    gradient.payload_size = ThreeLcEncode(
        gradient.values.data(), gradient.residual.data(), gradient.scale,
        kValues, gradient.residual.data(), gradient.payload.data());
    std::rotate(gradient.values.begin(),
                gradient.values.begin() + generator() % kValues,
                gradient.values.end());
    for (float& value : gradient.values) value = -value;
  }
  return gradient;
}

// Values of which few quartic bytes are 121: the payload cannot be compressed.
Gradient MakeDense() {
  std::mt19937 generator(1);
  Gradient gradient = {std::vector<float>(kValues), std::vector<float>(kValues),
                       std::vector<uint8_t>(ThreeLcBufferSize(kValues)), 1, 0};
  for (float& value : gradient.values) {
    value = static_cast<float>(generator() % 3) - 1;
  }
  std::vector<float> new_residual(kValues);
  gradient.payload_size =
      ThreeLcEncode(gradient.values.data(), nullptr, gradient.scale, kValues,
                    new_residual.data(), gradient.payload.data());
  return gradient;
}

const Gradient& GetGradient(const std::string& name) {
  static auto* gradients = new std::map<std::string, Gradient>();
  if (gradients->find(name) == gradients->end()) {
    (*gradients)[name] = name == "dense" ? MakeDense()
                         : name == "s=1" ? MakeGradient(1.0f)
                                         : MakeGradient(1.75f);
  }
  return gradients->at(name);
}

void SetRate(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * kValues * sizeof(float));
}

void SetBitsPerValue(benchmark::State& state, const Gradient& gradient) {
  state.counters["bits_per_value"] =
      8.0 * static_cast<double>(gradient.payload_size) / kValues;
}

void BM_Memcpy(benchmark::State& state) {
  const std::vector<float> from(kValues, 1.0f);
  std::vector<float> to(kValues, 2.0f);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), kValues * sizeof(float));
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

void BM_MaxAbsSum(benchmark::State& state, InstructionSet set) {
  SetInstructionSet(set);
  const Gradient& gradient = GetGradient("s=1");
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        MaxAbsSum(gradient.values.data(), gradient.residual.data(), kValues));
  }
  SetRate(state);
}

// The whole encoding, in place as in training: MaxAbsSum and ThreeLcEncode. The
// scale stays the prepared one, so that every turn does the same work; after
// the first few the residuals are those of one constant gradient.
void BM_Encode(benchmark::State& state, InstructionSet set,
               const std::string& name) {
  SetInstructionSet(set);
  const Gradient& gradient = GetGradient(name);
  std::vector<float> residual = gradient.residual;
  std::vector<float> values = gradient.values;
  std::vector<uint8_t> payload(ThreeLcBufferSize(kValues));
  int64_t size = 0;
  for (auto _ : state) {
    const float scale = MaxAbsSum(values.data(), residual.data(), kValues);
    size = ThreeLcEncode(values.data(), residual.data(),
                         std::max(scale, gradient.scale), kValues,
                         residual.data(), payload.data());
    benchmark::ClobberMemory();
  }
  SetRate(state);
  state.counters["bits_per_value"] = 8.0 * static_cast<double>(size) / kValues;
}

void BM_Decode(benchmark::State& state, InstructionSet set,
               const std::string& name) {
  SetInstructionSet(set);
  const Gradient& gradient = GetGradient(name);
  std::vector<float> values(kValues);
  for (auto _ : state) {
    ThreeLcDecode(gradient.payload.data(), gradient.payload_size,
                  gradient.scale, kValues, values.data());
    benchmark::ClobberMemory();
  }
  SetRate(state);
  SetBitsPerValue(state, gradient);
}

void BM_DecodeAdd(benchmark::State& state, InstructionSet set,
                  const std::string& name) {
  SetInstructionSet(set);
  const Gradient& gradient = GetGradient(name);
  std::vector<float> sum(kValues, 1.0f);
  for (auto _ : state) {
    ThreeLcDecodeAdd(gradient.payload.data(), gradient.payload_size,
                     gradient.scale, kValues, sum.data());
    benchmark::ClobberMemory();
  }
  SetRate(state);
  SetBitsPerValue(state, gradient);
}

template <typename Function>
void RegisterForAllGradients(const std::string& name, InstructionSet set,
                             Function* function) {
  const std::string set_name(InstructionSetName(set));
  for (const std::string gradient : {"s=1", "s=1.75", "dense"}) {
    benchmark::RegisterBenchmark(
        (name + "/" + set_name + "/" + gradient).c_str(),
        [=](benchmark::State& state) { function(state, set, gradient); });
  }
}

const bool kRegistered = [] {
  benchmark::RegisterBenchmark("Memcpy", BM_Memcpy);
  for (const InstructionSet set : SupportedInstructionSets()) {
    const std::string set_name(InstructionSetName(set));
    benchmark::RegisterBenchmark(
        ("MaxAbsSum/" + set_name).c_str(),
        [=](benchmark::State& state) { BM_MaxAbsSum(state, set); });
    RegisterForAllGradients("Encode", set, BM_Encode);
    RegisterForAllGradients("Decode", set, BM_Decode);
    RegisterForAllGradients("DecodeAdd", set, BM_DecodeAdd);
  }
  return true;
}();

}  // namespace
}  // namespace tf_gc::kernels
