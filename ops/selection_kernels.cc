// Selection and the packing of indices on the CPU: checks of the inputs around
// ops/kernels.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/inputs.h"
#include "ops/kernels/chunk_argmax.h"
#include "ops/kernels/index_packing.h"
#include "ops/kernels/top_k.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

// The input `name`, an integer in smallest ... largest.
absl::Status ReadWithin(const Tensor& tensor, const char* name,
                        int64_t smallest, int64_t largest, int64_t* value) {
  TF_RETURN_IF_ERROR(ReadInteger(tensor, name, value));
  if (*value >= smallest && *value <= largest) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, " must be in ", smallest, " ... ", largest, ", got ", *value));
}

absl::Status CheckValues(const Tensor& values) {
  TF_RETURN_IF_ERROR(CheckVector(values, "values"));
  if (values.NumElements() <= kernels::kMaxPackedSize) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "values must be fewer than 2^31, got ", values.NumElements()));
}

absl::Status AllocateIndices(OpKernelContext* context, int64_t count,
                             int32_t** indices) {
  Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(
      context->allocate_output(0, TensorShape({count}), &output));
  *indices = output->flat<int32_t>().data();
  return absl::OkStatus();
}

template <typename T>
class TopKIndicesOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& values = context->input(0);
    OP_REQUIRES_OK(context, CheckValues(values));
    const int64_t n = values.NumElements();
    int64_t k;
    OP_REQUIRES_OK(context, ReadWithin(context->input(1), "k", 0, n, &k));
    Tensor floats;
    OP_REQUIRES_OK(context, ToFloat<T>(context, values, &floats));
    int32_t* indices;
    OP_REQUIRES_OK(context, AllocateIndices(context, k, &indices));
    kernels::TopKIndices(floats.flat<float>().data(), n, k, indices,
                         IntraOpThreads(context));
  }
};

template <typename T>
class ChunkArgmaxOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& values = context->input(0);
    OP_REQUIRES_OK(context, CheckValues(values));
    const int64_t n = values.NumElements();
    int64_t chunk;
    OP_REQUIRES_OK(
        context, ReadWithin(context->input(1), "chunk", 1, INT64_MAX, &chunk));
    Tensor floats;
    OP_REQUIRES_OK(context, ToFloat<T>(context, values, &floats));
    int32_t* indices;
    OP_REQUIRES_OK(
        context,
        AllocateIndices(context, kernels::NumChunks(n, chunk), &indices));
    kernels::ChunkArgmax(floats.flat<float>().data(), n, chunk, indices,
                         IntraOpThreads(context));
  }
};

class PackIndicesOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& indices = context->input(0);
    OP_REQUIRES_OK(context, CheckVector(indices, "indices"));
    int64_t size;
    OP_REQUIRES_OK(context, ReadWithin(context->input(1), "size", 0,
                                       kernels::kMaxPackedSize, &size));
    OP_REQUIRES_OK(context, CheckIndices(indices, size));
    const int64_t k = indices.NumElements();
    Tensor* packed = nullptr;
    OP_REQUIRES_OK(
        context,
        context->allocate_output(
            0, TensorShape({kernels::PackedIndicesSize(k, size)}), &packed));
    kernels::PackIndices(indices.flat<int32_t>().data(), k, size,
                         packed->flat<uint8_t>().data());
  }

 private:
  static absl::Status CheckIndices(const Tensor& indices, int64_t size) {
    const int32_t* values = indices.flat<int32_t>().data();
    const int64_t wrong =
        kernels::FindNotAscending(values, indices.NumElements(), size);
    if (wrong < 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "indices must ascend strictly and be in 0 ... size - 1 = ", size - 1,
        ", got ", values[wrong], " at position ", wrong));
  }
};

class UnpackIndicesOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& packed = context->input(0);
    OP_REQUIRES_OK(context, CheckVector(packed, "packed"));
    int64_t count, size;
    OP_REQUIRES_OK(context, ReadWithin(context->input(2), "size", 0,
                                       kernels::kMaxPackedSize, &size));
    OP_REQUIRES_OK(context,
                   ReadWithin(context->input(1), "count", 0, size, &count));
    // Before `count` indices are allocated.
    const int64_t expected = kernels::PackedIndicesSize(count, size);
    OP_REQUIRES(context, packed.NumElements() == expected,
                absl::DataLossError(absl::StrCat(
                    "packed must have ", expected, " bytes for ", count,
                    " indices below ", size, ", got ", packed.NumElements())));
    int32_t* indices;
    OP_REQUIRES_OK(context, AllocateIndices(context, count, &indices));
    const char* const error =
        kernels::UnpackIndices(Bytes(packed), count, size, indices);
    OP_REQUIRES(context, error == nullptr,
                absl::DataLossError(
                    absl::StrCat("packed, ", expected, " bytes for ", count,
                                 " indices below ", size, ", ", error)));
  }
};

REGISTER_KERNEL_BUILDER(Name("TfGc>PackIndices").Device(tensorflow::DEVICE_CPU),
                        PackIndicesOp);
REGISTER_KERNEL_BUILDER(
    Name("TfGc>UnpackIndices").Device(tensorflow::DEVICE_CPU), UnpackIndicesOp);

#define TF_GC_REGISTER_SELECTION(type)                        \
  REGISTER_KERNEL_BUILDER(Name("TfGc>TopKIndices")            \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<type>("T"),     \
                          TopKIndicesOp<type>);               \
  REGISTER_KERNEL_BUILDER(Name("TfGc>ChunkArgmax")            \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<type>("T"),     \
                          ChunkArgmaxOp<type>);

TF_GC_REGISTER_SELECTION(float)
TF_GC_REGISTER_SELECTION(Eigen::half)
TF_GC_REGISTER_SELECTION(tensorflow::bfloat16)

#undef TF_GC_REGISTER_SELECTION

}  // namespace
}  // namespace tf_gc
