// The ops of signs on the CPU: checks of the inputs around ops/kernels/signs.h.

#include <cstdint>

#include "ops/kernels/signs.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/registration.h"
#include "ops/tensorflow/signs_inputs.h"
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
    int64_t n;
    OP_REQUIRES_OK(context, ReadPackedSigns(context, &n));
    const uint8_t* const in = BytesOf(context->input(0));
    Tensor* values = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({n}), &values));
    float* const out = values->flat<float>().data();
    kernels::ParallelForUnits(IntraOpThreads(context), n, kUnit, /*cost=*/1,
                              [=](int64_t begin, int64_t end) {
                                kernels::SignUnpack(in + begin / 8, end - begin,
                                                    out + begin);
                              });
  }
};

class SignMergeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& first = context->input(0);
    const Tensor& second = context->input(1);
    SignMergeInputs inputs;
    OP_REQUIRES_OK(context, ReadSignMergeInputs(context, &inputs));
    Tensor* merged = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output(
                                {0, 1}, 0, first.shape(), &merged));
    const uint8_t* const a = BytesOf(first);
    const uint8_t* const b = BytesOf(second);
    uint8_t* const out = merged->flat<uint8_t>().data();
    // Batches of the kernel, which are faster than parts of them.
    constexpr int64_t kBatch = 64 * kernels::kSignMergeUnit;
    kernels::ParallelForUnits(
        IntraOpThreads(context), first.NumElements(), kBatch, /*cost=*/4,
        [=](int64_t begin, int64_t end) {
          kernels::SignMerge(a + begin, b + begin, end - begin,
                             inputs.first_count, inputs.second_count,
                             inputs.seed, begin, out + begin);
        });
  }
};

TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>SignPack", SignPackOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>SignUnpack", SignUnpackOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>SignMerge", SignMergeOp);

}  // namespace
}  // namespace tf_gc
