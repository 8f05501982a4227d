#include "ops/kernels/chunk_argmax.h"

#include <algorithm>

#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {

void ChunkArgmax(const float* values, int64_t n, int64_t chunk,
                 int32_t* indices, const ParallelFor& parallel_for) {
  if (n == 0) return;
  const int64_t size = std::min(chunk, n);
  ParallelForUnits(parallel_for, n, size, /*cost=*/1,
                   [&](int64_t begin, int64_t end) {
                     TF_GC_ACTIVE_TABLE(kChunkArgmaxTable)
                         .chunk_argmax(values + begin, end - begin, size, begin,
                                       indices + begin / size);
                   });
}

}  // namespace tf_gc::kernels
