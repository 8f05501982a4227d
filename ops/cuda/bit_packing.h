// Packed indices of a few bits on the GPU: ops/kernels/bit_packing.h says what
// they are, and the bytes are the same.
//
// `bits` is 2, 3, 4, 5 or 8. Pointers are device pointers of any alignment;
// aligned to 16 bytes they are faster. Input and output must not overlap.
// `stream` is a cudaStream_t. The functions queue work and return a
// cudaError_t, 0 where all is well.

#ifndef TF_GC_OPS_CUDA_BIT_PACKING_H_
#define TF_GC_OPS_CUDA_BIT_PACKING_H_

#include <cstdint>

extern "C" {

// *first = index of the first of n indices that is 2^bits or more, or -1.
int tf_gc_cuda_find_unpackable(const uint8_t* indices, int64_t n, int bits,
                               int64_t* first, void* stream);

// Writes ceil(n bits / 8) bytes; undefined ones for indices of 2^bits or more.
int tf_gc_cuda_pack_bits(const uint8_t* indices, int64_t n, int bits,
                         uint8_t* packed, void* stream);

// *is_zero = 1 if the padding in the last of these ceil(n bits / 8) bytes is 0,
// as packing leaves it, else 0.
int tf_gc_cuda_padding_is_zero(const uint8_t* packed, int64_t n, int bits,
                               int64_t* is_zero, void* stream);

// Writes n indices, each less than 2^bits, from any ceil(n bits / 8) bytes;
// does not look at the padding.
int tf_gc_cuda_unpack_bits(const uint8_t* packed, int64_t n, int bits,
                           uint8_t* indices, void* stream);

}  // extern "C"

#endif  // TF_GC_OPS_CUDA_BIT_PACKING_H_
