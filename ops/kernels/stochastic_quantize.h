// Stochastic quantisation: each value becomes the index of one of the two
// levels around it, drawn so that the level is the value on average (THC,
// sections 4.1 and 4.3; its quantization values are the levels).
//
//   v = values[i], clamped to the levels; NaN becomes levels[0]
//   z = the largest index <= num_levels - 2 with levels[z] <= v
//   index = z + 1 where v - levels[z] > r (levels[z + 1] - levels[z]), else z
//
// in float32, each operation rounded by itself. Denormal numbers count,
// whatever the calling thread's mode. The i-th value of a stream has the random
// number
//
//   r = (h + 1/2) 2^-16,  h = half i % 8 of block i / 8 of the seed's Philox
//
// (see philox.h). A value on a level gets its index, whatever r is. Between the
// levels the probability of the upper one differs from the exact one by at most
// 2^-17, and by float32's rounding. Of equal levels z is the last, but at most
// num_levels - 2. Where the distance of two levels overflows, the lower one is
// chosen.
//
// `levels` are num_levels of them, for which FindBadLevel finds nothing.
// `first` is the place of values[0] in the stream, a multiple of 8: a tensor
// may be cut there, and its parts quantised in any order, with the same result.
// Pointers need no alignment; input and output must not overlap. n = 0 is fine.
// Every instruction set gives the same bytes.

#ifndef TF_GC_OPS_KERNELS_STOCHASTIC_QUANTIZE_H_
#define TF_GC_OPS_KERNELS_STOCHASTIC_QUANTIZE_H_

#include <cstdint>

#include "ops/kernels/bit_packing.h"
#include "ops/kernels/philox.h"

namespace tf_gc::kernels {

inline constexpr int kMinLevels = 2;
inline constexpr int kMaxLevels = 256;

// About how many processor cycles a value takes, for ParallelFor.
inline constexpr int64_t kStochasticQuantizeCost = 3;

// Index of the first level that is not finite or is less than the one before,
// or -1.
int FindBadLevel(const float* levels, int num_levels);

// Writes n indices, each less than num_levels, which is kMinLevels ...
// kMaxLevels.
void StochasticQuantize(const float* values, int64_t n, const float* levels,
                        int num_levels, Seed seed, int64_t first,
                        uint8_t* indices);

// The same indices, of v = values[i] / divisor with a divisor > 0, through
// PackBits: writes PackedSize(n, bits) bytes. num_levels is at most 2^bits.
void StochasticQuantizePack(const float* values, float divisor, int64_t n,
                            const float* levels, int num_levels, Seed seed,
                            int64_t first, int bits, uint8_t* packed);

// The same with r = 1/2: the nearest level, and the lower one of two.
void NearestQuantizePack(const float* values, float divisor, int64_t n,
                         const float* levels, int num_levels, int bits,
                         uint8_t* packed);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_STOCHASTIC_QUANTIZE_H_
