// Stochastic quantisation on the GPU: ops/kernels/stochastic_quantize.h says
// what it is, and the indices are the same where denormal numbers are kept, as
// they are here.
//
// `levels` is in the host's memory, and read before the functions return; the
// other pointers are device pointers with the alignment of their type, and
// aligned to 16 bytes they are faster. Input and output must not overlap.
// `stream` is a cudaStream_t. The functions queue work and return a
// cudaError_t, 0 where all is well.

#ifndef TF_GC_OPS_CUDA_STOCHASTIC_QUANTIZE_H_
#define TF_GC_OPS_CUDA_STOCHASTIC_QUANTIZE_H_

#include <cstdint>

extern "C" {

// Writes n indices. There are 2 ... 256 levels, ascending and finite. The seed
// is (key, seed_stream), `first` the place of values[0] in its stream, a
// multiple of 8.
int tf_gc_cuda_stochastic_quantize(const float* values, int64_t n,
                                   const float* levels, int num_levels,
                                   uint64_t key, uint64_t seed_stream,
                                   int64_t first, uint8_t* indices,
                                   void* stream);

// The same indices, packed: writes ceil(n bits / 8) bytes. `bits` is 2, 3, 4, 5
// or 8, num_levels at most 2^bits.
int tf_gc_cuda_stochastic_quantize_pack(const float* values, int64_t n,
                                        const float* levels, int num_levels,
                                        uint64_t key, uint64_t seed_stream,
                                        int64_t first, int bits,
                                        uint8_t* packed, void* stream);

}  // extern "C"

#endif  // TF_GC_OPS_CUDA_STOCHASTIC_QUANTIZE_H_
