#include <cstdint>

#include "ops/kernels/kernel_table.h"
#include "ops/kernels/quartic-inl.h"
#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

int64_t FindAbove(const uint8_t* bytes, int64_t n, uint8_t offset,
                  uint8_t limit) {
  // Whole chunks first: a search that may stop at any byte is not vectorised.
  constexpr int64_t kChunk = 1024;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t end = Min(begin + kChunk, n);
    uint8_t largest = 0;
    for (int64_t i = begin; i < end; ++i) {
      const uint8_t byte = static_cast<uint8_t>(bytes[i] + offset);
      largest = byte > largest ? byte : largest;
    }
    if (largest <= limit) continue;
    for (int64_t i = begin;; ++i) {
      if (static_cast<uint8_t>(bytes[i] + offset) > limit) return i;
    }
  }
  return -1;
}

void Encode(const int8_t* ternary, int64_t n, int64_t partition, int64_t begin,
            int64_t end, uint8_t* quartic) {
  const int8_t* p[5];
  for (int j = 0; j < 5; ++j) p[j] = ternary + j * partition;
  const int64_t unpadded = Min(Max(n - 4 * partition, begin), end);
  for (int64_t i = begin; i < unpadded; ++i) {
    int sum = p[0][i];
    for (int j = 1; j < 5; ++j) sum = static_cast<int8_t>(3 * sum + p[j][i]);
    quartic[i] = static_cast<uint8_t>(sum + kZeroByte);
  }
  for (int64_t i = unpadded; i < end; ++i) {
    int sum = 0;
    for (int j = 0; j < 5; ++j) {
      sum = 3 * sum + (j * partition + i < n ? p[j][i] + 1 : 0);
    }
    quartic[i] = static_cast<uint8_t>(sum);
  }
}

void Decode(const uint8_t* quartic, int64_t n, int64_t partition, int64_t begin,
            int64_t end, int8_t* ternary) {
  for (int j = 0; j < 5; ++j) {
    const uint16_t factor = DigitFactor(j);
    int8_t* __restrict values = ternary + j * partition;
    const int64_t values_end = Min(end, n - j * partition);
    for (int64_t i = begin; i < values_end; ++i) {
      values[i] = static_cast<int8_t>(Digit(quartic[i], factor) - 1);
    }
  }
}

}  // namespace

const QuarticTable kQuarticTable = {FindAbove, Encode, Decode};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
