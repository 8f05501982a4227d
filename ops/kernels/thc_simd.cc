#include <cstdint>

#include "ops/kernels/kernel_table.h"
#include "ops/kernels/lookup-inl.h"
#include "ops/kernels/simd-inl.h"

// The loops without intrinsics are for the compiler to vectorise.

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

double SumOfSquares(const float* values, int64_t n) {
  // A fixed number, so that all instruction sets give the same bits.
  constexpr int kSums = 8;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int k = 0; k < kSums; ++k) {
      const double value = values[i + k];
      sums[k] += value * value;
    }
  }
  for (; i < n; ++i) sums[0] += double{values[i]} * values[i];
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

void Divide(const float* values, int64_t n, float divisor, float* quotients) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) quotients[i] = values[i] / divisor;
}

void Subtract(const float* values, const float* others, int64_t n,
              float* differences) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) differences[i] = values[i] - others[i];
}

void DivideByUnits(float* values, int64_t n, float row, const float* columns) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) values[i] /= row * columns[i];
}

void MultiplyByUnits(float* values, int64_t n, float row,
                     const float* columns) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) values[i] *= row * columns[i];
}

template <int kSize>
void DecodeIndicesOf(const uint8_t* indices, int64_t n, const float* levels,
                     float limit, float* values) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Store(limit * Lookup<kSize>(levels, LoadBytes(indices + i)), values + i);
  }
  for (; i < n; ++i) values[i] = limit * levels[indices[i]];
}

void DecodeIndices(const uint8_t* indices, int64_t n, const float* levels,
                   int num_levels, float limit, float* values) {
  constexpr int kMost = 256;
  float table[kMost + kLanes] = {};
  for (int k = 0; k < num_levels; ++k) table[k] = levels[k];
  const auto decode = num_levels <= 4    ? DecodeIndicesOf<4>
                      : num_levels <= 8  ? DecodeIndicesOf<8>
                      : num_levels <= 16 ? DecodeIndicesOf<16>
                      : num_levels <= 32 ? DecodeIndicesOf<32>
                                         : DecodeIndicesOf<kMost>;
  decode(indices, n, table, limit, values);
}

template <typename Lane>
void DecodeSums(const Lane* sums, int64_t n, float limit, float step,
                float offset, float* values) {
  for (int64_t i = 0; i < n; ++i) {
    values[i] = limit * (sums[i] * step - offset);
  }
}

}  // namespace

const ThcKernelTable kThcKernelTable = {SumOfSquares,
                                        Divide,
                                        Subtract,
                                        DivideByUnits,
                                        MultiplyByUnits,
                                        DecodeIndices,
                                        DecodeSums<uint8_t>,
                                        DecodeSums<uint16_t>};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
