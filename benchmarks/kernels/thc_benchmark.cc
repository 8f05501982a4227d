// Speed of THC's quantiser, of packed lanes, and of norms.

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/kernels/benchmarking.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/lane_packing.h"
#include "ops/kernels/thc.h"

namespace tf_gc::kernels {
namespace {

constexpr int64_t kUnit = 4096;
constexpr Seed kSigns = {1, 2}, kRounding = {3, 4};

// tf_gc.thc.optimal_table(4, 30, 1 / 32).
const ThcTable& Table() {
  static const auto* const table =
      new ThcTable({0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30});
  return *table;
}

// Of 64 MiB, as a training has them.
struct Blocks {
  ThcBlocks blocks{kValues};
  std::vector<float> limits = std::vector<float>(blocks.count, 2.5f);
  std::vector<float> values = RandomValues(kValues);
};

const Blocks& AllBlocks() {
  static const auto* const blocks = new Blocks;
  return *blocks;
}

void Quantize(benchmark::State& state, const ParallelFor& parallel_for) {
  const auto& [blocks, limits, values] = AllBlocks();
  std::vector<float> rotated(kValues);
  std::vector<uint8_t> packed(PackedSize(kValues, Table().bits));
  for (auto _ : state) {
    ThcQuantize(values.data(), blocks, limits.data(), Table(), kSigns,
                kRounding, rotated.data(), packed.data(), parallel_for);
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

void Decode(benchmark::State& state, const ParallelFor& parallel_for) {
  const auto& [blocks, limits, values] = AllBlocks();
  const std::vector<uint8_t> packed(PackedSize(kValues, Table().bits), 0x5a);
  std::vector<float> decoded(kValues);
  for (auto _ : state) {
    ThcDecode(packed.data(), blocks, limits.data(), Table(), kSigns,
              decoded.data(), parallel_for);
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

template <typename Lane>
void DecodeSums(benchmark::State& state, const ParallelFor& parallel_for) {
  const auto& [blocks, limits, values] = AllBlocks();
  const std::vector<Lane> sums(kValues, 31);
  std::vector<float> decoded(kValues);
  for (auto _ : state) {
    ThcDecodeSums(sums.data(), blocks, limits.data(), Table().granularity(),
                  /*workers=*/2, kSigns, decoded.data(), parallel_for);
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

void Norms(benchmark::State& state, const ParallelFor& parallel_for) {
  const std::vector<float>& values = AllBlocks().values;
  for (auto _ : state) {
    ParallelForUnits(
        parallel_for, kValues, kUnit, /*cost=*/1,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; i += kUnit) {
            benchmark::DoNotOptimize(SumOfSquares(values.data() + i, kUnit));
          }
        });
  }
  SetRate(state);
}

// Of rows of 256 values, in the first-level cache.
void Units(benchmark::State& state, const ParallelFor& parallel_for) {
  constexpr int64_t kColumns = 256;
  const std::vector<float> columns(kColumns, 1.0f);
  std::vector<float> values = RandomValues(kUnit);
  for (auto _ : state) {
    ParallelForUnits(parallel_for, kValues, kUnit, /*cost=*/1,
                     [&](int64_t begin, int64_t end) {
                       for (int64_t i = begin; i < end; i += kColumns) {
                         float* const row = values.data() + i % kUnit;
                         DivideByUnits(row, kColumns, 1.0f, columns.data());
                       }
                     });
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

template <typename Lane>
void Pack(benchmark::State& state, const ParallelFor& parallel_for, int bits) {
  const std::vector<Lane> lanes(kValues, 31);
  std::vector<uint8_t> packed(PackedSize(kValues, bits));
  for (auto _ : state) {
    ParallelForUnits(parallel_for, kValues, kUnit, kLanePackingCost,
                     [&](int64_t begin, int64_t end) {
                       PackLanes(lanes.data() + begin, end - begin, bits,
                                 packed.data() + begin / 8 * bits);
                     });
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

template <typename Lane>
void Unpack(benchmark::State& state, const ParallelFor& parallel_for,
            int bits) {
  const std::vector<uint8_t> packed(PackedSize(kValues, bits), 0x5a);
  std::vector<Lane> lanes(kValues);
  for (auto _ : state) {
    ParallelForUnits(parallel_for, kValues, kUnit, kLanePackingCost,
                     [&](int64_t begin, int64_t end) {
                       UnpackLanes(packed.data() + begin / 8 * bits,
                                   end - begin, bits, lanes.data() + begin);
                     });
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

using Benchmark = void(benchmark::State&, const ParallelFor&, int);

void RegisterForBits(const std::string& name, Benchmark* run,
                     const std::vector<int>& all_bits) {
  for (const int bits : all_bits) {
    RegisterForAll(
        name + "/" + std::to_string(bits),
        [=](benchmark::State& state, const ParallelFor& parallel_for) {
          run(state, parallel_for, bits);
        });
  }
}

const bool kRegistered = [] {
  RegisterForAll("ThcQuantize", Quantize);
  RegisterForAll("ThcDecode", Decode);
  RegisterForAll("ThcDecodeSums8", DecodeSums<uint8_t>);
  RegisterForAll("ThcDecodeSums16", DecodeSums<uint16_t>);
  RegisterForAll("SumOfSquares", Norms);
  RegisterForAll("DivideByUnits", Units);
  RegisterForBits("PackLanes8", Pack<uint8_t>, {6, 7});
  RegisterForBits("PackLanes16", Pack<uint16_t>, {9, 10});
  RegisterForBits("UnpackLanes8", Unpack<uint8_t>, {6, 7});
  RegisterForBits("UnpackLanes16", Unpack<uint16_t>, {9, 10});
  return true;
}();

}  // namespace
}  // namespace tf_gc::kernels
