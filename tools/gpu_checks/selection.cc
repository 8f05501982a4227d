// C names for the CPU's kernels of selection, for tools/gpu_check.py.

#include "ops/kernels/chunk_argmax.h"
#include "ops/kernels/index_packing.h"
#include "ops/kernels/top_k.h"

using namespace tf_gc::kernels;

extern "C" {

void tf_gc_cpu_top_k_indices(const float* values, int64_t n, int64_t k,
                             int32_t* indices) {
  TopKIndices(values, n, k, indices, SingleThread);
}

void tf_gc_cpu_chunk_argmax(const float* values, int64_t n, int64_t chunk,
                            int32_t* indices) {
  ChunkArgmax(values, n, chunk, indices, SingleThread);
}

int64_t tf_gc_cpu_packed_indices_size(int64_t k, int64_t n) {
  return PackedIndicesSize(k, n);
}

int64_t tf_gc_cpu_find_not_ascending(const int32_t* indices, int64_t k,
                                     int64_t n) {
  return FindNotAscending(indices, k, n);
}

void tf_gc_cpu_pack_indices(const int32_t* indices, int64_t k, int64_t n,
                            uint8_t* packed) {
  PackIndices(indices, k, n, packed);
}

}  // extern "C"
