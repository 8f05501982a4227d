// Hadamard transforms on the GPU: ops/kernels/hadamard.h says what they are,
// and the floats are the same, but for the bits of a NaN that an addition
// gives. Denormal values are kept.
//
// The rows have `size` values each, a power of two. Of rows of up to 2^13
// values each value is read and written once, of up to 2^21 twice, and of up to
// 2^29 three times.
//
// Pointers are device pointers with the alignment of their type; aligned to 16
// bytes they are faster. `transformed` may be `values`, and must not overlap it
// otherwise. `stream` is a cudaStream_t. The functions queue work and return a
// cudaError_t, 0 where all is well.

#ifndef TF_GC_OPS_CUDA_HADAMARD_H_
#define TF_GC_OPS_CUDA_HADAMARD_H_

#include <cstdint>

extern "C" {

// H values, for each row.
int tf_gc_cuda_hadamard(const float* values, int64_t rows, int64_t size,
                        float* transformed, void* stream);

// H D values. The signs D are those of the seed (key, seed_stream).
int tf_gc_cuda_randomized_hadamard(const float* values, int64_t rows,
                                   int64_t size, uint64_t key,
                                   uint64_t seed_stream, float* transformed,
                                   void* stream);

// D H values.
int tf_gc_cuda_inverse_randomized_hadamard(const float* values, int64_t rows,
                                           int64_t size, uint64_t key,
                                           uint64_t seed_stream,
                                           float* transformed, void* stream);

}  // extern "C"

#endif  // TF_GC_OPS_CUDA_HADAMARD_H_
