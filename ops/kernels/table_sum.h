// Sums of table values, without decoding: what the server of THC does with the
// packed indices of every worker (Algorithm 3, section 5).
//
//   accumulator[i] += table[z_i]           modulo 2^8 or 2^16
//
// where z_i is value i of the packed indices (see bit_packing.h). Sums of N
// workers' values of tables up to g fit while N g < 2^8, or 2^16.
//
// Pointers need no alignment but for the type's own; the arrays must not
// overlap. n = 0 does nothing. Every instruction set gives the same sums.

#ifndef TF_GC_OPS_KERNELS_TABLE_SUM_H_
#define TF_GC_OPS_KERNELS_TABLE_SUM_H_

#include <cstdint>

namespace tf_gc::kernels {

// About how many processor cycles a value takes, for ParallelFor.
inline constexpr int64_t kTableSumCost = 1;

// `packed` are PackedSize(n, bits) bytes, any of them; the padding is not
// looked at. `table` has 2^bits values, `accumulator` n.
void TableSum(const uint8_t* packed, int64_t n, const uint8_t* table, int bits,
              uint8_t* accumulator);
void TableSum(const uint8_t* packed, int64_t n, const uint16_t* table, int bits,
              uint16_t* accumulator);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_TABLE_SUM_H_
