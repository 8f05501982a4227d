#include <cstdint>

#include "ops/kernels/kernel_table.h"
#include "ops/kernels/zero_run-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

int64_t Encode(const uint8_t* quartic, int64_t m, uint8_t* encoded) {
  int64_t pending = 0;
  uint8_t* out = encoded;
  int64_t i = 0;
  for (; i + 2 * kGroup <= m; i += kGroup) {
    out = EncodeGroup(quartic + i, kGroup, &pending, out);
  }
  // EncodeGroup reads beyond its group: the last two are copied.
  uint8_t rest[3 * kGroup] = {};
  const int64_t rest_size = m - i;
  if (rest_size > 0) __builtin_memcpy(rest, quartic + i, rest_size);
  for (int64_t begin = 0; begin < rest_size; begin += kGroup) {
    out = EncodeGroup(rest + begin, Min(kGroup, rest_size - begin), &pending,
                      out);
  }
  out = AppendRun(pending, out);
  return out - encoded;
}

int64_t DecodedSize(const uint8_t* encoded, int64_t size) {
  // Sums of 32 bits are vectorised better; a chunk's stays below 2^31.
  constexpr int64_t kChunk = int64_t{1} << 20;
  int64_t total = 0;
  for (int64_t begin = 0; begin < size; begin += kChunk) {
    const int64_t end = Min(begin + kChunk, size);
    uint32_t sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      sum += encoded[i] > kLargestQuartic ? encoded[i] - kRunBase : 1;
    }
    total += sum;
  }
  return total;
}

int64_t Decode(const uint8_t* encoded, int64_t size, int64_t m,
               uint8_t* quartic) {
  ZeroRunReader reader = {encoded, encoded + size, 0};
  for (int64_t begin = 0; begin < m; begin += kBlock) {
    if (!ReadBlock(&reader, Min(kBlock, m - begin), quartic + begin)) return -1;
  }
  return reader.pending == 0 ? reader.next - encoded : -1;
}

}  // namespace

const ZeroRunTable kZeroRunTable = {Encode, DecodedSize, Decode};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
