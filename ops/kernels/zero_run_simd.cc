#include <cstdint>

#include "ops/kernels/kernel_table.h"
#include "ops/kernels/zero_run-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

int64_t Encode(const uint8_t* quartic, int64_t begin, int64_t end,
               uint8_t* encoded, int64_t* pending) {
  *pending = 0;
  const uint8_t* const out_end = encoded + (end - begin);
  // EncodeGroup reads and writes beyond its group: the last three are copied.
  const int64_t whole = Max(end - begin - 2 * kGroup, 0) / kGroup * kGroup;
  uint8_t* out =
      EncodeGroups(quartic + begin, whole, pending, encoded, out_end);
  uint8_t rest[4 * kGroup] = {};
  const int64_t rest_size = end - begin - whole;
  if (rest_size > 0) {
    __builtin_memcpy(rest, quartic + begin + whole, rest_size);
  }
  return EncodeGroups(rest, rest_size, pending, out, out_end) - encoded;
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

bool FindPositions(const uint8_t* encoded, int64_t size, int64_t m,
                   int64_t step, ZeroRunPosition* positions) {
  constexpr int64_t kChunk = 256;
  int64_t offset = 0;
  int64_t decoded = 0;
  for (int64_t begin = 0; begin < m; begin += step) {
    while (size - offset >= kChunk) {
      const int64_t chunk = DecodedSize(encoded + offset, kChunk);
      if (decoded + chunk > begin) break;
      decoded += chunk;
      offset += kChunk;
    }
    while (decoded < begin) {
      if (offset == size) return false;
      decoded += kRunTable.advance[encoded[offset++]];
    }
    *positions++ = {offset, decoded - begin};
  }
  return true;
}

bool Decode(const uint8_t* encoded, int64_t size, int64_t begin, int64_t end,
            ZeroRunPosition* position, uint8_t* quartic) {
  ZeroRunReader reader = ReaderAt(*position, encoded, size);
  for (; begin < end; begin += kBlock) {
    if (!ReadBlock(&reader, Min(kBlock, end - begin), quartic + begin)) {
      return false;
    }
  }
  *position = PositionOf(reader, encoded);
  return true;
}

}  // namespace

const ZeroRunTable kZeroRunTable = {Encode, DecodedSize, FindPositions, Decode};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
