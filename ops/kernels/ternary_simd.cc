#include <cstdint>

#include "ops/kernels/kernel_table.h"
#include "ops/kernels/philox-inl.h"
#include "ops/kernels/simd-inl.h"
#include "ops/kernels/ternary-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

// Quantises kVectorBytes values at a time: quantize(i, values) gives q of
// those from i on, at `values`.
template <typename Quantize>
inline void ForEachVector(const float* values, int64_t n, int8_t* ternary,
                          const Quantize& quantize) {
  int64_t i = 0;
  for (; i + kVectorBytes <= n; i += kVectorBytes) {
    Store(quantize(i, values + i), ternary + i);
  }
  if (i < n) {
    float rest[kVectorBytes] = {};
    __builtin_memcpy(rest, values + i, (n - i) * sizeof(float));
    const Bytes q = quantize(i, rest);
    __builtin_memcpy(ternary + i, &q, n - i);
  }
}

void Nearest(const float* values, int64_t n, float scale, int8_t* ternary) {
  const Scale scales = MakeScale(scale);
  ForEachVector(values, n, ternary, [&](int64_t, const float* from) {
    Ints q[4];
    for (int k = 0; k < 4; ++k) {
      const Floats v = Load<Floats>(from + k * kLanes);
      q[k] = (v < scales.lower) - (v > scales.upper);
    }
    return Narrow(q);
  });
}

void Stochastic(const float* values, int64_t n, float scale, Seed seed,
                int64_t first, int8_t* ternary) {
  // One turn of the generator is for one vector of q.
  static_assert(Philox::kWords * 2 == kVectorBytes);
  const Philox philox(seed);
  const Floats scales = Broadcast(scale);
  const uint64_t first_block = static_cast<uint64_t>(first) / 8;
  ForEachVector(values, n, ternary, [&](int64_t i, const float* from) {
    UnsignedInts words[2];
    philox.Generate(first_block + i / 8, words);
    uint16_t halves[kVectorBytes];
    __builtin_memcpy(halves, words, sizeof(halves));
    Ints q[4];
    for (int k = 0; k < 4; ++k) {
      const Ints bits = Load<Ints>(from + k * kLanes);
      const Floats magnitude = reinterpret_cast<Floats>(bits & kMagnitudeBits);
      const Ints is_nonzero =
          magnitude > Fractions(halves + k * kLanes) * scales;
      q[k] = ((bits >> 31) | 1) & is_nonzero;
    }
    return Narrow(q);
  });
}

}  // namespace

const TernaryTable kTernaryTable = {Nearest, Stochastic};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
