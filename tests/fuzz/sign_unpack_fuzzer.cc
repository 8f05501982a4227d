// Unpacks bytes as signs: first the number of padding bits, then the bytes.
// What has a padding of 0 must unpack alike on every instruction set, and pack
// to the same bytes again; merging it with itself must leave it as it is.

#include <cstdint>
#include <vector>

#include "ops/kernels/dispatch.h"
#include "ops/kernels/signs.h"
#include "tests/fuzz/check.h"

namespace tf_gc::kernels {
namespace {

void Fuzz(const std::vector<uint8_t>& packed, int64_t n) {
  Check(SignPackedSize(n) == static_cast<int64_t>(packed.size()));
  const bool is_valid = SignPaddingIsZero(packed.data(), n);
  for (const InstructionSet set : SupportedInstructionSets()) {
    Check(SetInstructionSet(set));
    std::vector<float> values(n);
    SignUnpack(packed.data(), n, values.data());
    for (int64_t i = 0; i < n; ++i) {
      Check(values[i] == (packed[i / 8] >> (i % 8) & 1 ? 1 : -1));
    }
    std::vector<uint8_t> again(packed.size());
    SignPack(values.data(), n, again.data());
    Check((again == packed) == is_valid);
    SignMerge(packed.data(), packed.data(), again.size(), 1, 2, {1, 2}, 0,
              again.data());
    Check(again == packed);
  }
}

}  // namespace
}  // namespace tf_gc::kernels

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  tf_gc::kernels::Fuzz(std::vector<uint8_t>(data + 1, data + size),
                       8 * (static_cast<int64_t>(size) - 1) - data[0] % 8);
  return 0;
}
