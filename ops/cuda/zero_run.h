// Zero-run encoding on the GPU: ops/kernels/zero_run.h says what it is, and the
// bytes are the same.
//
// Pointers are device pointers of any alignment, workspaces aligned to 256
// bytes; nothing overlaps. `stream` is a cudaStream_t. The functions queue work
// and return a cudaError_t, 0 where all is well.

#ifndef TF_GC_OPS_CUDA_ZERO_RUN_H_
#define TF_GC_OPS_CUDA_ZERO_RUN_H_

#include <cstdint>

extern "C" {

int64_t tf_gc_cuda_zero_run_encode_workspace_size(int64_t m);

// Encodes m quartic bytes (each at most 242); *size is the encoding's size, at
// most m, for which `encoded` has room.
int tf_gc_cuda_zero_run_encode(const uint8_t* quartic, int64_t m,
                               uint8_t* encoded, int64_t* size, void* workspace,
                               void* stream);

// *total = the number of quartic bytes that `size` encoded bytes stand for.
int tf_gc_cuda_zero_run_decoded_size(const uint8_t* encoded, int64_t size,
                                     int64_t* total, void* stream);

int64_t tf_gc_cuda_zero_run_decode_workspace_size(int64_t size, int64_t m);

// Decodes exactly m quartic bytes. *used = how many of the `size` encoded bytes
// they took, or -1, with `quartic` untouched, if the encoding ends before, or a
// run goes beyond, the m-th byte. Trusts no byte of the encoding.
int tf_gc_cuda_zero_run_decode(const uint8_t* encoded, int64_t size, int64_t m,
                               uint8_t* quartic, int64_t* used, void* workspace,
                               void* stream);

}  // extern "C"

#endif  // TF_GC_OPS_CUDA_ZERO_RUN_H_
