// 3LC's ops on the CPU: checks of the inputs around ops/kernels.

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "ops/kernels/three_lc_tensor.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/registration.h"
#include "ops/tensorflow/three_lc_inputs.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

class QuarticEncodeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const kernels::ParallelFor threads = IntraOpThreads(context);
    const Tensor& ternary = context->input(0);
    const int8_t* values = ternary.flat<int8_t>().data();
    const int64_t n = ternary.NumElements();
    const int64_t wrong = kernels::FindNonTernary(values, n, threads);
    OP_REQUIRES(context, wrong < 0,
                NotTernary(values[std::max<int64_t>(wrong, 0)], wrong));
    Tensor* quartic = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(
                       0, TensorShape({kernels::QuarticSize(n)}), &quartic));
    kernels::QuarticEncode(values, n, quartic->flat<uint8_t>().data(), threads);
  }
};

class QuarticDecodeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const kernels::ParallelFor threads = IntraOpThreads(context);
    const Tensor& encoded = context->input(0);
    OP_REQUIRES_OK(context, CheckVector(encoded, "encoded"));
    TensorShape shape;
    OP_REQUIRES_OK(context, ReadShape(context->input(1), &shape));
    const int64_t n = shape.num_elements();
    OP_REQUIRES_OK(context, CheckEncoded(encoded, n, threads));
    Tensor* ternary = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &ternary));
    kernels::QuarticDecode(BytesOf(encoded), n, ternary->flat<int8_t>().data(),
                           threads);
  }

 private:
  static absl::Status CheckEncoded(const Tensor& encoded, int64_t n,
                                   const kernels::ParallelFor& threads) {
    TF_RETURN_IF_ERROR(CheckQuarticSize(encoded, n));
    const int64_t wrong = kernels::FindNonQuartic(BytesOf(encoded), n, threads);
    if (wrong < 0) return absl::OkStatus();
    return NotQuarticOfValues(BytesOf(encoded)[wrong], wrong);
  }
};

class ZeroRunEncodeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const kernels::ParallelFor threads = IntraOpThreads(context);
    const Tensor& quartic = context->input(0);
    OP_REQUIRES_OK(context, CheckVector(quartic, "quartic"));
    const int64_t m = quartic.NumElements();
    OP_REQUIRES_OK(context, CheckQuartic(BytesOf(quartic), m, threads));
    Tensor buffer;
    OP_REQUIRES_OK(context, context->allocate_temp(tensorflow::DT_UINT8,
                                                   TensorShape({m}), &buffer));
    const int64_t size = kernels::ZeroRunEncode(
        BytesOf(quartic), m, buffer.flat<uint8_t>().data(), threads);
    context->set_output(0, buffer.Slice(0, size));
  }

 private:
  static absl::Status CheckQuartic(const uint8_t* quartic, int64_t m,
                                   const kernels::ParallelFor& threads) {
    // m bytes of 5 values have no padding to check.
    const int64_t wrong = kernels::FindNonQuartic(quartic, 5 * m, threads);
    if (wrong < 0) return absl::OkStatus();
    return NotQuartic(quartic[wrong], wrong);
  }
};

class ZeroRunDecodeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const kernels::ParallelFor threads = IntraOpThreads(context);
    const Tensor& encoded = context->input(0);
    const Tensor& size = context->input(1);
    OP_REQUIRES_OK(context, CheckVector(encoded, "encoded"));
    int64_t m;
    OP_REQUIRES_OK(context, ReadCount(size, "size", &m));
    // Before m bytes are allocated.
    const int64_t decoded_size = kernels::ZeroRunDecodedSize(
        BytesOf(encoded), encoded.NumElements(), threads);
    OP_REQUIRES_OK(context, CheckDecodedSize(decoded_size, m));
    Tensor* quartic = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({m}), &quartic));
    kernels::ZeroRunDecode(BytesOf(encoded), encoded.NumElements(), m,
                           quartic->flat<uint8_t>().data(), threads);
  }
};

template <typename T>
class ThreeLcEncodeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const kernels::ParallelFor threads = IntraOpThreads(context);
    const Tensor& values = context->input(0);
    const Tensor& residual = context->input(1);
    OP_REQUIRES_OK(context, CheckThreeLcEncodeInputs(context));
    const float sparsity_multiplier = context->input(2).scalar<float>()();
    const int64_t n = values.NumElements();
    Tensor floats;
    OP_REQUIRES_OK(context, ToFloat<T>(context, values, &floats));
    Tensor* new_residual = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output(
                                {1}, 1, residual.shape(), &new_residual));
    Tensor buffer;
    OP_REQUIRES_OK(
        context,
        context->allocate_temp(
            tensorflow::DT_UINT8,
            TensorShape({kernels::ThreeLcTensorBufferSize(n)}), &buffer));
    const int64_t size = kernels::ThreeLcEncodeTensor(
        floats.flat<float>().data(), residual.flat<float>().data(),
        sparsity_multiplier, n, new_residual->flat<float>().data(),
        buffer.flat<uint8_t>().data(), threads);
    context->set_output(0, buffer.Slice(0, size));
  }
};

class ThreeLcDecodeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const kernels::ParallelFor threads = IntraOpThreads(context);
    const Tensor& encoded = context->input(0);
    OP_REQUIRES_OK(context, CheckVector(encoded, "encoded"));
    TensorShape shape;
    OP_REQUIRES_OK(context, ReadShape(context->input(1), &shape));
    const int64_t n = shape.num_elements();
    const int64_t size = encoded.NumElements();
    OP_REQUIRES_OK(context, ThreeLcStatus(kernels::ThreeLcCheckTensor(
                                              BytesOf(encoded), size, n),
                                          size, n));
    Tensor* values = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &values));
    OP_REQUIRES_OK(context,
                   ThreeLcStatus(kernels::ThreeLcDecodeTensor(
                                     BytesOf(encoded), size, n,
                                     values->flat<float>().data(), threads),
                                 size, n));
  }
};

TF_GC_REGISTER(DEVICE_CPU, "TfGc>QuarticEncode", QuarticEncodeOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>QuarticDecode", QuarticDecodeOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ZeroRunEncode", ZeroRunEncodeOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ZeroRunDecode", ZeroRunDecodeOp);
TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>ThreeLcEncode", ThreeLcEncodeOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ThreeLcDecode", ThreeLcDecodeOp);

}  // namespace
}  // namespace tf_gc
