// Sums of table values on the GPU: ops/kernels/table_sum.h says what they are,
// and the sums are the same.
//
// `bits` is 2, 3, 4, 5 or 8. `table` has 2^bits values; it is in the host's
// memory, and read before the functions return. The other pointers are device
// pointers with the alignment of their type; aligned to 16 bytes they are
// faster. `sums` may be `accumulator`; no other arrays may overlap. `stream` is
// a cudaStream_t. The functions queue work and return a cudaError_t, 0 where
// all is well.

#ifndef TF_GC_OPS_CUDA_TABLE_SUM_H_
#define TF_GC_OPS_CUDA_TABLE_SUM_H_

#include <cstdint>

extern "C" {

// sums[i] = accumulator[i] + table[z_i] for i in 0 ... n - 1, modulo 2^8 or
// 2^16, where z_i is value i of ceil(n bits / 8) packed bytes. They may be any
// bytes; the padding is not looked at.
int tf_gc_cuda_table_sum_uint8(const uint8_t* packed, int64_t n,
                               const uint8_t* table, int bits,
                               const uint8_t* accumulator, uint8_t* sums,
                               void* stream);
int tf_gc_cuda_table_sum_uint16(const uint8_t* packed, int64_t n,
                                const uint16_t* table, int bits,
                                const uint16_t* accumulator, uint16_t* sums,
                                void* stream);

}  // extern "C"

#endif  // TF_GC_OPS_CUDA_TABLE_SUM_H_
