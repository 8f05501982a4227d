// The checksum of what is sent.

#ifndef TF_GC_OPS_WIRE_CHECKSUM_H_
#define TF_GC_OPS_WIRE_CHECKSUM_H_

#include <cstdint>

namespace tf_gc {

// CRC-32C (Castagnoli) of the bytes; `before` is that of what comes before
// them.
uint32_t Checksum(const uint8_t* bytes, int64_t size, uint32_t before = 0);

}  // namespace tf_gc

#endif  // TF_GC_OPS_WIRE_CHECKSUM_H_
