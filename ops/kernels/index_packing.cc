#include "ops/kernels/index_packing.h"

#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {
namespace {

const IndexPackingTable& Table() {
  return TF_GC_ACTIVE_TABLE(kIndexPackingTable);
}

constexpr int64_t WholeBytes(int64_t bits) { return (bits + 7) / 8; }

// 1 <= k.
constexpr int64_t SizeOf(int form, int64_t k, int64_t n) {
  return form == kBitmap
             ? WholeBytes(n)
             : WholeBytes(k + ((n - 1) >> form)) + WholeBytes(k * form);
}

}  // namespace

int PackedIndicesForm(int64_t k, int64_t n) {
  constexpr int kMostLowBits = 31;
  int smallest = kBitmap;
  if (k == 0) return smallest;
  for (int form = 0; form <= kMostLowBits; ++form) {
    if (SizeOf(form, k, n) < SizeOf(smallest, k, n)) smallest = form;
  }
  return smallest;
}

int64_t PackedIndicesSize(int64_t k, int64_t n) {
  return k == 0 ? 0 : SizeOf(PackedIndicesForm(k, n), k, n);
}

int64_t FindNotAscending(const int32_t* indices, int64_t k, int64_t n) {
  return Table().find_not_ascending(indices, k, n);
}

void PackIndices(const int32_t* indices, int64_t k, int64_t n,
                 uint8_t* packed) {
  if (k > 0) Table().pack(indices, k, n, PackedIndicesForm(k, n), packed);
}

const char* UnpackIndices(const uint8_t* packed, int64_t k, int64_t n,
                          int32_t* indices) {
  if (k == 0) return nullptr;
  return Table().unpack(packed, k, n, PackedIndicesForm(k, n), indices);
}

}  // namespace tf_gc::kernels
