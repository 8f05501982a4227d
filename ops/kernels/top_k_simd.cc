#include <cstdint>

#include "ops/kernels/compress-inl.h"
#include "ops/kernels/kernel_table.h"
#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

// What is known so far of the values that are looked through.
struct Collector {
  Ints threshold;
  UnsignedInts position;
  Ints ties;  // Less the number of ties in each lane.
  int64_t above;
  int32_t* keys;
  int32_t* indices;

  // Looks at the values in the lanes that are 1 in `mask`. Branches would cost
  // more than stores that the next ones overwrite.
  inline void Add(const float* values, uint32_t mask) {
    const Ints key = Load<Ints>(values) & kMagnitudeBits;
    const uint32_t chosen = GreaterMask(key, threshold) & mask;
    Store(Compress(reinterpret_cast<UnsignedInts>(key), chosen), keys + above);
    Store(Compress(position, chosen), indices + above);
    above += CountOnes(chosen);
    ties += key == threshold;
    position += kLanes;
  }
};

int64_t CountTies(Ints ties, int64_t lanes) {
  int64_t count = 0;
  for (int64_t lane = 0; lane < lanes; ++lane) count -= ties[lane];
  return count;
}

int64_t Collect(const float* values, int64_t n, int64_t first,
                int32_t threshold, int32_t* keys, int32_t* indices,
                int64_t* ties) {
  constexpr uint32_t kAll = (1u << kLanes) - 1;
  Collector collector = {Ints{} + threshold,
                         CountFrom(static_cast<uint32_t>(first)),
                         {},
                         0,
                         keys,
                         indices};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) collector.Add(values + i, kAll);
  *ties = CountTies(collector.ties, kLanes);
  if (i < n) {
    float rest[kLanes] = {};
    __builtin_memcpy(rest, values + i, (n - i) * sizeof(float));
    collector.ties = Ints{};
    collector.Add(rest, (1u << (n - i)) - 1);
    *ties += CountTies(collector.ties, n - i);
  }
  return collector.above;
}

}  // namespace

const TopKTable kTopKTable = {Collect};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
