// The indices of the k values of the largest magnitude, exactly.
//
// Magnitudes are compared as the bits of |value|, as an integer: NaN counts as
// larger than infinity (and among NaNs the larger bits win), denormal numbers
// are compared exactly whatever the processor's modes, and -0 = +0. Of equal
// magnitudes the lower indices come first, so that the result is one set,
// whatever the instruction set and the number of threads.

#ifndef TF_GC_OPS_KERNELS_TOP_K_H_
#define TF_GC_OPS_KERNELS_TOP_K_H_

#include <cstdint>

#include "ops/kernels/parallel.h"

namespace tf_gc::kernels {

// Writes k indices in ascending order. 0 <= k <= n <= 2^31 - 1. Pointers need
// no alignment beyond that of their types, and must not overlap.
//
// A sample of the values (always at the same positions for the same n) gives a
// lower bound of the k-th magnitude; one pass collects the values above it, and
// the choice is made among them. Where the sample has misled, or k is more than
// n / 5, histograms of the magnitudes' bits find the k-th one in three
// passes, and two more write the indices. Memory: about 16 bytes for each of
// the k indices, at most 4 n bytes and 128 KiB.
void TopKIndices(const float* values, int64_t n, int64_t k, int32_t* indices,
                 const ParallelFor& parallel_for);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_TOP_K_H_
