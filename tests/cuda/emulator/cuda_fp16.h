// Half-precision numbers, for emulator.h.

#ifndef TF_GC_TESTS_CUDA_EMULATOR_CUDA_FP16_H_
#define TF_GC_TESTS_CUDA_EMULATOR_CUDA_FP16_H_

#include "tests/cuda/emulator/cuda_runtime.h"

using __half = _Float16;

inline __half __ushort_as_half(unsigned short bits) {
  return tf_gc_emulator_bits<__half>(bits);
}
inline unsigned short __half_as_ushort(__half value) {
  return tf_gc_emulator_bits<unsigned short>(value);
}
inline float __half2float(__half value) { return static_cast<float>(value); }
inline __half __float2half_rn(float value) {
  return static_cast<__half>(value);
}

#endif  // TF_GC_TESTS_CUDA_EMULATOR_CUDA_FP16_H_
