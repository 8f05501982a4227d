// Wide operations on bytes for the *_simd.cc files, in the namespace of the
// instruction set that the file is compiled for (see kernel_table.h).

#ifndef TF_GC_OPS_KERNELS_SIMD_INL_H_
#define TF_GC_OPS_KERNELS_SIMD_INL_H_

#include <immintrin.h>

#include <cstdint>

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {

// Vectors of the instruction set's width, as GCC and clang define them: + and
// the like are lane by lane, a comparison gives -1 or 0.
#if defined(__AVX512BW__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
inline constexpr int kLanes = kVectorBytes / sizeof(float);

typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef int32_t Ints __attribute__((vector_size(kVectorBytes)));
typedef uint32_t UnsignedInts __attribute__((vector_size(kVectorBytes)));
// Unsigned, because what wraps around is undefined otherwise.
typedef uint8_t Bytes __attribute__((vector_size(kVectorBytes)));

// All bits of a float but its sign. As integers, the bits of |x| are ordered as
// |x| is, and NaN comes last.
inline constexpr int32_t kMagnitudeBits = 0x7fffffff;

template <typename Vector>
inline Vector Load(const void* from) {
  Vector vector;
  __builtin_memcpy(&vector, from, sizeof(vector));
  return vector;
}

template <typename Vector>
inline void Store(const Vector& vector, void* to) {
  __builtin_memcpy(to, &vector, sizeof(vector));
}

// kLanes bytes, each in a lane. (GCC 12 may convert vectors of unequal size one
// lane at a time.)
inline Ints LoadBytes(const uint8_t* from) {
#if defined(__AVX512BW__)
  // Without a mask GCC 12 warns about its own header.
  return reinterpret_cast<Ints>(
      _mm512_maskz_cvtepu8_epi32(0xffff, Load<__m128i>(from)));
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(_mm256_cvtepu8_epi32(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  return reinterpret_cast<Ints>(
      _mm_cvtepu8_epi32(_mm_cvtsi32_si128(Load<int32_t>(from))));
#endif
}

// The same for kLanes unsigned numbers of 16 bits.
inline Ints LoadHalves(const uint16_t* from) {
#if defined(__AVX512BW__)
  return reinterpret_cast<Ints>(
      _mm512_maskz_cvtepu16_epi32(0xffff, Load<__m256i>(from)));
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(_mm256_cvtepu16_epi32(Load<__m128i>(from)));
#else
  return reinterpret_cast<Ints>(_mm_cvtepu16_epi32(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#endif
}

// The lanes of four vectors, each in -128 ... 127, as bytes in the same order
// (modulo 256).
inline Bytes Narrow(const Ints lanes[4]) {
  // Packing works within 16 bytes: what it leaves there belongs to lanes[k] in
  // the k-th four of them.
#if defined(__AVX512BW__)
  const Ints bytes = reinterpret_cast<Ints>(_mm512_packs_epi16(
      _mm512_packs_epi32(reinterpret_cast<__m512i>(lanes[0]),
                         reinterpret_cast<__m512i>(lanes[1])),
      _mm512_packs_epi32(reinterpret_cast<__m512i>(lanes[2]),
                         reinterpret_cast<__m512i>(lanes[3]))));
  return reinterpret_cast<Bytes>(__builtin_shufflevector(
      bytes, bytes, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
#elif defined(__AVX2__)
  const Ints bytes = reinterpret_cast<Ints>(_mm256_packs_epi16(
      _mm256_packs_epi32(reinterpret_cast<__m256i>(lanes[0]),
                         reinterpret_cast<__m256i>(lanes[1])),
      _mm256_packs_epi32(reinterpret_cast<__m256i>(lanes[2]),
                         reinterpret_cast<__m256i>(lanes[3]))));
  return reinterpret_cast<Bytes>(
      __builtin_shufflevector(bytes, bytes, 0, 4, 1, 5, 2, 6, 3, 7));
#else
  return reinterpret_cast<Bytes>(
      _mm_packs_epi16(_mm_packs_epi32(reinterpret_cast<__m128i>(lanes[0]),
                                      reinterpret_cast<__m128i>(lanes[1])),
                      _mm_packs_epi32(reinterpret_cast<__m128i>(lanes[2]),
                                      reinterpret_cast<__m128i>(lanes[3]))));
#endif
}

// The bytes of a cache line, and of the groups that the masks below are about.
inline constexpr int64_t kGroup = 64;

inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t Max(int64_t a, int64_t b) { return a > b ? a : b; }

// The number of zero bits below the lowest 1 of `bits`, which is not 0.
inline int TrailingZeros(uint64_t bits) { return __builtin_ctzll(bits); }

// Bit i is 1 where bytes[i] == value, for 64 bytes.
inline uint64_t EqualMask(const uint8_t* bytes, uint8_t value) {
#if defined(__AVX512BW__)
  return _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(bytes),
                                _mm512_set1_epi8(static_cast<char>(value)));
#elif defined(__AVX2__)
  const __m256i wanted = _mm256_set1_epi8(static_cast<char>(value));
  uint64_t mask = 0;
  for (int i = 0; i < 2; ++i) {
    const __m256i part =
        _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(bytes + 32 * i));
    const uint32_t equal =
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(part, wanted));
    mask |= static_cast<uint64_t>(equal) << (32 * i);
  }
  return mask;
#else
  const __m128i wanted = _mm_set1_epi8(static_cast<char>(value));
  uint64_t mask = 0;
  for (int i = 0; i < 4; ++i) {
    const __m128i part =
        _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(bytes + 16 * i));
    const uint32_t equal = _mm_movemask_epi8(_mm_cmpeq_epi8(part, wanted));
    mask |= static_cast<uint64_t>(equal) << (16 * i);
  }
  return mask;
#endif
}

// The largest of 64 bytes is at most `limit`.
inline bool AllAtMost(const uint8_t* bytes, uint8_t limit) {
  uint8_t largest = 0;
  for (int i = 0; i < kGroup; ++i) {
    largest = bytes[i] > largest ? bytes[i] : largest;
  }
  return largest <= limit;
}

// Copies kBytes through registers.
template <int kBytes>
inline void CopyBytes(const uint8_t* from, uint8_t* to) {
  __builtin_memcpy(to, from, kBytes);
}

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET

#endif  // TF_GC_OPS_KERNELS_SIMD_INL_H_
