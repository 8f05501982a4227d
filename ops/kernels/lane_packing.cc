#include "ops/kernels/lane_packing.h"

#include <cstring>

#include "ops/kernels/bit_packing.h"
#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {
namespace {

const LanePackingTable& Table() {
  return TF_GC_ACTIVE_TABLE(kLanePackingTable);
}

}  // namespace

void PackLanes(const uint8_t* lanes, int64_t n, int bits, uint8_t* packed) {
  if (IsPackableBits(bits)) return PackBits(lanes, n, bits, packed);
  Table().pack_bytes(lanes, n, bits, packed);
}

void PackLanes(const uint16_t* lanes, int64_t n, int bits, uint8_t* packed) {
  if (bits < 16) return Table().pack_words(lanes, n, bits, packed);
  if (n > 0) std::memcpy(packed, lanes, n * sizeof(uint16_t));
}

void UnpackLanes(const uint8_t* packed, int64_t n, int bits, uint8_t* lanes) {
  if (IsPackableBits(bits)) return UnpackBits(packed, n, bits, lanes);
  Table().unpack_bytes(packed, n, bits, lanes);
}

void UnpackLanes(const uint8_t* packed, int64_t n, int bits, uint16_t* lanes) {
  if (bits < 16) return Table().unpack_words(packed, n, bits, lanes);
  if (n > 0) std::memcpy(lanes, packed, n * sizeof(uint16_t));
}

}  // namespace tf_gc::kernels
