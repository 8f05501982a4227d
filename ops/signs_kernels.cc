// The ops of signs on the CPU: checks of the inputs around ops/kernels/signs.h.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/inputs.h"
#include "ops/kernels/signs.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

// The values that threads share out: whole cache lines of bytes.
constexpr int64_t kUnit = 512;

template <typename T>
class SignPackOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    Tensor floats;
    OP_REQUIRES_OK(context, ToFloat<T>(context, context->input(0), &floats));
    const int64_t n = floats.NumElements();
    Tensor* packed = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(
                       0, TensorShape({kernels::SignPackedSize(n)}), &packed));
    const float* const in = floats.flat<float>().data();
    uint8_t* const out = packed->flat<uint8_t>().data();
    kernels::ParallelForUnits(IntraOpThreads(context), n, kUnit, /*cost=*/1,
                              [=](int64_t begin, int64_t end) {
                                kernels::SignPack(in + begin, end - begin,
                                                  out + begin / 8);
                              });
  }
};

class SignUnpackOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& packed = context->input(0);
    OP_REQUIRES_OK(context, CheckVector(packed, "packed"));
    int64_t n;
    OP_REQUIRES_OK(context, ReadCount(context->input(1), "size", &n));
    OP_REQUIRES_OK(context, CheckPacked(packed, n));
    Tensor* values = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({n}), &values));
    const uint8_t* const in = Bytes(packed);
    float* const out = values->flat<float>().data();
    kernels::ParallelForUnits(IntraOpThreads(context), n, kUnit, /*cost=*/1,
                              [=](int64_t begin, int64_t end) {
                                kernels::SignUnpack(in + begin / 8, end - begin,
                                                    out + begin);
                              });
  }

 private:
  static absl::Status CheckPacked(const Tensor& packed, int64_t n) {
    const int64_t bytes = packed.NumElements();
    if (bytes != kernels::SignPackedSize(n)) {
      return absl::InvalidArgumentError(
          absl::StrCat("packed must have ", kernels::SignPackedSize(n),
                       " bytes for ", n, " values, got ", bytes));
    }
    if (kernels::SignPaddingIsZero(Bytes(packed), n)) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("packed must have padding bits of 0 for ", n,
                     " values, got the last byte ",
                     static_cast<int>(Bytes(packed)[bytes - 1])));
  }
};

class SignMergeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& first = context->input(0);
    const Tensor& second = context->input(1);
    OP_REQUIRES_OK(context, CheckPacked(first, second));
    int64_t first_count, second_count;
    OP_REQUIRES_OK(context,
                   ReadInteger(context->input(2), "first_count", &first_count));
    OP_REQUIRES_OK(
        context, ReadInteger(context->input(3), "second_count", &second_count));
    OP_REQUIRES(context, kernels::AreSignMergeCounts(first_count, second_count),
                absl::InvalidArgumentError(absl::StrCat(
                    "first_count and second_count must be at least 1, and "
                    "their sum at most 2^31 - 1, got ",
                    first_count, " and ", second_count)));
    kernels::Seed seed;
    OP_REQUIRES_OK(context, ReadSeed(context->input(4), &seed));
    Tensor* merged = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output(
                                {0, 1}, 0, first.shape(), &merged));
    const uint8_t* const a = Bytes(first);
    const uint8_t* const b = Bytes(second);
    uint8_t* const out = merged->flat<uint8_t>().data();
    // Batches of the kernel, which are faster than parts of them.
    constexpr int64_t kBatch = 64 * kernels::kSignMergeUnit;
    kernels::ParallelForUnits(
        IntraOpThreads(context), first.NumElements(), kBatch, /*cost=*/4,
        [=](int64_t begin, int64_t end) {
          kernels::SignMerge(a + begin, b + begin, end - begin, first_count,
                             second_count, seed, begin, out + begin);
        });
  }

 private:
  static absl::Status CheckPacked(const Tensor& first, const Tensor& second) {
    TF_RETURN_IF_ERROR(CheckVector(first, "first"));
    TF_RETURN_IF_ERROR(CheckVector(second, "second"));
    if (first.NumElements() == second.NumElements()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("second must have the size of first, ",
                     first.NumElements(), ", got ", second.NumElements()));
  }
};

#define TF_GC_REGISTER_CPU(name, kernel) \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU), kernel)

TF_GC_REGISTER_CPU("TfGc>SignUnpack", SignUnpackOp);
TF_GC_REGISTER_CPU("TfGc>SignMerge", SignMergeOp);

#undef TF_GC_REGISTER_CPU

#define TF_GC_REGISTER_PACK(type)                             \
  REGISTER_KERNEL_BUILDER(Name("TfGc>SignPack")               \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<type>("T"),     \
                          SignPackOp<type>);

TF_GC_REGISTER_PACK(float)
TF_GC_REGISTER_PACK(Eigen::half)
TF_GC_REGISTER_PACK(tensorflow::bfloat16)

#undef TF_GC_REGISTER_PACK

}  // namespace
}  // namespace tf_gc
