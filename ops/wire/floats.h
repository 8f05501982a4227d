// Converting the short floats of tensors, for loops that are to become vector
// instructions.

#ifndef TF_GC_OPS_WIRE_FLOATS_H_
#define TF_GC_OPS_WIRE_FLOATS_H_

#include "Eigen/Core"
#include "absl/base/casts.h"
#include "ops/kernels/half.h"

namespace tf_gc {

// Exactly. Copies of the classes would keep loops from becoming vector
// instructions: hence the references, and the member of Eigen::half.
template <typename T>
inline float ToFloat32(const T& value) {
  return static_cast<float>(value);
}
template <>
inline float ToFloat32(const Eigen::half& value) {
  return kernels::HalfToFloat(value.x);
}

// Rounded to nearest, ties to even.
template <typename T>
inline T FromFloat32(float value) {
  return static_cast<T>(value);
}
template <>
inline Eigen::half FromFloat32<Eigen::half>(float value) {
  return absl::bit_cast<Eigen::half>(kernels::FloatToHalf(value));
}

}  // namespace tf_gc

#endif  // TF_GC_OPS_WIRE_FLOATS_H_
