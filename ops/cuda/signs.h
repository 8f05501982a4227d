// Packed signs on the GPU: ops/kernels/signs.h says what they are, and the bits
// are the same.
//
// Pointers are device pointers with the alignment of their type. `stream` is a
// cudaStream_t. The functions queue work and return a cudaError_t, 0 where all
// is well.

#ifndef TF_GC_OPS_CUDA_SIGNS_H_
#define TF_GC_OPS_CUDA_SIGNS_H_

#include <cstdint>

extern "C" {

// Writes ceil(n / 8) bytes.
int tf_gc_cuda_sign_pack(const float* values, int64_t n, uint8_t* packed,
                         void* stream);

// Writes n values, 1 or -1. *padding = 1 if a padding bit of the ceil(n / 8)
// bytes is 1, else 0.
int tf_gc_cuda_sign_unpack(const uint8_t* packed, int64_t n, float* values,
                           int64_t* padding, void* stream);

// Merges `bytes` bytes, of which the first is number `first_byte` of the stream
// of random numbers, a multiple of 16. 1 <= first_count, second_count; their
// sum is below 2^31. `merged` may be `first` or `second`, and must not overlap
// them otherwise.
int tf_gc_cuda_sign_merge(const uint8_t* first, const uint8_t* second,
                          int64_t bytes, int64_t first_count,
                          int64_t second_count, uint64_t seed_key,
                          uint64_t seed_stream, int64_t first_byte,
                          uint8_t* merged, void* stream);

}  // extern "C"

#endif  // TF_GC_OPS_CUDA_SIGNS_H_
