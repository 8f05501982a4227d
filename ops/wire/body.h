// What the hops check of the bodies that they get.

#ifndef TF_GC_OPS_WIRE_BODY_H_
#define TF_GC_OPS_WIRE_BODY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace tf_gc {

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
