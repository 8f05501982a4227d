// Half-precision numbers, for emulator.h. They are converted as the CPU's
// kernels convert them: tests/kernels/half_test.cc is for the conversions.

#ifndef TF_GC_TESTS_CUDA_EMULATOR_CUDA_FP16_H_
#define TF_GC_TESTS_CUDA_EMULATOR_CUDA_FP16_H_

#include "ops/kernels/half.h"

struct __half {
  unsigned short bits;
};

inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half value) { return value.bits; }
inline float __half2float(__half value) {
  return tf_gc::kernels::HalfToFloat(value.bits);
}
inline __half __float2half_rn(float value) {
  return {tf_gc::kernels::FloatToHalf(value)};
}

#endif  // TF_GC_TESTS_CUDA_EMULATOR_CUDA_FP16_H_
