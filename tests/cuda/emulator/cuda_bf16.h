// Bfloat16 numbers, for emulator.h.

#ifndef TF_GC_TESTS_CUDA_EMULATOR_CUDA_BF16_H_
#define TF_GC_TESTS_CUDA_EMULATOR_CUDA_BF16_H_

#include "tests/cuda/emulator/cuda_runtime.h"

struct __nv_bfloat16 {
  unsigned short bits;
};

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return {bits};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) {
  return value.bits;
}
inline float __bfloat162float(__nv_bfloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  if (value != value) return {0x7fff};
  const unsigned bits = __float_as_uint(value);
  return {
      static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

#endif  // TF_GC_TESTS_CUDA_EMULATOR_CUDA_BF16_H_
