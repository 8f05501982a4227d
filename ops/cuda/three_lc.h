// 3LC on the GPU: ops/kernels/three_lc.h and three_lc_tensor.h say what it is,
// and the bytes and the floats are the same, but for the bits of a NaN that an
// addition gives. Denormal values are kept.
//
// Pointers are device pointers with the alignment of their type, workspaces
// aligned to 256 bytes. `stream` is a cudaStream_t. The functions queue work
// and return a cudaError_t, 0 where all is well.

#ifndef TF_GC_OPS_CUDA_THREE_LC_H_
#define TF_GC_OPS_CUDA_THREE_LC_H_

#include <cstdint>

extern "C" {

// *result = max |values[i] + residual[i]|, 0 for n = 0. If any sum is NaN or
// infinite so is the result. A null residual counts as zeros.
int tf_gc_cuda_max_abs_sum(const float* values, const float* residual,
                           int64_t n, float* result, void* stream);

int64_t tf_gc_cuda_three_lc_encode_workspace_size(int64_t n);

// Quantises n values, writes the new residual and the payload, for which there
// is room for ceil(n / 5) bytes, and its size. *scale is M: finite, and at
// least the maximum of these values; or NaN, with which all q are 0 and the
// residual stays what it was. A null residual counts as zeros. `new_residual`
// may be `values` or `residual`, and must not overlap them otherwise.
int tf_gc_cuda_three_lc_encode(const float* values, const float* residual,
                               const float* scale, int64_t n,
                               float* new_residual, uint8_t* payload,
                               int64_t* size, void* workspace, void* stream);

// Writes the 3LC encoding of a whole tensor, for which there is room for
// 4 + ceil(n / 5) bytes, and its size.
int tf_gc_cuda_three_lc_encode_tensor(const float* values,
                                      const float* residual,
                                      float sparsity_multiplier, int64_t n,
                                      float* new_residual, uint8_t* encoded,
                                      int64_t* size, void* workspace,
                                      void* stream);

int64_t tf_gc_cuda_three_lc_decode_workspace_size(int64_t size, int64_t n);

// values[i] = scale * q[i] for the n values of a payload of which `size` bytes
// are there. *used = how many bytes they took, or -1, with `values` undefined,
// if no payload of n values starts here. Trusts no byte of the payload.
int tf_gc_cuda_three_lc_decode(const uint8_t* payload, int64_t size,
                               float scale, int64_t n, float* values,
                               int64_t* used, void* workspace, void* stream);

// The same, but sum[i] += scale * q[i] where q[i] is not 0; the others keep
// their bits.
int tf_gc_cuda_three_lc_decode_add(const uint8_t* payload, int64_t size,
                                   float scale, int64_t n, float* sum,
                                   int64_t* used, void* workspace,
                                   void* stream);

// The same, without decoding.
int tf_gc_cuda_three_lc_validate(const uint8_t* payload, int64_t size,
                                 int64_t n, int64_t* used, void* workspace,
                                 void* stream);

}  // extern "C"

#endif  // TF_GC_OPS_CUDA_THREE_LC_H_
