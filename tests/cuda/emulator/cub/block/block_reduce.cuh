// The part of cub::BlockReduce that the kernels use, for emulator.h.

#ifndef TF_GC_TESTS_CUDA_EMULATOR_CUB_BLOCK_BLOCK_REDUCE_H_
#define TF_GC_TESTS_CUDA_EMULATOR_CUB_BLOCK_BLOCK_REDUCE_H_

#include "tests/cuda/emulator/emulator.h"

namespace cub {

template <typename T, int kThreads>
class BlockReduce {
 public:
  struct TempStorage {};

  explicit BlockReduce(TempStorage&) {}

  // Only thread 0 gets the result; the others get their own item.
  template <typename Operator>
  T Reduce(T item, Operator combine) {
    const emulator::BlockExchange<T> items(item);
    if (emulator::Rank() != 0) return item;
    for (int i = 1; i < kThreads; ++i) item = combine(item, items[i]);
    return item;
  }

  T Sum(T item) {
    return Reduce(item, [](T a, T b) { return static_cast<T>(a + b); });
  }
};

}  // namespace cub

#endif  // TF_GC_TESTS_CUDA_EMULATOR_CUB_BLOCK_BLOCK_REDUCE_H_
