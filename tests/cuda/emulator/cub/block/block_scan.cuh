// The part of cub::BlockScan that the kernels use, for emulator.h.

#ifndef TF_GC_TESTS_CUDA_EMULATOR_CUB_BLOCK_BLOCK_SCAN_H_
#define TF_GC_TESTS_CUDA_EMULATOR_CUB_BLOCK_BLOCK_SCAN_H_

#include "tests/cuda/emulator/emulator.h"

namespace cub {

template <typename T, int kThreads>
class BlockScan {
 public:
  struct TempStorage {};

  explicit BlockScan(TempStorage&) {}

  // *prefix is `initial` combined with all items before the thread's, and
  // *total, for all threads, all items, without `initial`.
  template <typename Operator>
  void ExclusiveScan(T item, T& prefix, T initial, Operator combine, T& total) {
    const emulator::BlockExchange<T> items(item);
    prefix = initial;
    for (int i = 0; i < emulator::Rank(); ++i) {
      prefix = combine(prefix, items[i]);
    }
    total = items[0];
    for (int i = 1; i < kThreads; ++i) total = combine(total, items[i]);
  }

  template <typename Operator>
  void ExclusiveScan(T item, T& prefix, T initial, Operator combine) {
    T total;
    ExclusiveScan(item, prefix, initial, combine, total);
  }

  void ExclusiveSum(T item, T& prefix, T& total) {
    ExclusiveScan(
        item, prefix, T{}, [](T a, T b) { return static_cast<T>(a + b); },
        total);
  }

  void ExclusiveSum(T item, T& prefix) {
    T total;
    ExclusiveSum(item, prefix, total);
  }
};

}  // namespace cub

#endif  // TF_GC_TESTS_CUDA_EMULATOR_CUB_BLOCK_BLOCK_SCAN_H_
