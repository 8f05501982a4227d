// Exclusive scans of few items, as one per block of a large kernel.

#ifndef TF_GC_OPS_CUDA_SCAN_H_
#define TF_GC_OPS_CUDA_SCAN_H_

#include <cub/block/block_scan.cuh>

#include "ops/cuda/launch.h"

namespace tf_gc::cuda {

inline constexpr int kScanThreads = 512;
inline constexpr int kScanItems = 8;  // Of each thread in a turn.

template <typename T, typename Operator>
__global__ void __launch_bounds__(kScanThreads)
    ExclusiveScanKernel(T* items, int64_t count, T identity, Operator combine) {
  using Scan = cub::BlockScan<T, kScanThreads, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ typename Scan::TempStorage storage;
  T before = identity;
  for (int64_t begin = 0; begin < count; begin += kScanThreads * kScanItems) {
    const int64_t first = begin + kScanItems * threadIdx.x;
    T own[kScanItems];
    T sum = identity;
#pragma unroll
    for (int k = 0; k < kScanItems; ++k) {
      own[k] = first + k < count ? items[first + k] : identity;
      sum = combine(sum, own[k]);
    }
    T prefix, total;
    Scan(storage).ExclusiveScan(sum, prefix, before, combine, total);
#pragma unroll
    for (int k = 0; k < kScanItems; ++k) {
      if (first + k < count) items[first + k] = prefix;
      prefix = combine(prefix, own[k]);
    }
    before = combine(before, total);
    __syncthreads();  // The storage is used again.
  }
}

// items[i] becomes the combination of all items before it, the identity for
// i = 0. `combine` is associative; it need not be commutative. One block does
// it all: some microseconds for ten thousand items.
template <typename T, typename Operator>
int ExclusiveScan(T* items, int64_t count, const T& identity,
                  const Operator& combine, void* stream) {
  if (count == 0) return cudaSuccess;
  return Launch(ExclusiveScanKernel<T, Operator>, 1, kScanThreads, stream,
                items, count, identity, combine);
}

struct Add {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

}  // namespace tf_gc::cuda

#endif  // TF_GC_OPS_CUDA_SCAN_H_
