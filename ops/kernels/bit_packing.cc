#include "ops/kernels/bit_packing.h"

#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {

int64_t FindUnpackable(const uint8_t* indices, int64_t n, int bits) {
  return TF_GC_ACTIVE_TABLE(kQuarticTable)
      .find_above(indices, n, /*offset=*/0,
                  static_cast<uint8_t>((1 << bits) - 1));
}

void PackBits(const uint8_t* indices, int64_t n, int bits, uint8_t* packed) {
  TF_GC_ACTIVE_TABLE(kBitPackingTable).pack(indices, n, bits, packed);
}

bool PaddingIsZero(const uint8_t* packed, int64_t n, int bits) {
  const int64_t used = n % 8 * bits % 8;
  return used == 0 || packed[PackedSize(n, bits) - 1] >> used == 0;
}

void UnpackBits(const uint8_t* packed, int64_t n, int bits, uint8_t* indices) {
  TF_GC_ACTIVE_TABLE(kBitPackingTable).unpack(packed, n, bits, indices);
}

}  // namespace tf_gc::kernels
