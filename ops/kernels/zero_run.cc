#include "ops/kernels/zero_run.h"

#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {
namespace {

const ZeroRunTable& Table() { return TF_GC_ACTIVE_TABLE(kZeroRunTable); }

}  // namespace

int64_t ZeroRunEncode(const uint8_t* quartic, int64_t m, uint8_t* encoded) {
  return Table().encode(quartic, m, encoded);
}

int64_t ZeroRunDecodedSize(const uint8_t* encoded, int64_t size) {
  return Table().decoded_size(encoded, size);
}

int64_t ZeroRunDecode(const uint8_t* encoded, int64_t size, int64_t m,
                      uint8_t* quartic) {
  return Table().decode(encoded, size, m, quartic);
}

}  // namespace tf_gc::kernels
