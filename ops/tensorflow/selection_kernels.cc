// Selection and the packing of indices on the CPU: checks of the inputs around
// ops/kernels.

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/chunk_argmax.h"
#include "ops/kernels/denormals.h"
#include "ops/kernels/index_packing.h"
#include "ops/kernels/magnitude_histogram.h"
#include "ops/kernels/parallel.h"
#include "ops/kernels/selected_sum.h"
#include "ops/kernels/top_k.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/registration.h"
#include "ops/tensorflow/selection_inputs.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

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

template <typename T>
class MagnitudeHistogramOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& values = context->input(0);
    OP_REQUIRES_OK(context, CheckValues(values));
    Tensor floats;
    OP_REQUIRES_OK(context, ToFloat<T>(context, values, &floats));
    const TensorShape shape({kernels::kMagnitudeBins});
    Tensor* counts = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &counts));
    Tensor* squares = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(1, shape, &squares));
    kernels::MagnitudeHistogram(
        floats.flat<float>().data(), floats.NumElements(),
        counts->flat<int64_t>().data(), squares->flat<double>().data(),
        IntraOpThreads(context));
  }
};

class PackIndicesOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    int64_t size;
    OP_REQUIRES_OK(context, ReadPackInputs(context, &size));
    const int64_t k = context->input(0).NumElements();
    const int32_t* indices = context->input(0).flat<int32_t>().data();
    const int64_t wrong = kernels::FindNotAscending(indices, k, size);
    OP_REQUIRES(context, wrong < 0, NotAscending(indices[wrong], wrong, size));
    Tensor* packed = nullptr;
    OP_REQUIRES_OK(
        context,
        context->allocate_output(
            0, TensorShape({kernels::PackedIndicesSize(k, size)}), &packed));
    kernels::PackIndices(indices, k, size, packed->flat<uint8_t>().data());
  }
};

class UnpackIndicesOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& packed = context->input(0);
    int64_t count, size, sender;
    // Before `count` indices are allocated.
    OP_REQUIRES_OK(context, ReadUnpackInputs(context, &count, &size, &sender));
    int32_t* indices;
    OP_REQUIRES_OK(context, AllocateIndices(context, count, &indices));
    OP_REQUIRES_OK(context,
                   UnpackStatus(kernels::UnpackIndices(BytesOf(packed), count,
                                                       size, indices),
                                count, size, sender));
  }
};

class SumSelectedOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& messages = context->input(0);
    int64_t k, n;
    OP_REQUIRES(context, messages.dims() == 2,
                absl::InvalidArgumentError(
                    absl::StrCat("messages must be a matrix, got shape ",
                                 messages.shape().DebugString())));
    OP_REQUIRES_OK(context, ReadCounts(context, &k, &n));
    const int64_t expected = kernels::SelectedSize(k, n);
    OP_REQUIRES(context, messages.dim_size(1) == expected,
                absl::DataLossError(absl::StrCat(
                    "messages must have ", expected, " bytes for ", k,
                    " values of ", n, ", got ", messages.dim_size(1))));
    const int64_t count = messages.dim_size(0);
    Tensor indices;
    Tensor* sums = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_temp(tensorflow::DT_INT32,
                                          TensorShape({count, k}), &indices));
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({n}), &sums));
    const kernels::KeepDenormals keep_denormals;
    const kernels::SelectedError error = kernels::SumSelected(
        BytesOf(messages), count, k, n, IntraOpThreads(context),
        indices.flat<int32_t>().data(), sums->flat<float>().data());
    OP_REQUIRES_OK(context, UnpackStatus(error.what, k, n, error.message));
  }
};

class ScatterOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& indices = context->input(0);
    const Tensor& values = context->input(1);
    int64_t size;
    OP_REQUIRES_OK(context, ReadWithin(context->input(2), "size", 0,
                                       kernels::kMaxPackedSize, &size));
    OP_REQUIRES_OK(context, CheckIndexed(indices, values, size));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({size}), &output));
    float* const sums = output->flat<float>().data();
    constexpr int64_t kUnit = 1 << 12;
    kernels::ParallelForUnits(IntraOpThreads(context), size, kUnit, /*cost=*/1,
                              [=](int64_t begin, int64_t end) {
                                std::fill(sums + begin, sums + end, 0.0f);
                              });
    const auto places = indices.flat<int32_t>();
    const auto added = values.flat<float>();
    const kernels::KeepDenormals keep_denormals;
    for (int64_t i = 0; i < places.size(); ++i) sums[places(i)] += added(i);
  }
};

class ScatterUpdateOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& values = context->input(0);
    const Tensor& indices = context->input(1);
    const Tensor& others = context->input(2);
    OP_REQUIRES_OK(context, CheckValues(values));
    const int64_t n = values.NumElements();
    OP_REQUIRES_OK(context, CheckIndexed(indices, others, n));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output(
                                {0}, 0, values.shape(), &output));
    const float* const before = values.flat<float>().data();
    float* const updated = output->flat<float>().data();
    if (updated != before) {
      constexpr int64_t kUnit = 1 << 12;
      kernels::ParallelForUnits(IntraOpThreads(context), n, kUnit, /*cost=*/1,
                                [=](int64_t begin, int64_t end) {
                                  std::copy(before + begin, before + end,
                                            updated + begin);
                                });
    }
    const auto places = indices.flat<int32_t>();
    const auto put = others.flat<float>();
    for (int64_t i = 0; i < places.size(); ++i) updated[places(i)] = put(i);
  }
};

TF_GC_REGISTER(DEVICE_CPU, "TfGc>Scatter", ScatterOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ScatterUpdate", ScatterUpdateOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>PackIndices", PackIndicesOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>UnpackIndices", UnpackIndicesOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>SumSelected", SumSelectedOp);

TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>TopKIndices", TopKIndicesOp);
TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>ChunkArgmax", ChunkArgmaxOp);
TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>MagnitudeHistogram",
                      MagnitudeHistogramOp);

}  // namespace
}  // namespace tf_gc
