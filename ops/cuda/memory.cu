#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ops/cuda/launch.h"
#include "ops/cuda/memory.h"

namespace tf_gc::cuda {
namespace {

struct Fill {
  float value;
  float* values;

  __device__ void operator()(int64_t i) const { values[i] = value; }
};

struct HalfFormat {
  static __device__ float ToFloat(uint16_t bits) {
    return __half2float(__ushort_as_half(bits));
  }
  static __device__ uint16_t FromFloat(float value) {
    return __half_as_ushort(__float2half_rn(value));
  }
};

struct Bfloat16Format {
  static __device__ float ToFloat(uint16_t bits) {
    return __bfloat162float(__ushort_as_bfloat16(bits));
  }
  static __device__ uint16_t FromFloat(float value) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  }
};

template <typename Format>
struct ToFloat {
  const uint16_t* values;
  float* floats;

  __device__ void operator()(int64_t i) const {
    floats[i] = Format::ToFloat(values[i]);
  }
};

template <typename Format>
struct FromFloat {
  const float* floats;
  uint16_t* values;

  __device__ void operator()(int64_t i) const {
    values[i] = Format::FromFloat(floats[i]);
  }
};

}  // namespace
}  // namespace tf_gc::cuda

using namespace tf_gc::cuda;

int tf_gc_cuda_read(const void* device, int64_t size, void* host,
                    void* stream) {
  const cudaStream_t queue = static_cast<cudaStream_t>(stream);
  TF_GC_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(host, device, size, cudaMemcpyDeviceToHost, queue));
  return cudaStreamSynchronize(queue);
}

int tf_gc_cuda_fill(float value, int64_t n, float* values, void* stream) {
  return ForEach(n, stream, Fill{value, values});
}

int tf_gc_cuda_half_to_float(const uint16_t* values, int64_t n, float* floats,
                             void* stream) {
  return ForEach(n, stream, ToFloat<HalfFormat>{values, floats});
}

int tf_gc_cuda_bfloat16_to_float(const uint16_t* values, int64_t n,
                                 float* floats, void* stream) {
  return ForEach(n, stream, ToFloat<Bfloat16Format>{values, floats});
}

int tf_gc_cuda_float_to_half(const float* floats, int64_t n, uint16_t* values,
                             void* stream) {
  return ForEach(n, stream, FromFloat<HalfFormat>{floats, values});
}

int tf_gc_cuda_float_to_bfloat16(const float* floats, int64_t n,
                                 uint16_t* values, void* stream) {
  return ForEach(n, stream, FromFloat<Bfloat16Format>{floats, values});
}

const char* tf_gc_cuda_error_text(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}
