// The Hadamard transforms' ops on GPUs: checks of the inputs around ops/cuda.

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "ops/cuda/hadamard.h"
#include "ops/tensorflow/gpu.h"
#include "ops/tensorflow/hadamard_inputs.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/registration.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

// Calls transform(values, rows, size, transformed, stream) on float32.
template <typename T, typename Transform>
absl::Status TransformValues(OpKernelContext* context,
                             const Transform& transform) {
  const Gpu gpu(context);
  const Tensor& values = context->input(0);
  TF_RETURN_IF_ERROR(CheckHadamardValues(values));
  const int64_t size = values.dim_size(values.dims() - 1);
  const int64_t rows = values.NumElements() / size;
  Tensor* transformed = nullptr;
  TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output(
      {0}, 0, values.shape(), &transformed));
  if constexpr (std::is_same_v<T, float>) {
    return CudaStatus(transform(values.flat<float>().data(), rows, size,
                                transformed->flat<float>().data(),
                                gpu.stream()));
  } else {
    Tensor floats;
    TF_RETURN_IF_ERROR(gpu.ToFloat<T>(values, &floats));
    float* const data = floats.flat<float>().data();
    TF_GC_RETURN_IF_CUDA_ERROR(transform(data, rows, size, data, gpu.stream()));
    return gpu.FromFloat<T>(floats, transformed);
  }
}

template <typename T>
class HadamardGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    OP_REQUIRES_OK(context, TransformValues<T>(context, tf_gc_cuda_hadamard));
  }
};

using RandomizedTransform = int (*)(const float* values, int64_t rows,
                                    int64_t size, uint64_t key,
                                    uint64_t seed_stream, float* transformed,
                                    void* stream);

template <typename T, RandomizedTransform transform>
class SeededHadamardGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    kernels::Seed seed;
    OP_REQUIRES_OK(context, ReadSeed(context->input(1), &seed));
    OP_REQUIRES_OK(context,
                   TransformValues<T>(
                       context, [seed](const float* values, int64_t rows,
                                       int64_t size, float* to, void* stream) {
                         return transform(values, rows, size, seed.key,
                                          seed.stream, to, stream);
                       }));
  }
};

template <typename T>
using RandomizedHadamardGpuOp =
    SeededHadamardGpuOp<T, tf_gc_cuda_randomized_hadamard>;
template <typename T>
using InverseRandomizedHadamardGpuOp =
    SeededHadamardGpuOp<T, tf_gc_cuda_inverse_randomized_hadamard>;

TF_GC_REGISTER_FLOATS(DEVICE_GPU, "TfGc>Hadamard", HadamardGpuOp);
TF_GC_REGISTER_FLOATS(DEVICE_GPU, "TfGc>RandomizedHadamard",
                      RandomizedHadamardGpuOp, .HostMemory("seed"));
TF_GC_REGISTER_FLOATS(DEVICE_GPU, "TfGc>InverseRandomizedHadamard",
                      InverseRandomizedHadamardGpuOp, .HostMemory("seed"));

}  // namespace
}  // namespace tf_gc
