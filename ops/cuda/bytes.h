// Up to four bytes of any alignment as a word, in kernels.

#ifndef TF_GC_OPS_CUDA_BYTES_H_
#define TF_GC_OPS_CUDA_BYTES_H_

#include "ops/cuda/launch.h"

namespace tf_gc::cuda {

// The first `count` of at most 4 bytes; the upper ones of the word are 0.
__device__ inline uint32_t LoadBytes(const uint8_t* bytes, int count) {
  if (count == 4 && AddressModulo16(bytes) % 4 == 0) {
    return *reinterpret_cast<const uint32_t*>(bytes);
  }
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < count) word |= uint32_t{bytes[i]} << (8 * i);
  }
  return word;
}

// Writes the lower `count` of a word's bytes.
__device__ inline void StoreBytes(uint32_t word, int count, uint8_t* bytes) {
  if (count == 4 && AddressModulo16(bytes) % 4 == 0) {
    *reinterpret_cast<uint32_t*>(bytes) = word;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < count) bytes[i] = static_cast<uint8_t>(word >> (8 * i));
  }
}

}  // namespace tf_gc::cuda

#endif  // TF_GC_OPS_CUDA_BYTES_H_
