// Decodes bytes as quartic encoding: first the number of padded values, then
// the encoding. What FindNonQuartic accepts must decode to ternary values, and
// they must encode to the same bytes again.

#include <cstdint>
#include <vector>

#include "ops/kernels/dispatch.h"
#include "ops/kernels/quartic.h"
#include "tests/fuzz/check.h"

namespace tf_gc::kernels {
namespace {

void Fuzz(const std::vector<uint8_t>& quartic, int64_t n) {
  const int64_t wrong = FindNonQuartic(quartic.data(), n, SingleThread);
  for (const InstructionSet set : SupportedInstructionSets()) {
    Check(SetInstructionSet(set));
    Check(FindNonQuartic(quartic.data(), n, SingleThread) == wrong);
    if (wrong >= 0) continue;
    std::vector<int8_t> ternary(n);
    QuarticDecode(quartic.data(), n, ternary.data(), SingleThread);
    Check(FindNonTernary(ternary.data(), n, SingleThread) == -1);
    std::vector<uint8_t> again(quartic.size());
    QuarticEncode(ternary.data(), n, again.data(), SingleThread);
    Check(again == quartic);
  }
}

}  // namespace
}  // namespace tf_gc::kernels

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const int64_t m = static_cast<int64_t>(size) - 1;
  tf_gc::kernels::Fuzz(std::vector<uint8_t>(data + 1, data + size),
                       5 * m - data[0] % 5);
  return 0;
}
