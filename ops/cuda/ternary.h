// Ternary quantisation on the GPU: ops/kernels/ternary.h says what it is, and
// the values are the same. Denormal numbers count.
//
// Pointers are device pointers with the alignment of their type; input and
// output must not overlap. `stream` is a cudaStream_t. The functions queue work
// and return a cudaError_t, 0 where all is well.

#ifndef TF_GC_OPS_CUDA_TERNARY_H_
#define TF_GC_OPS_CUDA_TERNARY_H_

#include <cstdint>

extern "C" {

// `scale` is finite and >= 0.
int tf_gc_cuda_nearest_ternary(const float* values, int64_t n, float scale,
                               int8_t* ternary, void* stream);

// values[0] is value `first` of the stream of random numbers, a multiple of 8.
int tf_gc_cuda_stochastic_ternary(const float* values, int64_t n, float scale,
                                  uint64_t seed_key, uint64_t seed_stream,
                                  int64_t first, int8_t* ternary, void* stream);

}  // extern "C"

#endif  // TF_GC_OPS_CUDA_TERNARY_H_
