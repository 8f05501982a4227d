// C names for the CPU's kernels of quantisation, for tools/gpu_check.py.

#include "ops/kernels/bit_packing.h"
#include "ops/kernels/stochastic_quantize.h"
#include "ops/kernels/table_sum.h"

using namespace tf_gc::kernels;

extern "C" {

int64_t tf_gc_cpu_find_unpackable(const uint8_t* indices, int64_t n, int bits) {
  return FindUnpackable(indices, n, bits);
}

void tf_gc_cpu_pack_bits(const uint8_t* indices, int64_t n, int bits,
                         uint8_t* packed) {
  PackBits(indices, n, bits, packed);
}

int64_t tf_gc_cpu_padding_is_zero(const uint8_t* packed, int64_t n, int bits) {
  return PaddingIsZero(packed, n, bits);
}

void tf_gc_cpu_unpack_bits(const uint8_t* packed, int64_t n, int bits,
                           uint8_t* indices) {
  UnpackBits(packed, n, bits, indices);
}

void tf_gc_cpu_stochastic_quantize(const float* values, int64_t n,
                                   const float* levels, int num_levels,
                                   uint64_t key, uint64_t seed_stream,
                                   int64_t first, uint8_t* indices) {
  StochasticQuantize(values, n, levels, num_levels, {key, seed_stream}, first,
                     indices);
}

void tf_gc_cpu_table_sum_uint8(const uint8_t* packed, int64_t n,
                               const uint8_t* table, int bits, uint8_t* sums) {
  TableSum(packed, n, table, bits, sums);
}

void tf_gc_cpu_table_sum_uint16(const uint8_t* packed, int64_t n,
                                const uint16_t* table, int bits,
                                uint16_t* sums) {
  TableSum(packed, n, table, bits, sums);
}

}  // extern "C"
