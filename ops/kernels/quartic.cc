#include "ops/kernels/quartic.h"

#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {
namespace {

const QuarticTable& Table() { return TF_GC_ACTIVE_TABLE(kQuarticTable); }

int Digit(uint8_t quartic, int64_t partition_index) {
  constexpr int kPowers[] = {81, 27, 9, 3, 1};
  return quartic / kPowers[partition_index] % 3;
}

}  // namespace

int64_t FindNonTernary(const int8_t* ternary, int64_t n) {
  return Table().find_above(reinterpret_cast<const uint8_t*>(ternary), n,
                            /*offset=*/1, /*limit=*/2);
}

void QuarticEncode(const int8_t* ternary, int64_t n, uint8_t* quartic) {
  Table().encode(ternary, n, QuarticSize(n), quartic);
}

int64_t FindNonQuartic(const uint8_t* quartic, int64_t n) {
  const int64_t m = QuarticSize(n);
  int64_t first = Table().find_above(quartic, m, 0, kQuarticValues - 1);
  for (int64_t padding = n; padding < 5 * m; ++padding) {
    const int64_t i = padding % m;
    if (Digit(quartic[i], padding / m) != 0 && (first < 0 || i < first)) {
      first = i;
    }
  }
  return first;
}

void QuarticDecode(const uint8_t* quartic, int64_t n, int8_t* ternary) {
  Table().decode(quartic, n, QuarticSize(n), ternary);
}

}  // namespace tf_gc::kernels
