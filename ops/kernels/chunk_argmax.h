// The index of the value of the largest magnitude in each chunk of values
// (ScaleCom, section 3: the leader's choice).
//
// Magnitudes are compared as the bits of |value|, as an integer: NaN counts as
// larger than infinity (and among NaNs the larger bits win), denormal numbers
// are compared exactly whatever the processor's modes, and -0 = +0. Of equal
// magnitudes the lowest index is taken, so that every instruction set gives the
// same.

#ifndef TF_GC_OPS_KERNELS_CHUNK_ARGMAX_H_
#define TF_GC_OPS_KERNELS_CHUNK_ARGMAX_H_

#include <cstdint>

#include "ops/kernels/parallel.h"

namespace tf_gc::kernels {

// ceil(n / chunk), the number of chunks: the last one may be shorter.
constexpr int64_t NumChunks(int64_t n, int64_t chunk) {
  return n / chunk + (n % chunk != 0);
}

// indices[c] = c chunk + argmax_j |values[c chunk + j]|, NumChunks of them:
// indices of values, not of places in the chunk. 0 <= n <= 2^31 - 1, chunk >= 1
// (it may be larger than n). n = 0 writes nothing. Pointers need no alignment
// beyond that of their types, and must not overlap.
void ChunkArgmax(const float* values, int64_t n, int64_t chunk,
                 int32_t* indices, const ParallelFor& parallel_for);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_CHUNK_ARGMAX_H_
