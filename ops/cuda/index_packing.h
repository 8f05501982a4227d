// Sets of indices in few bytes on the GPU: ops/kernels/index_packing.h says
// what they are, and the bytes are the same.
//
// Pointers are device pointers with the alignment of their type, workspaces
// aligned to 256 bytes; nothing overlaps. `stream` is a cudaStream_t. The
// functions queue work and return a cudaError_t, 0 where all is well.
// 0 <= k <= n <= 2^31 - 1.

#ifndef TF_GC_OPS_CUDA_INDEX_PACKING_H_
#define TF_GC_OPS_CUDA_INDEX_PACKING_H_

#include <cstdint>

extern "C" {

// *first = the first position j of which indices[j] is negative, at least n, or
// not above indices[j - 1]; -1 if there is none.
int tf_gc_cuda_find_not_ascending(const int32_t* indices, int64_t k, int64_t n,
                                  int64_t* first, void* stream);

// Writes PackedIndicesSize(k, n) bytes: undefined ones for indices that do not
// ascend or are not below n.
int tf_gc_cuda_pack_indices(const int32_t* indices, int64_t k, int64_t n,
                            uint8_t* packed, void* stream);

int64_t tf_gc_cuda_unpack_indices_workspace_size(int64_t k, int64_t n);

// Unpacks PackedIndicesSize(k, n) bytes. *error = -1, or a number, with
// `indices` undefined, where the bytes are not such as packing writes. Trusts
// no byte.
int tf_gc_cuda_unpack_indices(const uint8_t* packed, int64_t k, int64_t n,
                              int32_t* indices, int64_t* error, void* workspace,
                              void* stream);

// What kernels::UnpackIndices says of such bytes; null for -1.
const char* tf_gc_cuda_unpack_indices_message(int64_t error);

}  // extern "C"

#endif  // TF_GC_OPS_CUDA_INDEX_PACKING_H_
