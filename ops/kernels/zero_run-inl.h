// Zero-run encoding and decoding in pieces, for the *_simd.cc files (see
// kernel_table.h).

#ifndef TF_GC_OPS_KERNELS_ZERO_RUN_INL_H_
#define TF_GC_OPS_KERNELS_ZERO_RUN_INL_H_

#include <cstdint>

#include "ops/kernels/kernel_table.h"
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

// The codes of a run, for runs up to that of a whole group and one before it:
// the first code is the lowest byte, and the highest byte counts them.
struct RunCodes {
  uint64_t codes[kGroup + kLongestRun];

  constexpr RunCodes() : codes() {
    for (int run = 0; run < kGroup + kLongestRun; ++run) {
      const int longest = run / kLongestRun;
      const int rest = run % kLongestRun;
      uint64_t code = 0;
      for (int i = 0; i < longest; ++i) code = code << 8 | 255;
      if (rest > 0) {
        const uint64_t last = rest == 1 ? kZeroByte : kRunBase + rest;
        code |= last << (8 * longest);
      }
      code |= static_cast<uint64_t>(longest + (rest > 0)) << 56;
      codes[run] = code;
    }
  }
};

inline constexpr RunCodes kRunCodes;

// Appends a run of `length` >= 0 zero bytes. Writes 8 bytes.
inline uint8_t* AppendRun(int64_t length, uint8_t* out) {
  const uint64_t codes = kRunCodes.codes[length];
  __builtin_memcpy(out, &codes, sizeof(codes));
  return out + (codes >> 56);
}

// Encodes the first `count` <= 64 of a group of quartic bytes. `pending`, less
// than kLongestRun, is the length of the zero run before the group that is not
// encoded yet, and then that of the one at its end. 128 bytes can be read from
// `group`; up to 64 bytes more than the encoding's size are written.
inline uint8_t* EncodeGroup(const uint8_t* group, int64_t count,
                            int64_t* pending, uint8_t* out) {
  uint64_t zeros = EqualMask(group, kZeroByte);
  if (count < kGroup) zeros |= ~uint64_t{0} << count;
  // A turn is a run of zeros, which may be empty, and a run of other bytes.
  // All their limits are found at once, so that turns need not wait for each
  // other.
  const uint64_t after_zero = zeros << 1 | 1;
  uint64_t begins = ~zeros & after_zero;
  uint64_t ends = zeros & ~after_zero;
  int64_t zeros_begin = -*pending;
  while (begins != 0) {
    const int64_t begin = TrailingZeros(begins);
    const int64_t end = ends ? TrailingZeros(ends) : kGroup;
    begins &= begins - 1;
    ends &= ends - 1;
    out = AppendRun(begin - zeros_begin, out);
    CopyBytes<16>(group + begin, out);
    if (end - begin > 16) CopyBytes<48>(group + begin + 16, out + 16);
    out += end - begin;
    zeros_begin = end;
  }
  int64_t run = count - zeros_begin;
  for (; run >= kLongestRun; run -= kLongestRun) {
    out = AppendRun(kLongestRun, out);
  }
  *pending = run;
  return out;
}

// The same for `count` bytes, group by group, of which nothing is written
// behind the encoding.
__attribute__((noinline)) inline uint8_t* EncodeGroupsExactly(
    const uint8_t* quartic, int64_t count, int64_t* pending, uint8_t* out) {
  uint8_t copy[3 * kGroup];
  for (int64_t i = 0; i < count; i += kGroup) {
    const int64_t size =
        EncodeGroup(quartic + i, Min(kGroup, count - i), pending, copy) - copy;
    __builtin_memcpy(out, copy, size);
    out += size;
  }
  return out;
}

// The same, of which nothing is written from `out_end` on.
inline uint8_t* EncodeGroups(const uint8_t* quartic, int64_t count,
                             int64_t* pending, uint8_t* out,
                             const uint8_t* out_end) {
  if (out_end - out < count + 2 * kGroup) {
    return EncodeGroupsExactly(quartic, count, pending, out);
  }
  for (int64_t i = 0; i < count; i += kGroup) {
    out = EncodeGroup(quartic + i, Min(kGroup, count - i), pending, out);
  }
  return out;
}

// ---- Decoding ---------------------------------------------------------------

struct ZeroRunReader {
  const uint8_t* next;
  const uint8_t* end;
  int64_t pending;  // Zeros of the last run that no block has held yet.
};

inline ZeroRunReader ReaderAt(ZeroRunPosition position, const uint8_t* encoded,
                              int64_t size) {
  return {encoded + position.offset, encoded + size, position.pending};
}

inline ZeroRunPosition PositionOf(const ZeroRunReader& reader,
                                  const uint8_t* encoded) {
  return {reader.next - encoded, reader.pending};
}

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
