#include "ops/kernels/table_sum.h"

#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {

void TableSum(const uint8_t* packed, int64_t n, const uint8_t* table, int bits,
              uint8_t* accumulator) {
  TF_GC_ACTIVE_TABLE(kTableSumTable)
      .sum_bytes(packed, n, table, bits, accumulator);
}

void TableSum(const uint8_t* packed, int64_t n, const uint16_t* table, int bits,
              uint16_t* accumulator) {
  TF_GC_ACTIVE_TABLE(kTableSumTable)
      .sum_words(packed, n, table, bits, accumulator);
}

}  // namespace tf_gc::kernels
