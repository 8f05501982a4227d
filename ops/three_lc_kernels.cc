// 3LC's ops on the CPU: checks of the inputs around ops/kernels.

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/inputs.h"
#include "ops/kernels/three_lc_tensor.h"
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
                absl::InvalidArgumentError(absl::StrCat(
                    "ternary must hold only -1, 0 and 1, got ",
                    static_cast<int>(values[std::max<int64_t>(wrong, 0)]),
                    " at index ", wrong)));
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
    kernels::QuarticDecode(Bytes(encoded), n, ternary->flat<int8_t>().data(),
                           threads);
  }

 private:
  static absl::Status CheckEncoded(const Tensor& encoded, int64_t n,
                                   const kernels::ParallelFor& threads) {
    // Not QuarticSize, which adds to n.
    const int64_t size = n / 5 + (n % 5 != 0);
    if (encoded.NumElements() != size) {
      return absl::InvalidArgumentError(
          absl::StrCat("encoded must have ", size, " bytes for ", n,
                       " values, got ", encoded.NumElements()));
    }
    const int64_t wrong = kernels::FindNonQuartic(Bytes(encoded), n, threads);
    if (wrong < 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "encoded must hold bytes in 0 ... 242, with padding of 0, got ",
        static_cast<int>(Bytes(encoded)[wrong]), " at index ", wrong));
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
    OP_REQUIRES_OK(context, CheckQuartic(Bytes(quartic), m, threads));
    Tensor buffer;
    OP_REQUIRES_OK(context, context->allocate_temp(tensorflow::DT_UINT8,
                                                   TensorShape({m}), &buffer));
    const int64_t size = kernels::ZeroRunEncode(
        Bytes(quartic), m, buffer.flat<uint8_t>().data(), threads);
    context->set_output(0, buffer.Slice(0, size));
  }

 private:
  static absl::Status CheckQuartic(const uint8_t* quartic, int64_t m,
                                   const kernels::ParallelFor& threads) {
    // m bytes of 5 values have no padding to check.
    const int64_t wrong = kernels::FindNonQuartic(quartic, 5 * m, threads);
    if (wrong < 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("quartic must hold bytes in 0 ... 242, got ",
                     static_cast<int>(quartic[wrong]), " at index ", wrong));
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
        Bytes(encoded), encoded.NumElements(), threads);
    OP_REQUIRES(context, decoded_size == m,
                absl::DataLossError(absl::StrCat(
                    "encoded must stand for size = ", m,
                    " quartic bytes, but stands for ", decoded_size)));
    Tensor* quartic = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({m}), &quartic));
    kernels::ZeroRunDecode(Bytes(encoded), encoded.NumElements(), m,
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
    OP_REQUIRES_OK(context, CheckInputs(context));
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

 private:
  static absl::Status CheckInputs(OpKernelContext* context) {
    const Tensor& values = context->input(0);
    const Tensor& residual = context->input(1);
    if (values.shape() != residual.shape()) {
      return absl::InvalidArgumentError(
          absl::StrCat("residual must have the shape of values, ",
                       values.shape().DebugString(), ", got ",
                       residual.shape().DebugString()));
    }
    TF_RETURN_IF_ERROR(CheckScalar(context->input(2), "sparsity_multiplier"));
    const float multiplier = context->input(2).scalar<float>()();
    if (kernels::IsSparsityMultiplier(multiplier)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "sparsity_multiplier must be at least 1 and less than 2, got ",
        multiplier));
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
    OP_REQUIRES_OK(
        context, ToStatus(kernels::ThreeLcCheckTensor(Bytes(encoded), size, n),
                          size, n));
    Tensor* values = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &values));
    OP_REQUIRES_OK(context, ToStatus(kernels::ThreeLcDecodeTensor(
                                         Bytes(encoded), size, n,
                                         values->flat<float>().data(), threads),
                                     size, n));
  }

 private:
  static absl::Status ToStatus(const char* error, int64_t size, int64_t n) {
    if (error == nullptr) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("encoded, ", size, " bytes for ", n, " values, ", error));
  }
};

#define TF_GC_REGISTER_CPU(name, kernel) \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU), kernel)

TF_GC_REGISTER_CPU("TfGc>QuarticEncode", QuarticEncodeOp);
TF_GC_REGISTER_CPU("TfGc>QuarticDecode", QuarticDecodeOp);
TF_GC_REGISTER_CPU("TfGc>ZeroRunEncode", ZeroRunEncodeOp);
TF_GC_REGISTER_CPU("TfGc>ZeroRunDecode", ZeroRunDecodeOp);
TF_GC_REGISTER_CPU("TfGc>ThreeLcDecode", ThreeLcDecodeOp);

#undef TF_GC_REGISTER_CPU

#define TF_GC_REGISTER_ENCODE(type)                           \
  REGISTER_KERNEL_BUILDER(Name("TfGc>ThreeLcEncode")          \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<type>("T"),     \
                          ThreeLcEncodeOp<type>);

TF_GC_REGISTER_ENCODE(float)
TF_GC_REGISTER_ENCODE(Eigen::half)
TF_GC_REGISTER_ENCODE(tensorflow::bfloat16)

#undef TF_GC_REGISTER_ENCODE

}  // namespace
}  // namespace tf_gc
