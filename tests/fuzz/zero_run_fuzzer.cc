// Decodes bytes as zero-run encoding: first two bytes of size, then the
// encoding. What the decoder accepts must decode alike on every instruction set
// and keep its meaning when encoded again.

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "ops/kernels/dispatch.h"
#include "ops/kernels/zero_run.h"

namespace tf_gc::kernels {
namespace {

void Check(bool condition) {
  if (!condition) std::abort();
}

void Fuzz(const uint8_t* encoded, int64_t size, int64_t m) {
  const int64_t decoded_size = ZeroRunDecodedSize(encoded, size);
  std::vector<uint8_t> first;
  int64_t first_used = 0;
  for (const InstructionSet set : SupportedInstructionSets()) {
    Check(SetInstructionSet(set));
    Check(ZeroRunDecodedSize(encoded, size) == decoded_size);
    std::vector<uint8_t> quartic(m);
    const int64_t used = ZeroRunDecode(encoded, size, m, quartic.data());
    if (set == InstructionSet::kBaseline) {
      first = quartic;
      first_used = used;
    }
    Check(used == first_used && used <= size);
    if (used < 0) continue;
    Check(quartic == first);
    Check(ZeroRunDecodedSize(encoded, used) == m);
    std::vector<uint8_t> again(ZeroRunBufferSize(m));
    const int64_t again_size = ZeroRunEncode(quartic.data(), m, again.data());
    Check(again_size <= used);
    std::vector<uint8_t> decoded(m);
    Check(ZeroRunDecode(again.data(), again_size, m, decoded.data()) ==
          again_size);
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
