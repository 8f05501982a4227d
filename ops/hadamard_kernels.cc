// The Hadamard transforms' ops on the CPU: checks of the inputs around
// ops/kernels.

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/inputs.h"
#include "ops/kernels/hadamard.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

absl::Status CheckValues(const Tensor& values) {
  if (values.dims() > 0 &&
      kernels::IsHadamardSize(values.dim_size(values.dims() - 1))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "values must have a power of two as the size of the last axis, got "
      "shape ",
      values.shape().DebugString()));
}

// Calls transform(values, rows, size, transformed) on float32.
template <typename T, typename Transform>
absl::Status TransformValues(OpKernelContext* context,
                             const Transform& transform) {
  const Tensor& values = context->input(0);
  TF_RETURN_IF_ERROR(CheckValues(values));
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
    transformed->flat<T>() = floats.flat<float>().template cast<T>();
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
class RandomizedHadamardOp : public OpKernel {
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

#define TF_GC_REGISTER_CPU(type, name, ...)                                \
  REGISTER_KERNEL_BUILDER(                                                 \
      Name(name).Device(tensorflow::DEVICE_CPU).TypeConstraint<type>("T"), \
      __VA_ARGS__)

#define TF_GC_REGISTER_TYPE(type)                                              \
  TF_GC_REGISTER_CPU(type, "TfGc>Hadamard", HadamardOp<type>);                 \
  TF_GC_REGISTER_CPU(type, "TfGc>RandomizedHadamard",                          \
                     RandomizedHadamardOp<type, kernels::RandomizedHadamard>); \
  TF_GC_REGISTER_CPU(                                                          \
      type, "TfGc>InverseRandomizedHadamard",                                  \
      RandomizedHadamardOp<type, kernels::InverseRandomizedHadamard>)

TF_GC_REGISTER_TYPE(float);
TF_GC_REGISTER_TYPE(Eigen::half);
TF_GC_REGISTER_TYPE(tensorflow::bfloat16);

#undef TF_GC_REGISTER_TYPE
#undef TF_GC_REGISTER_CPU

}  // namespace
}  // namespace tf_gc
