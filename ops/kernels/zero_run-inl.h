// Zero-run encoding and decoding in pieces, for the *_simd.cc files (see
// kernel_table.h).

#ifndef TF_GC_OPS_KERNELS_ZERO_RUN_INL_H_
#define TF_GC_OPS_KERNELS_ZERO_RUN_INL_H_

#include <cstdint>

#include "ops/kernels/quartic-inl.h"
#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {

inline constexpr int kLongestRun = 14;

// The codes of runs: run k has the code kRunBase + k, from 2 on.
inline constexpr uint8_t kRunBase = 241;

// The quartic bytes that decoding expands at once: few enough to stay in the
// first-level cache, together with what they are decoded into.
inline constexpr int64_t kBlock = 2048;

// ---- Encoding ---------------------------------------------------------------

// Appends a run of `length` >= 0 zero bytes.
inline uint8_t* AppendRun(int64_t length, uint8_t* out) {
  for (; length > kLongestRun; length -= kLongestRun) {
    *out++ = kRunBase + kLongestRun;
  }
  *out = length == 1 ? kZeroByte : static_cast<uint8_t>(kRunBase + length);
  return out + (length != 0);
}

// Encodes the first `count` <= 64 of a group of quartic bytes. `pending` is the
// length of the zero run before the group, and then that of the one at its end.
// 128 bytes can be read from `group`; up to 64 bytes more than the encoding's
// size are written.
inline uint8_t* EncodeGroup(const uint8_t* group, int64_t count,
                            int64_t* pending, uint8_t* out) {
  uint64_t zeros = EqualMask(group, kZeroByte);
  if (count < kGroup) zeros |= ~uint64_t{0} << count;
  uint64_t others = ~zeros;
  if (others == 0) {
    *pending += count;
    return out;
  }
  int64_t position = 0;
  int64_t run_before = *pending;
  // One turn is a run of zeros, which may be empty, and the other bytes up to
  // the next one. 64 bytes in which there are many are rare.
  do {
    const int run = TrailingZeros(others >> position);
    out = AppendRun(run_before + run, out);
    run_before = 0;
    position += run;
    const uint64_t rest = zeros >> position;
    const int64_t literals = rest ? TrailingZeros(rest) : kGroup - position;
    CopyBytes<16>(group + position, out);
    if (literals > 16) CopyBytes<48>(group + position + 16, out + 16);
    out += literals;
    position += literals;
  } while (position < kGroup && others >> position != 0);
  *pending = count - position;
  return out;
}

// ---- Decoding ---------------------------------------------------------------

struct ZeroRunReader {
  const uint8_t* next;
  const uint8_t* end;
  int64_t pending;  // Zeros of the last run that no block has held yet.
};

struct RunTable {
  uint8_t value[256];    // The first quartic byte that a code stands for,
  uint8_t advance[256];  // and how many there are.

  constexpr RunTable() : value(), advance() {
    for (int code = 0; code < 256; ++code) {
      const bool is_run = code > kLargestQuartic;
      value[code] = is_run ? kZeroByte : static_cast<uint8_t>(code);
      advance[code] = is_run ? static_cast<uint8_t>(code - kRunBase) : 1;
    }
  }
};

inline constexpr RunTable kRunTable;

// Decodes `count` more quartic bytes; false if the encoding ends before.
inline bool ReadBlock(ZeroRunReader* reader, int64_t count, uint8_t* block) {
  constexpr int kTurn = 16;
  __builtin_memset(block, kZeroByte, count);
  const uint8_t* next = reader->next;
  int64_t position = reader->pending;
  while (position < count) {
    if (reader->end - next >= kGroup && count - position >= kGroup &&
        AllAtMost(next, kLargestQuartic)) {
      CopyBytes<kGroup>(next, block + position);
      next += kGroup;
      position += kGroup;
      continue;
    }
    // A turn of many codes needs one check if even long runs fit.
    const bool fits =
        reader->end - next >= kTurn && count - position >= kTurn * kLongestRun;
    if (!fits && next == reader->end) return false;
    for (int i = 0; i < (fits ? kTurn : 1); ++i) {
      const uint8_t code = *next++;
      block[position] = kRunTable.value[code];
      position += kRunTable.advance[code];
    }
  }
  reader->next = next;
  reader->pending = position - count;
  return true;
}

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET

#endif  // TF_GC_OPS_KERNELS_ZERO_RUN_INL_H_
