// The indices of the k values of the largest magnitude on the GPU:
// ops/kernels/top_k.h says which they are.
//
// Pointers are device pointers with the alignment of their type, workspaces
// aligned to 256 bytes; nothing overlaps. `stream` is a cudaStream_t. The
// functions queue work and return a cudaError_t, 0 where all is well.

#ifndef TF_GC_OPS_CUDA_TOP_K_H_
#define TF_GC_OPS_CUDA_TOP_K_H_

#include <cstdint>

extern "C" {

// About 2 n bytes.
int64_t tf_gc_cuda_top_k_indices_workspace_size(int64_t n);

// Writes k indices in ascending order. 0 <= k <= n <= 2^31 - 1.
//
// A histogram of the magnitudes' upper bits gives a lower bound of the k-th; a
// second pass over the values keeps those above it. If they are not more than a
// quarter of all values, only they are looked at again.
int tf_gc_cuda_top_k_indices(const float* values, int64_t n, int64_t k,
                             int32_t* indices, void* workspace, void* stream);

}  // extern "C"

#endif  // TF_GC_OPS_CUDA_TOP_K_H_
