// Ternary quantisation with a given scale: values in {-1, 0, 1}, to the nearest
// or unbiased.
//
//   nearest:     q = sgn(v) where 2 |v| > scale, else 0
//   stochastic:  q = sgn(v) where |v| > r scale, else 0
//
// The first is round-half-even(v / scale) for |v| <= scale, as in 3LC (section
// 3.1). In the second, r of value i is (u + 0.5) 2^-16 with u = half i % 8 of
// the block i / 8 of the seed's stream (philox.h), and r scale is rounded to
// float32. So P(q != 0) is |v| / scale, but for 2^-17 at most, and 1 from the
// scale on: scale q is an unbiased estimate of v while |v| <= scale. (But for
// scales that are denormal, as r scale is rounded more there.)
//
// `scale` is finite and >= 0; with 0 every q is 0. Else NaN gives 0, infinity
// its sign, +0 and -0 give 0. Pointers need no alignment; n = 0 is fine; input
// and output must not overlap. Denormal numbers count, whatever the calling
// thread's mode. Every instruction set gives the same bits.

#ifndef TF_GC_OPS_KERNELS_TERNARY_H_
#define TF_GC_OPS_KERNELS_TERNARY_H_

#include <cstdint>

#include "ops/kernels/philox.h"

namespace tf_gc::kernels {

// Of a part of a tensor, StochasticTernary begins at a multiple of this.
inline constexpr int64_t kStochasticTernaryUnit = 8;

// Whether `scale` is one: finite and >= 0.
constexpr bool IsTernaryScale(float scale) {
  return scale >= 0 && scale - scale == 0;
}

void NearestTernary(const float* values, int64_t n, float scale,
                    int8_t* ternary);

// values[0] is value `first` of the stream, a multiple of
// kStochasticTernaryUnit.
void StochasticTernary(const float* values, int64_t n, float scale, Seed seed,
                       int64_t first, int8_t* ternary);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_TERNARY_H_
