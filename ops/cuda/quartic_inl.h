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

// Partition j's digit, 0, 1 or 2, of a byte up to 242.
__device__ inline int QuarticDigit(int quartic, int j) {
  for (; j < 4; ++j) quartic /= 3;
  return quartic % 3;
}

}  // namespace tf_gc::cuda

#endif  // TF_GC_OPS_CUDA_QUARTIC_INL_H_
