#include "ops/kernels/three_lc_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace tf_gc::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// How many values are looked at first, where so few may be enough.
constexpr int64_t kFirstLook = 4096;

float ReadScale(const uint8_t* encoded) {
  float scale;
  static_assert(sizeof(scale) == kThreeLcScaleSize);
  std::memcpy(&scale, encoded, sizeof(scale));
  return scale;
}

}  // namespace

Magnitudes ThreeLcMeasure(ThreeLcScaling scaling, const float* values,
                          const float* residual, int64_t n,
                          const ParallelFor& parallel_for, const Units& weights,
                          bool are_finite) {
  if (scaling.of == ThreeLcScaling::Of::kMean) {
    return MagnitudesOf(values, residual, n, parallel_for, weights);
  }
  Units part = weights;
  float largest = 0;
  int64_t begin = 0;
  int64_t end =
      are_finite && scaling.of == ThreeLcScaling::Of::kUnit ? kFirstLook : n;
  while (begin < n) {
    end = std::min(end, n);
    part.first = weights.first + begin;
    const float found = MaxAbsSum(
        values + begin, residual == nullptr ? nullptr : residual + begin,
        end - begin, parallel_for, part);
    if (!(found <= largest)) largest = found;  // NaN is larger
    if (are_finite && scaling.IsSettled(largest)) break;
    begin = end;
    end = 2 * end;
  }
  return {largest, largest, n};
}

float ThreeLcScaleOf(ThreeLcScaling scaling, const Magnitudes& magnitudes) {
  if (!std::isfinite(magnitudes.total)) return kNan;
  if (scaling.of == ThreeLcScaling::Of::kMax) {
    const float scale = scaling.multiplier * magnitudes.largest;
    return std::isfinite(scale) ? scale : kNan;
  }
  if (scaling.of == ThreeLcScaling::Of::kUnit) {
    return std::min(scaling.multiplier, magnitudes.largest);
  }
  const double count = std::max(magnitudes.count, int64_t{1});
  return std::min(
      static_cast<float>(scaling.multiplier * (magnitudes.total / count)),
      magnitudes.largest);
}

float ThreeLcScale(const float* values, const float* residual,
                   ThreeLcScaling scaling, int64_t n,
                   const ParallelFor& parallel_for, const Units& units) {
  scaling = scaling.For(units);
  std::vector<float> reciprocals;
  Units weights = {};
  if (units.rows != nullptr && n > 0) {
    const int64_t rows = n / units.width;
    reciprocals = Reciprocals(units, rows);
    weights = UnitsAt(reciprocals.data(), rows, units.width, /*first=*/0);
  }
  return ThreeLcScaleOf(scaling, ThreeLcMeasure(scaling, values, residual, n,
                                                parallel_for, weights));
}

int64_t ThreeLcEncodeTensor(const float* values, const float* residual,
                            ThreeLcScaling scaling, int64_t n,
                            float* new_residual, uint8_t* encoded,
                            const ParallelFor& parallel_for,
                            const Units& units) {
  const float scale =
      ThreeLcScale(values, residual, scaling, n, parallel_for, units);
  std::memcpy(encoded, &scale, sizeof(scale));
  if (!std::isnan(scale)) {
    return kThreeLcScaleSize +
           ThreeLcEncode(values, residual, scale, n, new_residual,
                         encoded + kThreeLcScaleSize, parallel_for, units);
  }
  if (residual == nullptr) {
    std::fill_n(new_residual, n, 0.0f);
  } else {
    std::memmove(new_residual, residual, n * sizeof(float));
  }
  return kThreeLcScaleSize;
}

const char* ThreeLcCheckTensor(const uint8_t* encoded, int64_t size,
                               int64_t n) {
  if (size < kThreeLcScaleSize) return "is too short for its scale";
  const int64_t payload_size = size - kThreeLcScaleSize;
  const float scale = ReadScale(encoded);
  if (std::isnan(scale)) {
    return payload_size == 0 ? nullptr : "has a payload, but the scale NaN";
  }
  if (scale < 0 || std::isinf(scale)) {
    return "has a scale that is negative or infinite";
  }
  if (n / kThreeLcMaxValuesPerByte > payload_size) {
    return "ends before its last value";
  }
  return nullptr;
}

const char* ThreeLcCheckUsed(int64_t used, int64_t size) {
  if (used < 0) {
    return "ends before its last value, or has a zero run or padding that "
           "does not fit";
  }
  return used == size ? nullptr : "goes on behind its last value";
}

const char* ThreeLcDecodeTensor(const uint8_t* encoded, int64_t size, int64_t n,
                                float* values, const ParallelFor& parallel_for,
                                const Units& units) {
  const char* error = ThreeLcCheckTensor(encoded, size, n);
  if (error != nullptr) return error;
  const float scale = ReadScale(encoded);
  if (std::isnan(scale)) {
    std::fill_n(values, n, kNan);
    return nullptr;
  }
  const int64_t payload_size = size - kThreeLcScaleSize;
  const int64_t used = ThreeLcDecode(encoded + kThreeLcScaleSize, payload_size,
                                     scale, n, values, parallel_for, units);
  return ThreeLcCheckUsed(used, payload_size);
}

}  // namespace tf_gc::kernels
