#include "ops/kernels/quartic.h"

#include <algorithm>
#include <mutex>

#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {
namespace {

// Of a byte, in cycles: at most, as with all that is this cheap.
constexpr int64_t kCost = 1;

const QuarticTable& Table() { return TF_GC_ACTIVE_TABLE(kQuarticTable); }

int Digit(uint8_t quartic, int64_t partition_index) {
  constexpr int kPowers[] = {81, 27, 9, 3, 1};
  return quartic / kPowers[partition_index] % 3;
}

// Index of the first of n bytes for which (byte + offset) mod 256 > limit, or
// -1.
int64_t FindAbove(const uint8_t* bytes, int64_t n, uint8_t offset,
                  uint8_t limit, const ParallelFor& parallel_for) {
  const QuarticTable& table = Table();
  std::mutex mutex;
  int64_t first = n;
  parallel_for(n, kCost, [&](int64_t begin, int64_t end) {
    const int64_t found =
        table.find_above(bytes + begin, end - begin, offset, limit);
    if (found < 0) return;
    const std::lock_guard<std::mutex> lock(mutex);
    first = std::min(first, begin + found);
  });
  return first < n ? first : -1;
}

}  // namespace

int64_t FindNonTernary(const int8_t* ternary, int64_t n,
                       const ParallelFor& parallel_for) {
  return FindAbove(reinterpret_cast<const uint8_t*>(ternary), n, /*offset=*/1,
                   /*limit=*/2, parallel_for);
}

void QuarticEncode(const int8_t* ternary, int64_t n, uint8_t* quartic,
                   const ParallelFor& parallel_for) {
  const QuarticTable& table = Table();
  const int64_t m = QuarticSize(n);
  parallel_for(m, kCost, [&](int64_t begin, int64_t end) {
    table.encode(ternary, n, m, begin, end, quartic);
  });
}

int64_t FindNonQuartic(const uint8_t* quartic, int64_t n,
                       const ParallelFor& parallel_for) {
  const int64_t m = QuarticSize(n);
  int64_t first = FindAbove(quartic, m, 0, kQuarticValues - 1, parallel_for);
  for (int64_t padding = n; padding < 5 * m; ++padding) {
    const int64_t i = padding % m;
    if (Digit(quartic[i], padding / m) != 0 && (first < 0 || i < first)) {
      first = i;
    }
  }
  return first;
}

void QuarticDecode(const uint8_t* quartic, int64_t n, int8_t* ternary,
                   const ParallelFor& parallel_for) {
  const QuarticTable& table = Table();
  const int64_t m = QuarticSize(n);
  parallel_for(m, kCost, [&](int64_t begin, int64_t end) {
    table.decode(quartic, n, m, begin, end, ternary);
  });
}

}  // namespace tf_gc::kernels
