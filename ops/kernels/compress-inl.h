// Operations on 32-bit lanes for the *_simd.cc files that choose among them, in
// the namespace of the instruction set that the file is compiled for (see
// kernel_table.h).

#ifndef TF_GC_OPS_KERNELS_COMPRESS_INL_H_
#define TF_GC_OPS_KERNELS_COMPRESS_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {

// first, first + 1, first + 2, ...
inline UnsignedInts CountFrom(uint32_t first) {
  UnsignedInts lanes;
  for (int i = 0; i < kLanes; ++i) lanes[i] = i;
  return lanes + first;
}

// Bit i is 1 where a > b in lane i.
inline uint32_t GreaterMask(Ints a, Ints b) {
#if defined(__AVX512BW__)
  return _mm512_cmpgt_epi32_mask(reinterpret_cast<__m512i>(a),
                                 reinterpret_cast<__m512i>(b));
#elif defined(__AVX2__)
  return _mm256_movemask_ps(reinterpret_cast<__m256>(a > b));
#else
  return _mm_movemask_ps(reinterpret_cast<__m128>(a > b));
#endif
}

// Bit i is 1 where a == b in lane i.
inline uint32_t EqualLanes(Ints a, Ints b) {
#if defined(__AVX512BW__)
  return _mm512_cmpeq_epi32_mask(reinterpret_cast<__m512i>(a),
                                 reinterpret_cast<__m512i>(b));
#elif defined(__AVX2__)
  return _mm256_movemask_ps(reinterpret_cast<__m256>(a == b));
#else
  return _mm_movemask_ps(reinterpret_cast<__m128>(a == b));
#endif
}

// Lane i of the result is lane from[i] of `lanes`, from[i] < kLanes.
inline UnsignedInts Permute(UnsignedInts lanes, UnsignedInts from) {
#if defined(__AVX512BW__)
  // Without a mask GCC 12 warns about its own header.
  return reinterpret_cast<UnsignedInts>(
      _mm512_maskz_permutexvar_epi32(0xffff, reinterpret_cast<__m512i>(from),
                                     reinterpret_cast<__m512i>(lanes)));
#elif defined(__AVX2__)
  return reinterpret_cast<UnsignedInts>(_mm256_permutevar8x32_epi32(
      reinterpret_cast<__m256i>(lanes), reinterpret_cast<__m256i>(from)));
#else
  const UnsignedInts bytes = from * 0x04040404u + 0x03020100u;
  return reinterpret_cast<UnsignedInts>(_mm_shuffle_epi8(
      reinterpret_cast<__m128i>(lanes), reinterpret_cast<__m128i>(bytes)));
#endif
}

#if !defined(__AVX512BW__)
// The lanes whose bits are 1 in each mask, in order, then zeros.
struct CompressTable {
  uint8_t lanes[1 << kLanes][kLanes];

  constexpr CompressTable() : lanes() {
    for (int mask = 0; mask < 1 << kLanes; ++mask) {
      int count = 0;
      for (int i = 0; i < kLanes; ++i) {
        if (mask >> i & 1) lanes[mask][count++] = static_cast<uint8_t>(i);
      }
    }
  }
};

inline constexpr CompressTable kCompressTable;
#endif

// The lanes whose bits in `mask` are 1, in order. The lanes behind them are
// undefined.
inline UnsignedInts Compress(UnsignedInts lanes, uint32_t mask) {
#if defined(__AVX512BW__)
  return reinterpret_cast<UnsignedInts>(_mm512_maskz_compress_epi32(
      static_cast<__mmask16>(mask), reinterpret_cast<__m512i>(lanes)));
#else
  return Permute(lanes, reinterpret_cast<UnsignedInts>(
                            LoadBytes(kCompressTable.lanes[mask])));
#endif
}

inline int CountOnes(uint64_t bits) { return __builtin_popcountll(bits); }

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET

#endif  // TF_GC_OPS_KERNELS_COMPRESS_INL_H_
