// Speed of stochastic quantisation, bit packing and table sums.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/kernels/benchmarking.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/stochastic_quantize.h"
#include "ops/kernels/table_sum.h"

namespace tf_gc::kernels {
namespace {

constexpr int64_t kUnit = 4096;

const std::vector<float>& Values() {
  static const auto* const values =
      new std::vector<float>(RandomValues(kValues));
  return *values;
}

// 2^bits levels in [-2.7, 2.7], closer to one another around 0.
std::vector<float> IrregularLevels(int bits) {
  std::vector<float> levels(1 << bits);
  for (size_t i = 0; i < levels.size(); ++i) {
    const float place = 2 * static_cast<float>(i) / (levels.size() - 1) - 1;
    levels[i] = 1.9f * place + 0.8f * place * place * place;
  }
  return levels;
}

std::vector<uint8_t> Indices(int bits) {
  const std::vector<float> levels = IrregularLevels(bits);
  std::vector<uint8_t> indices(kValues);
  StochasticQuantize(Values().data(), kValues, levels.data(), levels.size(),
                     {1, 2}, 0, indices.data());
  return indices;
}

std::vector<uint8_t> Packed(int bits) {
  std::vector<uint8_t> packed(PackedSize(kValues, bits));
  PackBits(Indices(bits).data(), kValues, bits, packed.data());
  return packed;
}

void Quantize(benchmark::State& state, const ParallelFor& parallel_for,
              int bits) {
  const std::vector<float> levels = IrregularLevels(bits);
  const float* const values = Values().data();
  std::vector<uint8_t> indices(kValues);
  for (auto _ : state) {
    ParallelForUnits(parallel_for, kValues, kUnit, kStochasticQuantizeCost,
                     [&](int64_t begin, int64_t end) {
                       StochasticQuantize(values + begin, end - begin,
                                          levels.data(), levels.size(), {1, 2},
                                          begin, indices.data() + begin);
                     });
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

void QuantizePack(benchmark::State& state, const ParallelFor& parallel_for,
                  int bits) {
  const std::vector<float> levels = IrregularLevels(bits);
  const float* const values = Values().data();
  std::vector<uint8_t> packed(PackedSize(kValues, bits));
  for (auto _ : state) {
    ParallelForUnits(parallel_for, kValues, kUnit, kStochasticQuantizeCost,
                     [&](int64_t begin, int64_t end) {
                       StochasticQuantizePack(
                           values + begin, /*divisor=*/3, end - begin,
                           levels.data(), levels.size(), {1, 2}, begin, bits,
                           packed.data() + begin / 8 * bits);
                     });
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

void Pack(benchmark::State& state, const ParallelFor& parallel_for, int bits) {
  const std::vector<uint8_t> indices = Indices(bits);
  std::vector<uint8_t> packed(PackedSize(kValues, bits));
  for (auto _ : state) {
    ParallelForUnits(parallel_for, kValues, kUnit, 1,
                     [&](int64_t begin, int64_t end) {
                       PackBits(indices.data() + begin, end - begin, bits,
                                packed.data() + begin / 8 * bits);
                     });
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

void Unpack(benchmark::State& state, const ParallelFor& parallel_for,
            int bits) {
  const std::vector<uint8_t> packed = Packed(bits);
  std::vector<uint8_t> indices(kValues);
  for (auto _ : state) {
    ParallelForUnits(parallel_for, kValues, kUnit, 1,
                     [&](int64_t begin, int64_t end) {
                       UnpackBits(packed.data() + begin / 8 * bits, end - begin,
                                  bits, indices.data() + begin);
                     });
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

template <typename Lane>
void Sum(benchmark::State& state, const ParallelFor& parallel_for, int bits) {
  const std::vector<uint8_t> packed = Packed(bits);
  std::vector<Lane> table(1 << bits);
  for (size_t z = 0; z < table.size(); ++z) table[z] = static_cast<Lane>(z);
  std::vector<Lane> accumulator(kValues);
  for (auto _ : state) {
    ParallelForUnits(parallel_for, kValues, kUnit, kTableSumCost,
                     [&](int64_t begin, int64_t end) {
                       TableSum(packed.data() + begin / 8 * bits, end - begin,
                                table.data(), bits, accumulator.data() + begin);
                     });
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

using Benchmark = void(benchmark::State&, const ParallelFor&, int);

void RegisterForAllBits(const std::string& name, Benchmark* run) {
  for (const int bits : {2, 3, 4, 5, 8}) {
    RegisterForAll(
        name + "/" + std::to_string(bits),
        [=](benchmark::State& state, const ParallelFor& parallel_for) {
          run(state, parallel_for, bits);
        });
  }
}

const bool kRegistered = [] {
  RegisterForAllBits("StochasticQuantize", Quantize);
  RegisterForAllBits("StochasticQuantizePack", QuantizePack);
  RegisterForAllBits("PackBits", Pack);
  RegisterForAllBits("UnpackBits", Unpack);
  RegisterForAllBits("TableSum8", Sum<uint8_t>);
  RegisterForAllBits("TableSum16", Sum<uint16_t>);
  return true;
}();

}  // namespace
}  // namespace tf_gc::kernels
