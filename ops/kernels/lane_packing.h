// Integer lanes of some bits, packed: what is sent of sums of table values
// (table_sum.h).
//
// They lie as the indices of bit_packing.h, and take PackedSize(n, bits) bytes
// for any width of 1 to 16 bits: eight lanes take `bits` whole bytes, so that
// what begins at a multiple of eight lanes can be packed and unpacked by
// itself. Pointers need no alignment but for the type's own; input and output
// must not overlap. n = 0 gives zero bytes.

#ifndef TF_GC_OPS_KERNELS_LANE_PACKING_H_
#define TF_GC_OPS_KERNELS_LANE_PACKING_H_

#include <cstdint>

namespace tf_gc::kernels {

// About how many processor cycles a lane takes, for ParallelFor.
inline constexpr int64_t kLanePackingCost = 1;

// The bits of a lane that holds 0 ... largest: ceil(log2(largest + 1)), and at
// least 1.
constexpr int LaneBits(int64_t largest) {
  int bits = 1;
  while (largest >> bits != 0) ++bits;
  return bits;
}

// Writes PackedSize(n, bits) bytes. `bits` is at most those of the type, and
// each of the n lanes less than 2^bits.
void PackLanes(const uint8_t* lanes, int64_t n, int bits, uint8_t* packed);
void PackLanes(const uint16_t* lanes, int64_t n, int bits, uint8_t* packed);

// Writes n lanes, each less than 2^bits, from any PackedSize(n, bits) bytes;
// does not look at the padding.
void UnpackLanes(const uint8_t* packed, int64_t n, int bits, uint8_t* lanes);
void UnpackLanes(const uint8_t* packed, int64_t n, int bits, uint16_t* lanes);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_LANE_PACKING_H_
