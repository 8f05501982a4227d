#include "ops/kernels/thc.h"

#include <algorithm>
#include <utility>

#include "ops/kernels/bit_packing.h"
#include "ops/kernels/hadamard.h"
#include "ops/kernels/stochastic_quantize.h"

namespace tf_gc::kernels {
namespace {

constexpr int64_t kPaddingPart = 128;

// The values of a unit of work, which stay in the first-level cache between two
// passes: whole bytes of packed indices, and whole blocks or parts of one.
constexpr int64_t kUnit = 4096;

// Cycles per value of decoding.
constexpr int64_t kCost = 1;

// Calls work(block, first, length) for parts of blocks, and then, where it is
// given, pass(first, length) for the units that these parts make up.
template <typename Work, typename Pass>
void ForEachUnit(const ThcBlocks& blocks, int64_t cost,
                 const ParallelFor& parallel_for, Work work, Pass pass) {
  const int64_t part = std::min(kUnit, blocks.size);
  ParallelForUnits(parallel_for, blocks.padded(), kUnit, cost,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t unit = begin; unit < end; unit += kUnit) {
                       const int64_t length = std::min(kUnit, end - unit);
                       for (int64_t first = unit; first < unit + length;
                            first += part) {
                         work(first / blocks.size, first, part);
                       }
                       pass(unit, length);
                     }
                   });
}

}  // namespace

ThcBlocks::ThcBlocks(int64_t n) : size(kLargest) {
  const auto padding = [&] { return (size - n % size) % size; };
  while (size > kSmallest && padding() > n / kPaddingPart) size /= 2;
  count = n / size + (n % size != 0);
}

ThcTable::ThcTable(std::vector<uint16_t> integers_of_table)
    : integers(std::move(integers_of_table)) {
  while (size_t{1} << bits < integers.size()) ++bits;
  for (const uint16_t value : integers) {
    levels.push_back(static_cast<float>(2.0 * value / granularity() - 1));
  }
}

void ThcQuantize(const float* values, const ThcBlocks& blocks,
                 const float* limits, const ThcTable& table, Seed signs,
                 Seed rounding, float* rotated, uint8_t* packed,
                 const ParallelFor& parallel_for) {
  RandomizedHadamard(values, blocks.count, blocks.size, signs, rotated,
                     parallel_for);
  ForEachUnit(
      blocks, kStochasticQuantizeCost, parallel_for,
      [=](int64_t block, int64_t first, int64_t length) {
        const float limit = limits[block];
        for (int64_t i = first; i < first + length; ++i) {
          rotated[i] = limit > 0 ? rotated[i] / limit : 0;
        }
      },
      [&](int64_t first, int64_t length) {
        StochasticQuantizePack(rotated + first, length, table.levels.data(),
                               static_cast<int>(table.levels.size()), rounding,
                               first, table.bits,
                               packed + PackedSize(first, table.bits));
      });
}

void ThcDecode(const uint8_t* packed, const ThcBlocks& blocks,
               const float* limits, const ThcTable& table, Seed signs,
               float* values, const ParallelFor& parallel_for) {
  const float* const of_index = table.levels.data();
  ForEachUnit(
      blocks, kCost, parallel_for,
      [&](int64_t block, int64_t first, int64_t length) {
        uint8_t indices[kUnit];
        UnpackBits(packed + PackedSize(first, table.bits), length, table.bits,
                   indices);
        const float limit = limits[block];
        for (int64_t i = 0; i < length; ++i) {
          values[first + i] = limit * of_index[indices[i]];
        }
      },
      [](int64_t, int64_t) {});
  InverseRandomizedHadamard(values, blocks.count, blocks.size, signs, values,
                            parallel_for);
}

template <typename Lane>
void ThcDecodeSums(const Lane* sums, const ThcBlocks& blocks,
                   const float* limits, int64_t granularity, int64_t workers,
                   Seed signs, float* values, const ParallelFor& parallel_for) {
  const float step = 2.0f / static_cast<float>(granularity);
  const float offset = static_cast<float>(workers);
  ForEachUnit(
      blocks, kCost, parallel_for,
      [=](int64_t block, int64_t first, int64_t length) {
        const float limit = limits[block];
        for (int64_t i = first; i < first + length; ++i) {
          values[i] = limit * (sums[i] * step - offset);
        }
      },
      [](int64_t, int64_t) {});
  InverseRandomizedHadamard(values, blocks.count, blocks.size, signs, values,
                            parallel_for);
}

template void ThcDecodeSums(const uint8_t*, const ThcBlocks&, const float*,
                            int64_t, int64_t, Seed, float*, const ParallelFor&);
template void ThcDecodeSums(const uint16_t*, const ThcBlocks&, const float*,
                            int64_t, int64_t, Seed, float*, const ParallelFor&);

}  // namespace tf_gc::kernels
