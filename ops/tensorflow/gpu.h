// What the ops' kernels on GPUs share: the stream, memory beside the outputs,
// and errors.

#ifndef TF_GC_OPS_TENSORFLOW_GPU_H_
#define TF_GC_OPS_TENSORFLOW_GPU_H_

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "ops/cuda/memory.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc {

// OK, or an InternalError, for a cudaError_t.
absl::Status CudaStatus(int error);

#define TF_GC_RETURN_IF_CUDA_ERROR(expression) \
  TF_RETURN_IF_ERROR(::tf_gc::CudaStatus(expression))

// The GPU of a Compute, which queues all its work on the op's stream. Memory
// that is freed may be given to work that is queued later, on the same stream:
// temporary tensors need not outlive the Compute.
class Gpu {
 public:
  explicit Gpu(tensorflow::OpKernelContext* context);

  // A cudaStream_t, for the functions of ops/cuda.
  void* stream() const { return stream_; }

  // Device memory for `count` values, until `tensor` goes.
  template <typename T>
  absl::Status Allocate(int64_t count, tensorflow::Tensor* tensor,
                        T** values) const {
    TF_RETURN_IF_ERROR(
        AllocateBytes(count * static_cast<int64_t>(sizeof(T)), tensor));
    *values = reinterpret_cast<T*>(tensor->flat<uint8_t>().data());
    return absl::OkStatus();
  }

  // Waits for all work of the op, and reads what it has left in device memory.
  template <typename T>
  absl::Status Read(const T* device, int64_t count, T* host) const {
    return CudaStatus(tf_gc_cuda_read(
        device, count * static_cast<int64_t>(sizeof(T)), host, stream_));
  }

  // `values`, of type T, as float32, in `floats`.
  template <typename T>
  absl::Status ToFloat(const tensorflow::Tensor& values,
                       tensorflow::Tensor* floats) const {
    if constexpr (std::is_same_v<T, float>) {
      *floats = values;
      return absl::OkStatus();
    } else {
      TF_RETURN_IF_ERROR(context_->allocate_temp(tensorflow::DT_FLOAT,
                                                 values.shape(), floats));
      constexpr auto kConvert = std::is_same_v<T, Eigen::half>
                                    ? tf_gc_cuda_half_to_float
                                    : tf_gc_cuda_bfloat16_to_float;
      return CudaStatus(kConvert(
          reinterpret_cast<const uint16_t*>(values.flat<T>().data()),
          values.NumElements(), floats->flat<float>().data(), stream_));
    }
  }

  // The same the other way round: `values` has its type and shape.
  template <typename T>
  absl::Status FromFloat(const tensorflow::Tensor& floats,
                         tensorflow::Tensor* values) const {
    constexpr auto kConvert = std::is_same_v<T, Eigen::half>
                                  ? tf_gc_cuda_float_to_half
                                  : tf_gc_cuda_float_to_bfloat16;
    return CudaStatus(kConvert(
        floats.flat<float>().data(), floats.NumElements(),
        reinterpret_cast<uint16_t*>(values->flat<T>().data()), stream_));
  }

 private:
  absl::Status AllocateBytes(int64_t size, tensorflow::Tensor* tensor) const;

  tensorflow::OpKernelContext* context_;
  void* stream_;
};

// What find(first, stream) finds: a number that it writes to device memory,
// mostly an index or -1.
template <typename Find>
absl::Status FindFirst(const Gpu& gpu, const Find& find, int64_t* first) {
  tensorflow::Tensor memory;
  int64_t* device_first;
  TF_RETURN_IF_ERROR(gpu.Allocate(1, &memory, &device_first));
  TF_GC_RETURN_IF_CUDA_ERROR(find(device_first, gpu.stream()));
  return gpu.Read(device_first, 1, first);
}

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_GPU_H_
