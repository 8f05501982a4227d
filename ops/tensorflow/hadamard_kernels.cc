// The Hadamard transforms' ops on the CPU: checks of the inputs around
// ops/kernels.

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "ops/kernels/hadamard.h"
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

// Calls transform(values, rows, size, transformed) on float32.
template <typename T, typename Transform>
absl::Status TransformValues(OpKernelContext* context,
                             const Transform& transform) {
  const Tensor& values = context->input(0);
  TF_RETURN_IF_ERROR(CheckHadamardValues(values));
  const int64_t size = values.dim_size(values.dims() - 1);
  const int64_t rows = values.NumElements() / size;
  Tensor* transformed = nullptr;
  TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output(
      {0}, 0, values.shape(), &transformed));
  if constexpr (std::is_same_v<T, float>) {
    transform(values.flat<float>().data(), rows, size,
              transformed->flat<float>().data());
  } else {
    Tensor floats;
    TF_RETURN_IF_ERROR(ToFloat<T>(context, values, &floats));
    float* const data = floats.flat<float>().data();
    transform(data, rows, size, data);
    Convert<float, T>(context, floats, transformed);
  }
  return absl::OkStatus();
}

template <typename T>
class HadamardOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    OP_REQUIRES_OK(
        context,
        TransformValues<T>(context, [context](const float* values, int64_t rows,
                                              int64_t size, float* to) {
          kernels::Hadamard(values, rows, size, to, IntraOpThreads(context));
        }));
  }
};

using RandomizedTransform = void (*)(const float* values, int64_t rows,
                                     int64_t size, kernels::Seed seed,
                                     float* transformed,
                                     const kernels::ParallelFor& parallel_for);

template <typename T, RandomizedTransform transform>
class SeededHadamardOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    kernels::Seed seed;
    OP_REQUIRES_OK(context, ReadSeed(context->input(1), &seed));
    OP_REQUIRES_OK(
        context, TransformValues<T>(
                     context, [context, seed](const float* values, int64_t rows,
                                              int64_t size, float* to) {
                       transform(values, rows, size, seed, to,
                                 IntraOpThreads(context));
                     }));
  }
};

template <typename T>
using RandomizedHadamardOp = SeededHadamardOp<T, kernels::RandomizedHadamard>;
template <typename T>
using InverseRandomizedHadamardOp =
    SeededHadamardOp<T, kernels::InverseRandomizedHadamard>;

TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>Hadamard", HadamardOp);
TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>RandomizedHadamard",
                      RandomizedHadamardOp);
TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>InverseRandomizedHadamard",
                      InverseRandomizedHadamardOp);

}  // namespace
}  // namespace tf_gc
