// Decodes bytes as zero-run encoding: first two bytes of size, then the
// encoding. What the decoder accepts must decode alike on every instruction set
// and keep its meaning when encoded again, in parts or not.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/kernels/dispatch.h"
#include "ops/kernels/zero_run.h"
#include "tests/fuzz/check.h"

namespace tf_gc::kernels {
namespace {

// Parts that begin in the middle of whatever is there.
void Halves(int64_t total, int64_t /*cost*/, const ParallelWork& work) {
  work(total / 2, total);
  work(0, total / 2);
}

void Fuzz(const uint8_t* encoded, int64_t size, int64_t m) {
  const int64_t decoded_size = ZeroRunDecodedSize(encoded, size, SingleThread);
  std::vector<uint8_t> first;
  int64_t first_used = 0;
  for (const InstructionSet set : SupportedInstructionSets()) {
    Check(SetInstructionSet(set));
    Check(ZeroRunDecodedSize(encoded, size, SingleThread) == decoded_size);
    std::vector<uint8_t> quartic(m);
    const int64_t used =
        ZeroRunDecode(encoded, size, m, quartic.data(), SingleThread);
    if (set == InstructionSet::kBaseline) {
      first = quartic;
      first_used = used;
    }
    Check(used == first_used && used <= size);
    std::vector<uint8_t> decoded(m);
    Check(ZeroRunDecode(encoded, size, m, decoded.data(), Halves) == used);
    if (used < 0) continue;
    Check(quartic == first && decoded == first);
    Check(ZeroRunDecodedSize(encoded, used, SingleThread) == m);
    std::vector<uint8_t> again(m);
    const int64_t again_size =
        ZeroRunEncode(quartic.data(), m, again.data(), SingleThread);
    Check(again_size <= used);
    std::vector<uint8_t> in_parts(m);
    Check(ZeroRunEncode(quartic.data(), m, in_parts.data(), Halves) ==
          again_size);
    Check(std::equal(in_parts.begin(), in_parts.begin() + again_size,
                     again.begin()));
    Check(ZeroRunDecode(again.data(), again_size, m, decoded.data(),
                        SingleThread) == again_size);
    Check(decoded == quartic);
  }
}

}  // namespace
}  // namespace tf_gc::kernels

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  tf_gc::kernels::Fuzz(data + 2, size - 2, data[0] | data[1] << 8);
  return 0;
}
