// Finding bytes that may not be.

#ifndef TF_GC_OPS_CUDA_FIND_H_
#define TF_GC_OPS_CUDA_FIND_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/launch.h"

namespace tf_gc::cuda {

// The bytes that are at most `limit` when `offset` is added.
struct Range {
  uint8_t offset;
  uint8_t limit;

  __device__ bool Has(uint8_t byte) const {
    return static_cast<uint8_t>(byte + offset) <= limit;
  }
};

// Lowers *first to the index of the first byte outside `range`. The bytes from
// `head` on are aligned; a unit is 16 of them, or one of the others.
struct FindOutside {
  const uint8_t* bytes;
  int64_t head;
  int64_t vectors;
  Range range;
  int64_t* first;

  __device__ void operator()(int64_t unit) const {
    if (unit < vectors) {
      const int64_t begin = head + 16 * unit;
      const Vector<uint8_t, 16> vector = LoadVector<16>(bytes + begin);
      int outside = 16;
#pragma unroll
      for (int k = 15; k >= 0; --k) {
        if (!range.Has(vector.values[k])) outside = k;
      }
      if (outside < 16) Lower(first, begin + outside);
      return;
    }
    const int64_t rest = unit - vectors;
    const int64_t i = rest < head ? rest : rest + 16 * vectors;
    if (!range.Has(bytes[i])) Lower(first, i);
  }
};

// *first = the index of the first of n bytes outside `range`, or -1.
inline int Find(const uint8_t* bytes, int64_t n, Range range, int64_t* first,
                void* stream) {
  TF_GC_CUDA_RETURN_IF_ERROR(StartLowering(first, stream));
  const int64_t to_aligned = (16 - AddressModulo16(bytes)) % 16;
  const int64_t head = to_aligned < n ? to_aligned : n;
  const int64_t vectors = (n - head) / 16;
  const FindOutside find = {bytes, head, vectors, range, first};
  return ForEach(n - 15 * vectors, stream, find);
}

}  // namespace tf_gc::cuda

#endif  // TF_GC_OPS_CUDA_FIND_H_
