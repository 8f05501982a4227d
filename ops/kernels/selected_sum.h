// The sum of what several workers have selected of n values.
//
// A message has k indices as PackIndices writes them (index_packing.h), and
// behind them k floats, the values at these indices. Nothing is aligned.
//
// 0 <= k <= n <= 2^31 - 1 everywhere.

#ifndef TF_GC_OPS_KERNELS_SELECTED_SUM_H_
#define TF_GC_OPS_KERNELS_SELECTED_SUM_H_

#include <cstdint>

#include "ops/kernels/parallel.h"

namespace tf_gc::kernels {

// The number of bytes of a message.
int64_t SelectedSize(int64_t k, int64_t n);

// What is wrong with a message: as UnpackIndices says it, or null.
struct SelectedError {
  const char* what = nullptr;
  int64_t message = 0;  // the first one that is wrong
};

// sums[i] = the values at index i of all messages, in their order, whatever the
// threads, or 0. `messages` are `count` times SelectedSize(k, n) bytes,
// `indices` room for count times k. Where there is an error the n sums are
// undefined.
SelectedError SumSelected(const uint8_t* messages, int64_t count, int64_t k,
                          int64_t n, const ParallelFor& parallel_for,
                          int32_t* indices, float* sums);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_SELECTED_SUM_H_
