// Quartic encoding on the GPU: ops/kernels/quartic.h says what it is, and the
// bytes are the same.
//
// Pointers are device pointers of any alignment; input and output must not
// overlap. `stream` is a cudaStream_t. The functions queue work and return a
// cudaError_t, 0 where all is well.

#ifndef TF_GC_OPS_CUDA_QUARTIC_H_
#define TF_GC_OPS_CUDA_QUARTIC_H_

#include <cstdint>

extern "C" {

// *first = index of the first of n values that is not -1, 0 or 1, or -1.
int tf_gc_cuda_find_non_ternary(const int8_t* ternary, int64_t n,
                                int64_t* first, void* stream);

// Writes ceil(n / 5) bytes. Values other than -1, 0 and 1 give undefined bytes.
int tf_gc_cuda_quartic_encode(const int8_t* ternary, int64_t n,
                              uint8_t* quartic, void* stream);

// *first = index of the first of ceil(n / 5) bytes that quartic encoding cannot
// have given (above 242, or with padding other than 0), or -1.
int tf_gc_cuda_find_non_quartic(const uint8_t* quartic, int64_t n,
                                int64_t* first, void* stream);

// Writes n values; undefined ones for bytes that cannot be.
int tf_gc_cuda_quartic_decode(const uint8_t* quartic, int64_t n,
                              int8_t* ternary, void* stream);

}  // extern "C"

#endif  // TF_GC_OPS_CUDA_QUARTIC_H_
