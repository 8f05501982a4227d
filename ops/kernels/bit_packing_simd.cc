#include <cstdint>

#include "ops/kernels/bit_packing-inl.h"
#include "ops/kernels/kernel_table.h"
#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

template <int kBits>
void PackOf(const uint8_t* indices, int64_t n, uint8_t* packed) {
  int64_t i = 0;
  for (; i + kVectorBytes <= n; i += kVectorBytes) {
    PackVector<kBits>(Load<Bytes>(indices + i), packed);
    packed += kPackedBytes<kBits>;
  }
  if (i < n) {
    Bytes rest = {};
    __builtin_memcpy(&rest, indices + i, n - i);
    PackRest<kBits>(rest, n - i, packed);
  }
}

template <int kBits>
void UnpackOf(const uint8_t* packed, int64_t n, uint8_t* indices) {
  ForEachUnpacked<kBits>(packed, n,
                         [=](int64_t i, int64_t count, const Bytes& unpacked) {
                           if (count == kVectorBytes) {
                             Store(unpacked, indices + i);
                           } else {
                             __builtin_memcpy(indices + i, &unpacked, count);
                           }
                         });
}

void Pack(const uint8_t* indices, int64_t n, int bits, uint8_t* packed) {
  switch (bits) {
    case 2:
      return PackOf<2>(indices, n, packed);
    case 3:
      return PackOf<3>(indices, n, packed);
    case 4:
      return PackOf<4>(indices, n, packed);
    case 5:
      return PackOf<5>(indices, n, packed);
    default:
      return PackOf<8>(indices, n, packed);
  }
}

void Unpack(const uint8_t* packed, int64_t n, int bits, uint8_t* indices) {
  switch (bits) {
    case 2:
      return UnpackOf<2>(packed, n, indices);
    case 3:
      return UnpackOf<3>(packed, n, indices);
    case 4:
      return UnpackOf<4>(packed, n, indices);
    case 5:
      return UnpackOf<5>(packed, n, indices);
    default:
      return UnpackOf<8>(packed, n, indices);
  }
}

}  // namespace

const BitPackingTable kBitPackingTable = {Pack, Unpack};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
