// The index of the value of the largest magnitude in each chunk on the GPU:
// ops/kernels/chunk_argmax.h says which it is.
//
// Pointers are device pointers with the alignment of their type, workspaces
// aligned to 256 bytes; nothing overlaps. `stream` is a cudaStream_t. The
// functions queue work and return a cudaError_t, 0 where all is well.

#ifndef TF_GC_OPS_CUDA_CHUNK_ARGMAX_H_
#define TF_GC_OPS_CUDA_CHUNK_ARGMAX_H_

#include <cstdint>

extern "C" {

int64_t tf_gc_cuda_chunk_argmax_workspace_size(int64_t n, int64_t chunk);

// Writes ceil(n / chunk) indices of values. 0 <= n <= 2^31 - 1, chunk >= 1.
int tf_gc_cuda_chunk_argmax(const float* values, int64_t n, int64_t chunk,
                            int32_t* indices, void* workspace, void* stream);

}  // extern "C"

#endif  // TF_GC_OPS_CUDA_CHUNK_ARGMAX_H_
