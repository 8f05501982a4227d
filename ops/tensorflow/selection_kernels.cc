// Selection and the packing of indices on the CPU: checks of the inputs around
// ops/kernels.

#include <cstdint>

#include "ops/kernels/chunk_argmax.h"
#include "ops/kernels/index_packing.h"
#include "ops/kernels/magnitude_histogram.h"
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
    int64_t count, size;
    // Before `count` indices are allocated.
    OP_REQUIRES_OK(context, ReadUnpackInputs(context, &count, &size));
    int32_t* indices;
    OP_REQUIRES_OK(context, AllocateIndices(context, count, &indices));
    OP_REQUIRES_OK(context,
                   UnpackStatus(kernels::UnpackIndices(BytesOf(packed), count,
                                                       size, indices),
                                packed.NumElements(), count, size));
  }
};

TF_GC_REGISTER(DEVICE_CPU, "TfGc>PackIndices", PackIndicesOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>UnpackIndices", UnpackIndicesOp);

TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>TopKIndices", TopKIndicesOp);
TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>ChunkArgmax", ChunkArgmaxOp);
TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>MagnitudeHistogram",
                      MagnitudeHistogramOp);

}  // namespace
}  // namespace tf_gc
