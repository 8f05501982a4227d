// Copies between and inside memories, for those who have no CUDA headers.
//
// `stream` is a cudaStream_t. The functions return a cudaError_t, 0 where all
// is well.

#ifndef TF_GC_OPS_CUDA_MEMORY_H_
#define TF_GC_OPS_CUDA_MEMORY_H_

#include <cstdint>

extern "C" {

// Copies `size` bytes of device memory to the host's, and waits for the work
// queued so far and for them.
int tf_gc_cuda_read(const void* device, int64_t size, void* host, void* stream);

// Queues values[i] = value for n values.
int tf_gc_cuda_fill(float value, int64_t n, float* values, void* stream);

// Queues conversions of n values between float32 and the 16-bit formats, given
// by their bits: half and bfloat16. Floats are rounded to the nearest, ties to
// even; NaN stays NaN.
int tf_gc_cuda_half_to_float(const uint16_t* values, int64_t n, float* floats,
                             void* stream);
int tf_gc_cuda_bfloat16_to_float(const uint16_t* values, int64_t n,
                                 float* floats, void* stream);
int tf_gc_cuda_float_to_half(const float* floats, int64_t n, uint16_t* values,
                             void* stream);
int tf_gc_cuda_float_to_bfloat16(const float* floats, int64_t n,
                                 uint16_t* values, void* stream);

// What a cudaError_t means.
const char* tf_gc_cuda_error_text(int error);

}  // extern "C"

#endif  // TF_GC_OPS_CUDA_MEMORY_H_
