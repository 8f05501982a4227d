#include "ops/kernels/thc.h"

#include <algorithm>
#include <utility>

#include "ops/kernels/bit_packing.h"
#include "ops/kernels/dispatch.h"
#include "ops/kernels/hadamard.h"
#include "ops/kernels/kernel_table.h"
#include "ops/kernels/stochastic_quantize.h"

namespace tf_gc::kernels {
namespace {

constexpr int64_t kPaddingPart = 128;

// The values of a unit of work, which stay in the first-level cache between two
// passes: whole bytes of packed indices, and whole blocks or parts of one.
constexpr int64_t kUnit = ThcBlocks::kCached;

const ThcKernelTable& Table() { return TF_GC_ACTIVE_TABLE(kThcKernelTable); }

void DecodeSums(const uint8_t* sums, int64_t n, float limit, float step,
                float offset, float* values) {
  Table().decode_bytes(sums, n, limit, step, offset, values);
}

void DecodeSums(const uint16_t* sums, int64_t n, float limit, float step,
                float offset, float* values) {
  Table().decode_words(sums, n, limit, step, offset, values);
}

// Calls work(part) for parts that make up all blocks.
template <typename Work>
void ForEachPart(const ThcBlocks& blocks, const float* limits, Seed signs,
                 int64_t cost, const ParallelFor& parallel_for,
                 const Work& work) {
  const int64_t unit = blocks.part();
  ParallelForUnits(
      parallel_for, blocks.padded(), unit, cost,
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i += unit) {
          work(ThcPart(blocks, limits, signs, i, std::min(unit, end - i)));
        }
      });
}

}  // namespace

ThcBlocks ThcBlocks::OfAtMost(int64_t largest, int64_t n) {
  int64_t size = largest;
  const auto padding = [&] { return (size - n % size) % size; };
  while (size > kSmallest && padding() > n / kPaddingPart) size /= 2;
  return ThcBlocks(size, n / size + (n % size != 0));
}

ThcTable::ThcTable(std::vector<uint16_t> integers_of_table)
    : integers(std::move(integers_of_table)) {
  while (size_t{1} << bits < integers.size()) ++bits;
  for (const uint16_t value : integers) {
    levels.push_back(static_cast<float>(2.0 * value / granularity() - 1));
  }
}

double SumOfSquares(const float* values, int64_t n) {
  return Table().sum_of_squares(values, n);
}

void Divide(const float* values, int64_t n, float divisor, float* quotients) {
  Table().divide(values, n, divisor, quotients);
}

void Subtract(const float* values, const float* others, int64_t n,
              float* differences) {
  Table().subtract(values, others, n, differences);
}

void DivideByUnits(float* values, int64_t n, float row, const float* columns) {
  Table().divide_by_units(values, n, row, columns);
}

void MultiplyByUnits(float* values, int64_t n, float row,
                     const float* columns) {
  Table().multiply_by_units(values, n, row, columns);
}

// Calls work(limit, offset, length) for parts of blocks, and then
// pass(offset, length) for the unit that these make up, offsets being in the
// part.
template <typename Work, typename Pass>
void ThcPart::ForEachUnit(const Work& work, const Pass& pass) const {
  const int64_t step = std::min(kUnit, blocks_.size);
  for (int64_t unit = 0; unit < n_; unit += kUnit) {
    const int64_t end = std::min(unit + kUnit, n_);
    for (int64_t i = unit; i < end; i += step) {
      work(limits_[(first_ + i) / blocks_.size], i, step);
    }
    pass(unit, end - unit);
  }
}

void ThcPart::InverseTransform(float* values) const {
  InverseRandomizedHadamardPart(values, n_ / blocks_.size, blocks_.size, signs_,
                                first_, values);
}

void ThcPart::Quantize(const ThcTable& table,
                       const std::optional<Seed>& rounding, const float* values,
                       float* rotated, uint8_t* packed) const {
  RandomizedHadamardPart(values, n_ / blocks_.size, blocks_.size, signs_,
                         first_, rotated);
  const bool has_one_limit = blocks_.size >= kUnit;  // each unit
  float divisor = 1;
  ForEachUnit(
      [=, &divisor](float limit, int64_t offset, int64_t length) {
        divisor = has_one_limit && limit > 0 ? limit : 1;
        if (!(limit > 0)) {
          std::fill_n(rotated + offset, length, 0.0f);
        } else if (!has_one_limit) {
          Divide(rotated + offset, length, limit, rotated + offset);
        }
      },
      [&](int64_t offset, int64_t length) {
        const float* const levels = table.levels.data();
        const int num_levels = static_cast<int>(table.levels.size());
        uint8_t* const to = packed + PackedSize(offset, table.bits);
        if (rounding.has_value()) {
          StochasticQuantizePack(rotated + offset, divisor, length, levels,
                                 num_levels, *rounding, first_ + offset,
                                 table.bits, to);
        } else {
          NearestQuantizePack(rotated + offset, divisor, length, levels,
                              num_levels, table.bits, to);
        }
      });
}

void ThcPart::Decode(const ThcTable& table, const uint8_t* packed,
                     float* values) const {
  const int num_levels = static_cast<int>(table.levels.size());
  ForEachUnit(
      [&](float limit, int64_t offset, int64_t length) {
        uint8_t indices[kUnit];
        UnpackBits(packed + PackedSize(offset, table.bits), length, table.bits,
                   indices);
        Table().decode_indices(indices, length, table.levels.data(), num_levels,
                               limit, values + offset);
      },
      [](int64_t, int64_t) {});
  InverseTransform(values);
}

template <typename Lane>
void ThcPart::DecodeSums(const Lane* sums, int64_t granularity, int64_t workers,
                         float* values) const {
  const float step = 2.0f / static_cast<float>(granularity);
  const float offset_of_sum = static_cast<float>(workers);
  ForEachUnit(
      [=](float limit, int64_t offset, int64_t length) {
        kernels::DecodeSums(sums + offset, length, limit, step, offset_of_sum,
                            values + offset);
      },
      [](int64_t, int64_t) {});
  InverseTransform(values);
}

void ThcQuantize(const float* values, const ThcBlocks& blocks,
                 const float* limits, const ThcTable& table, Seed signs,
                 const std::optional<Seed>& rounding, float* rotated,
                 uint8_t* packed, const ParallelFor& parallel_for) {
  ForEachPart(blocks, limits, signs, kThcQuantizeCost, parallel_for,
              [&](const ThcPart& part) {
                const int64_t first = part.first();
                part.Quantize(table, rounding, values + first, rotated + first,
                              packed + PackedSize(first, table.bits));
              });
}

void ThcDecode(const uint8_t* packed, const ThcBlocks& blocks,
               const float* limits, const ThcTable& table, Seed signs,
               float* values, const ParallelFor& parallel_for) {
  ForEachPart(blocks, limits, signs, kThcDecodeCost, parallel_for,
              [&](const ThcPart& part) {
                part.Decode(table,
                            packed + PackedSize(part.first(), table.bits),
                            values + part.first());
              });
}

template <typename Lane>
void ThcDecodeSums(const Lane* sums, const ThcBlocks& blocks,
                   const float* limits, int64_t granularity, int64_t workers,
                   Seed signs, float* values, const ParallelFor& parallel_for) {
  ForEachPart(blocks, limits, signs, kThcDecodeCost, parallel_for,
              [&](const ThcPart& part) {
                part.DecodeSums(sums + part.first(), granularity, workers,
                                values + part.first());
              });
}

template void ThcPart::DecodeSums(const uint8_t*, int64_t, int64_t,
                                  float*) const;
template void ThcPart::DecodeSums(const uint16_t*, int64_t, int64_t,
                                  float*) const;
template void ThcDecodeSums(const uint8_t*, const ThcBlocks&, const float*,
                            int64_t, int64_t, Seed, float*, const ParallelFor&);
template void ThcDecodeSums(const uint16_t*, const ThcBlocks&, const float*,
                            int64_t, int64_t, Seed, float*, const ParallelFor&);

}  // namespace tf_gc::kernels
