// The part of cub::BlockScan that the kernels use, for emulator.h.

#ifndef TF_GC_TESTS_CUDA_EMULATOR_CUB_BLOCK_BLOCK_SCAN_H_
#define TF_GC_TESTS_CUDA_EMULATOR_CUB_BLOCK_BLOCK_SCAN_H_

#include "tests/cuda/emulator/emulator.h"

namespace cub {

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_WARP_SCANS };

template <typename T, int kThreads, BlockScanAlgorithm = BLOCK_SCAN_RAKING>
class BlockScan {
 public:
  struct TempStorage {};

  explicit BlockScan(TempStorage&) {}

  // *prefix is `initial` combined with all items before the thread's, and
  // *total, for all threads, all items, without `initial`.
  template <typename Operator>
  void ExclusiveScan(T item, T& prefix, T initial, Operator combine, T& total) {
    static T prefixes[kThreads];
    static T all;
    const emulator::BlockExchange<T> items(item);
    if (emulator::Rank() == 0) {
      prefixes[0] = initial;
      all = item;
      for (int i = 1; i < kThreads; ++i) {
        prefixes[i] = combine(prefixes[i - 1], items[i - 1]);
        all = combine(all, items[i]);
      }
    }
    emulator::WaitForBlock();
    prefix = prefixes[emulator::Rank()];
    total = all;
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
