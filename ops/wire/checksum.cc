#include "ops/wire/checksum.h"

#include <nmmintrin.h>

#include <cstring>
#include <string_view>

#include "absl/crc/crc32c.h"

namespace tf_gc {
namespace {

using absl::crc32c_t;

// Bytes of a lane: so many that joining lanes costs nothing beside.
constexpr int64_t kLane = int64_t{1} << 14;

// The bits of a checksum under way are inverted.
uint64_t Begin(crc32c_t crc) { return ~static_cast<uint32_t>(crc); }
crc32c_t End(uint64_t crc) { return crc32c_t{~static_cast<uint32_t>(crc)}; }

uint64_t Add(uint64_t crc, const uint8_t* bytes) {
  uint64_t eight;
  std::memcpy(&eight, bytes, sizeof(eight));
  return _mm_crc32_u64(crc, eight);
}

// Of three lanes. The instruction takes three cycles and can begin in each of
// them, so three lanes take as long as one. Abseil does so on the processors
// that it knows, which the newest are not.
crc32c_t ExtendByLanes(crc32c_t before, const uint8_t* bytes) {
  uint64_t first = Begin(before), second = Begin(crc32c_t{0}), third = second;
  for (int64_t i = 0; i < kLane; i += 8) {
    first = Add(first, bytes + i);
    second = Add(second, bytes + kLane + i);
    third = Add(third, bytes + 2 * kLane + i);
  }
  return absl::ConcatCrc32c(absl::ConcatCrc32c(End(first), End(second), kLane),
                            End(third), kLane);
}

}  // namespace

uint32_t Checksum(const uint8_t* bytes, int64_t size, uint32_t before) {
  crc32c_t crc{before};
  for (; size >= 3 * kLane; bytes += 3 * kLane, size -= 3 * kLane) {
    crc = ExtendByLanes(crc, bytes);
  }
  return static_cast<uint32_t>(absl::ExtendCrc32c(
      crc, std::string_view(reinterpret_cast<const char*>(bytes), size)));
}

}  // namespace tf_gc
