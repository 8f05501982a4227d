// Quartic bytes in kernels.

#ifndef TF_GC_OPS_CUDA_QUARTIC_INL_H_
#define TF_GC_OPS_CUDA_QUARTIC_INL_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace tf_gc::cuda {

inline constexpr uint8_t kZeroByte = 121;
inline constexpr uint8_t kLargestQuartic = 242;

// Bytes of n values, which is the size of a partition.
__host__ __device__ constexpr int64_t QuarticSize(int64_t n) {
  return (n + 4) / 5;
}

// x / 3 for 0 <= x <= 255.
__device__ inline int Third(int x) { return x * 171 >> 9; }

// Partition j's digit, 0, 1 or 2, of a byte up to 242.
__device__ inline int QuarticDigit(int quartic, int j) {
  for (; j < 4; ++j) quartic = Third(quartic);
  return quartic % 3;
}

// The values -1, 0 and 1 of all partitions.
__device__ inline void QuarticValues(int quartic, int values[5]) {
#pragma unroll
  for (int j = 4; j >= 0; --j) {
    const int rest = Third(quartic);
    values[j] = quartic - 3 * rest - 1;
    quartic = rest;
  }
}

}  // namespace tf_gc::cuda

#endif  // TF_GC_OPS_CUDA_QUARTIC_INL_H_
