// Small tables of floats, for the *_simd.cc files.

#ifndef TF_GC_OPS_KERNELS_LOOKUP_INL_H_
#define TF_GC_OPS_KERNELS_LOOKUP_INL_H_

#include <immintrin.h>

#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {

// table[index] in each lane, for a table of kSize that can be read up to a
// whole vector.
template <int kSize>
inline Floats Lookup(const float* table, Ints index);

// The same, by halves.
template <int kSize>
inline Floats LookupHalves(const float* table, Ints index) {
  constexpr int kHalf = kSize / 2;
  return (index & kHalf) != 0 ? Lookup<kHalf>(table + kHalf, index)
                              : Lookup<kHalf>(table, index);
}

template <int kSize>
inline Floats Lookup(const float* table, Ints index) {
#if defined(__AVX512BW__)
  const __m512i lanes = reinterpret_cast<__m512i>(index);
  if constexpr (kSize <= 16) {
    return _mm512_maskz_permutexvar_ps(0xffff, lanes, Load<Floats>(table));
  } else if constexpr (kSize == 32) {
    return _mm512_permutex2var_ps(Load<Floats>(table), lanes,
                                  Load<Floats>(table + 16));
  } else {
    return LookupHalves<kSize>(table, index);
  }
#elif defined(__AVX2__)
  const __m256i lanes = reinterpret_cast<__m256i>(index);
  if constexpr (kSize <= 8) {
    return _mm256_permutevar8x32_ps(Load<Floats>(table), lanes);
  } else if constexpr (kSize <= 32) {
    return LookupHalves<kSize>(table, index);
  } else {
    return _mm256_i32gather_ps(table, lanes, sizeof(float));
  }
#else
  Floats found;
  for (int k = 0; k < kLanes; ++k) found[k] = table[index[k]];
  return found;
#endif
}

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET

#endif  // TF_GC_OPS_KERNELS_LOOKUP_INL_H_
