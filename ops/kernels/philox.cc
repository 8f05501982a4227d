#include "ops/kernels/philox.h"

#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {

void PhiloxFill(Seed seed, uint64_t first, int64_t blocks, uint32_t* words) {
  TF_GC_ACTIVE_TABLE(kPhiloxTable).fill(seed, first, blocks, words);
}

}  // namespace tf_gc::kernels
