#include "ops/kernels/zero_run.h"

#include <atomic>

#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"
#include "ops/kernels/zero_run_parts.h"

namespace tf_gc::kernels {
namespace {

// Of a byte, in cycles: about, as it depends on the runs.
constexpr int64_t kCost = 1;

const ZeroRunTable& Table() { return TF_GC_ACTIVE_TABLE(kZeroRunTable); }

}  // namespace

int64_t ZeroRunEncode(const uint8_t* quartic, int64_t m, uint8_t* encoded,
                      const ParallelFor& parallel_for) {
  const ZeroRunTable& table = Table();
  return ZeroRunEncodeParts(
      m, kCost, parallel_for,
      [&](int64_t begin, int64_t end, uint8_t* part, int64_t* pending) {
        return table.encode(quartic, begin, end, part, pending);
      },
      encoded);
}

int64_t ZeroRunDecodedSize(const uint8_t* encoded, int64_t size,
                           const ParallelFor& parallel_for) {
  const ZeroRunTable& table = Table();
  std::atomic<int64_t> total(0);
  parallel_for(size, kCost, [&](int64_t begin, int64_t end) {
    total += table.decoded_size(encoded + begin, end - begin);
  });
  return total;
}

int64_t ZeroRunDecode(const uint8_t* encoded, int64_t size, int64_t m,
                      uint8_t* quartic, const ParallelFor& parallel_for) {
  const ZeroRunTable& table = Table();
  return ZeroRunDecodeParts(
      encoded, size, m, kCost, parallel_for,
      [&](int64_t begin, int64_t end, ZeroRunPosition* position) {
        return table.decode(encoded, size, begin, end, position, quartic);
      });
}

}  // namespace tf_gc::kernels
