// The checksum of what is sent.

#ifndef TF_GC_OPS_WIRE_CHECKSUM_H_
#define TF_GC_OPS_WIRE_CHECKSUM_H_

#include <cstdint>
#include <string_view>

#include "absl/crc/crc32c.h"

namespace tf_gc {

// CRC-32C, for which processors have an instruction; `before` is that of what
// comes before these bytes.
inline uint32_t Checksum(const uint8_t* bytes, int64_t size,
                         uint32_t before = 0) {
  return static_cast<uint32_t>(absl::ExtendCrc32c(
      absl::crc32c_t{before},
      std::string_view(reinterpret_cast<const char*>(bytes), size)));
}

}  // namespace tf_gc

#endif  // TF_GC_OPS_WIRE_CHECKSUM_H_
