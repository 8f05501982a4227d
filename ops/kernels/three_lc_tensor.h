// The 3LC encoding of a whole tensor: its scale M as a little-endian float32,
// then the payload of three_lc.h. A tensor in units is all of their matrix:
// `first` is 0.
//
// A tensor of which some value + residual is not finite, or whose scale
// overflows, has the scale NaN and no payload, and decodes to NaN everywhere:
// as uncompressed, one bad gradient is seen by all.

#ifndef TF_GC_OPS_KERNELS_THREE_LC_TENSOR_H_
#define TF_GC_OPS_KERNELS_THREE_LC_TENSOR_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/kernels/three_lc.h"

namespace tf_gc::kernels {

// The bytes before the payload.
inline constexpr int64_t kThreeLcScaleSize = 4;

// The most values that one payload byte stands for: 14 quartic bytes of 5.
inline constexpr int64_t kThreeLcMaxValuesPerByte = 5 * kMaxZeroRun;

// What makes the scale M of some values t, which are in units: M = s max |t|,
// or M = min(s, max |t|) where s counts units, or, of the mean, M = min(s mean
// |t|, max |t|). A few values that have waited for long do not move the latter
// two; where all are small or alike, the maximum sees to it that they are sent.
struct ThreeLcScaling {
  enum class Of : uint8_t { kMax, kMean, kUnit };

  constexpr ThreeLcScaling(float s, Of statistic = Of::kMax)  // NOLINT
      : multiplier(s), of(statistic) {}

  // What s must be less than. At twice the maximum every q is 0.
  constexpr float limit() const { return of == Of::kMax ? 2 : 64; }
  constexpr bool IsValid() const {
    return multiplier > 0 && multiplier < limit();
  }

  // Whether M is known of finite values one of which is so large.
  bool IsSettled(float magnitude) const {
    return of == Of::kUnit && magnitude >= multiplier;
  }

  // What no M is above.
  float largest_scale() const {
    return of == Of::kUnit ? multiplier : std::numeric_limits<float>::max();
  }

  // What takes its place for values that may have no units.
  ThreeLcScaling For(const Units& units) const {
    constexpr float kMeans = 3;
    const bool has_none = of == Of::kUnit && units.rows == nullptr;
    return has_none ? ThreeLcScaling(kMeans, Of::kMean) : *this;
  }
  // The same for the sum of n tensors, quantised and mostly noise: 2 root n
  // times as many of their units.
  ThreeLcScaling OfSum(int n) const {
    return {of == Of::kUnit ? 2 * multiplier * std::sqrt(static_cast<float>(n))
                            : multiplier,
            of};
  }

  float multiplier;  // s
  Of of;
};

// The sparsity multipliers that 3LC knows: 0 < s < 2.
constexpr bool IsSparsityMultiplier(float s) {
  return ThreeLcScaling(s).IsValid();
}

// Room that ThreeLcEncodeTensor needs: the largest encoding of n values.
constexpr int64_t ThreeLcTensorBufferSize(int64_t n) {
  return kThreeLcScaleSize + QuarticSize(n);
}

// What the scale is made of: for a maximum, `total` is no sum, but not finite
// where a value is not. Weights are those of MaxAbsSum. Of sums that are known
// to be finite only as many are looked at as settle the scale.
Magnitudes ThreeLcMeasure(ThreeLcScaling scaling, const float* values,
                          const float* residual, int64_t n,
                          const ParallelFor& parallel_for,
                          const Units& weights = {}, bool are_finite = false);

// The scale M of what was measured: NaN if that, or M, is not finite.
float ThreeLcScaleOf(ThreeLcScaling scaling, const Magnitudes& magnitudes);

// The scale M of n values, or NaN if they get no payload.
float ThreeLcScale(const float* values, const float* residual,
                   ThreeLcScaling scaling, int64_t n,
                   const ParallelFor& parallel_for, const Units& units = {});

// Encodes n values and returns the encoding's size. Pointers are those of
// ThreeLcEncode; without a payload the new residual is the old one.
// Precondition: scaling.IsValid().
int64_t ThreeLcEncodeTensor(const float* values, const float* residual,
                            ThreeLcScaling scaling, int64_t n,
                            float* new_residual, uint8_t* encoded,
                            const ParallelFor& parallel_for,
                            const Units& units = {});

// What is wrong with `size` bytes as the start of the encoding of n values, as
// far as their number and scale say, or null. Decoding checks the rest; this
// says whether it is worth allocating n values.
const char* ThreeLcCheckTensor(const uint8_t* encoded, int64_t size, int64_t n);

// What is wrong with a payload of which decoding n values has used `used` of
// `size` bytes, or -1 (see ThreeLcDecode), or null.
const char* ThreeLcCheckUsed(int64_t used, int64_t size);

// Decodes n values. Returns null, or, with `values` undefined, what is wrong
// with the encoding, as the end of a sentence that begins with its name.
const char* ThreeLcDecodeTensor(const uint8_t* encoded, int64_t size, int64_t n,
                                float* values, const ParallelFor& parallel_for,
                                const Units& units = {});

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_THREE_LC_TENSOR_H_
