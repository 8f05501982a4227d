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
  WithBits(bits, [=](auto width) {
    PackOf<decltype(width)::kValue>(indices, n, packed);
  });
}

void Unpack(const uint8_t* packed, int64_t n, int bits, uint8_t* indices) {
  WithBits(bits, [=](auto width) {
    UnpackOf<decltype(width)::kValue>(packed, n, indices);
  });
}

}  // namespace

const BitPackingTable kBitPackingTable = {Pack, Unpack};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
