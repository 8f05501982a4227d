// Unpacks bytes as packed indices: first what chooses the bits and how many
// values the last byte holds, then the bytes. All instruction sets must agree,
// and where the padding is 0 the indices must pack to the same bytes again.

#include <cstdint>
#include <vector>

#include "ops/kernels/bit_packing.h"
#include "ops/kernels/dispatch.h"
#include "tests/fuzz/check.h"

namespace tf_gc::kernels {
namespace {

void Fuzz(const std::vector<uint8_t>& packed, int64_t n, int bits) {
  std::vector<uint8_t> first;
  for (const InstructionSet set : SupportedInstructionSets()) {
    Check(SetInstructionSet(set));
    std::vector<uint8_t> indices(n);
    UnpackBits(packed.data(), n, bits, indices.data());
    if (set == InstructionSet::kBaseline) first = indices;
    Check(indices == first);
    Check(FindUnpackable(indices.data(), n, bits) == -1);
    std::vector<uint8_t> again(packed.size());
    PackBits(indices.data(), n, bits, again.data());
    Check((again == packed) == PaddingIsZero(packed.data(), n, bits));
  }
}

}  // namespace
}  // namespace tf_gc::kernels

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  constexpr int kAllBits[] = {2, 3, 4, 5, 8};
  const int bits = kAllBits[data[0] % 5];
  const std::vector<uint8_t> bytes(data + 1, data + size);
  // As many values as fit, or fewer that need some of the last byte.
  int64_t n = static_cast<int64_t>(bytes.size()) * 8 / bits;
  n -= data[0] / 5 % 4;
  if (n < 0 || tf_gc::kernels::PackedSize(n, bits) !=
                   static_cast<int64_t>(bytes.size())) {
    return 0;
  }
  tf_gc::kernels::Fuzz(bytes, n, bits);
  return 0;
}
