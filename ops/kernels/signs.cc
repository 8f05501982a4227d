#include "ops/kernels/signs.h"

#include "ops/kernels/denormals.h"
#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {
namespace {

const SignsTable& Table() { return TF_GC_ACTIVE_TABLE(kSignsTable); }

}  // namespace

void SignPack(const float* values, int64_t n, uint8_t* packed) {
  const KeepDenormals keep_denormals;
  Table().pack(values, n, packed);
}

void SignUnpack(const uint8_t* packed, int64_t n, float* values) {
  Table().unpack(packed, n, values);
}

void SignMerge(const uint8_t* first, const uint8_t* second, int64_t bytes,
               int64_t first_count, int64_t second_count, Seed seed,
               int64_t first_byte, uint8_t* merged) {
  Table().merge(first, second, bytes,
                SignMergeThreshold(first_count, second_count), seed, first_byte,
                merged);
}

}  // namespace tf_gc::kernels
