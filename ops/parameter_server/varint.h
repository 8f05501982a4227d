// Unsigned LEB128: seven bits a byte, the lowest first; all bytes but the last
// have the upper bit set.

#ifndef TF_GC_OPS_PARAMETER_SERVER_VARINT_H_
#define TF_GC_OPS_PARAMETER_SERVER_VARINT_H_

#include <cstdint>

namespace tf_gc::parameter_server {

constexpr int64_t VarintSize(uint64_t value) {
  int64_t size = 1;
  while (value >>= 7) ++size;
  return size;
}

// Writes VarintSize(value) bytes and returns their end.
inline uint8_t* WriteVarint(uint64_t value, uint8_t* out) {
  for (; value >= 0x80; value >>= 7) *out++ = value | 0x80;
  *out++ = static_cast<uint8_t>(value);
  return out;
}

// Reads what WriteVarint can have written, and moves *at behind it. False, with
// *at anywhere before `end`, for anything else.
inline bool ReadVarint(const uint8_t** at, const uint8_t* end,
                       uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && *at < end; shift += 7) {
    const uint8_t byte = *(*at)++;
    if (shift == 63 && byte > 1) return false;
    *value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return byte != 0 || shift == 0;
  }
  return false;
}

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_VARINT_H_
