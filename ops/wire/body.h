// What is read from the bodies of messages, and checked.

#ifndef TF_GC_OPS_WIRE_BODY_H_
#define TF_GC_OPS_WIRE_BODY_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"

namespace tf_gc {

// A number in a body, which has no alignment of its own.
template <typename T>
T ReadNumber(const uint8_t* bytes) {
  T number;
  std::memcpy(&number, bytes, sizeof(T));
  return number;
}
template <typename T>
void WriteNumber(T number, uint8_t* bytes) {
  std::memcpy(bytes, &number, sizeof(T));
}

// Whether a body may have it as a norm, or as the scale of its values.
inline bool IsScale(float scale) { return scale >= 0 && std::isfinite(scale); }

// DataLoss unless a body that can only have `expected` bytes has them.
// `message` is what the error calls the message.
absl::Status CheckBodySize(const std::string& message, int64_t size,
                           int64_t expected);

// DataLoss unless these `size` bytes are the packed signs of `values` values
// (ops/kernels/signs.h), with padding bits of 0.
absl::Status CheckSigns(const std::string& message, const uint8_t* signs,
                        int64_t size, int64_t values);

}  // namespace tf_gc

#endif  // TF_GC_OPS_WIRE_BODY_H_
