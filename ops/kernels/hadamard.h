// The orthonormal Walsh-Hadamard transform of rows, and its randomised form,
// which spreads a row's energy over all of its values (Suresh et al.,
// "Distributed mean estimation with limited communication", ICML 2017,
// section 3).
//
//   H_1 = (1),  H_2m = (H_m  H_m; H_m  -H_m),  H = size^(-1/2) H_size
//   Hadamard:                   H v             its own inverse
//   RandomizedHadamard:         H D v           D has random signs as diagonal
//   InverseRandomizedHadamard:  D H v           its inverse, for the same seed
//
// for each row v of `size` values, one after the other in memory. `size` is a
// power of two, at least 1; `rows` is at least 0. `transformed` has as many
// values as `values`; it may be `values` (the same address), and must not
// overlap them otherwise. Pointers need no alignment.
//
// All arithmetic is float32 under the calling thread's rounding and denormal
// modes, in this order for all i with i & h = 0: the levels h = 1, 2, 4, ...,
// size / 2, each (v[i], v[i + h]) <- (v[i] + v[i + h], v[i] - v[i + h]), then
// one product with float32(size^(-1/2)). So every instruction set and every
// number of threads gives the same bits, only those of NaNs aside. A NaN makes
// its whole row NaN, an infinite value makes each value of its row infinite or
// NaN; other rows are as they would be without it. Sums overflow where
// |v|'s sum is above the largest float32.
//
// D changes the sign of value i, counted through all rows, where the bit
// i % 32 of word (i / 32) % 4 of the block i / 128 of the seed's stream
// (philox.h) is 1. NaN and zero change their sign, too.

#ifndef TF_GC_OPS_KERNELS_HADAMARD_H_
#define TF_GC_OPS_KERNELS_HADAMARD_H_

#include <cstdint>

#include "ops/kernels/parallel.h"
#include "ops/kernels/philox.h"

namespace tf_gc::kernels {

void Hadamard(const float* values, int64_t rows, int64_t size,
              float* transformed, const ParallelFor& parallel_for);

void RandomizedHadamard(const float* values, int64_t rows, int64_t size,
                        Seed seed, float* transformed,
                        const ParallelFor& parallel_for);

void InverseRandomizedHadamard(const float* values, int64_t rows, int64_t size,
                               Seed seed, float* transformed,
                               const ParallelFor& parallel_for);

// The same of rows that are part of a longer array, on the calling thread:
// values[0] is its value `place`, a multiple of 128.
void RandomizedHadamardPart(const float* values, int64_t rows, int64_t size,
                            Seed seed, int64_t place, float* transformed);
void InverseRandomizedHadamardPart(const float* values, int64_t rows,
                                   int64_t size, Seed seed, int64_t place,
                                   float* transformed);

// Whether rows may have this size: 1, 2, 4, 8, ...
constexpr bool IsHadamardSize(int64_t size) {
  return size > 0 && (size & (size - 1)) == 0;
}

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_HADAMARD_H_
