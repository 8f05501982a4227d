// The exchanges of signs: kernels.

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "ops/collectives/cascading_sign_hop.h"
#include "ops/collectives/sign_majority_hop.h"
#include "ops/collectives/sign_merge_hop.h"
#include "ops/tensorflow/hop_op.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/registration.h"
#include "ops/tensorflow/signs_inputs.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

class ExchangeSignMergeOp : public HopOp {
 public:
  using HopOp::HopOp;

 private:
  absl::Status Run(OpKernelContext* context, Session* session) override {
    const Tensor& packed = context->input(0);
    int64_t n;
    TF_RETURN_IF_ERROR(ReadPackedSigns(context, &n));
    kernels::Seed seed;
    TF_RETURN_IF_ERROR(ReadSeed(context->input(2), &seed));
    Tensor* merged;
    TF_RETURN_IF_ERROR(context->allocate_output(0, packed.shape(), &merged));
    SignMergeHop hop(BytesOf(packed), seed, merged->flat<uint8_t>().data());
    return AllReduceAndCarry(context, n, &hop, session);
  }
};

class ExchangeSignMajorityOp : public HopOp {
 public:
  explicit ExchangeSignMajorityOp(OpKernelConstruction* context)
      : HopOp(context) {
    OP_REQUIRES(context, group_size() <= SignMajorityHop::kMaxRanks,
                absl::InvalidArgumentError(absl::StrCat(
                    "group_size must be at most ", SignMajorityHop::kMaxRanks,
                    ", got ", group_size())));
  }

 private:
  absl::Status Run(OpKernelContext* context, Session* session) override {
    const Tensor& packed = context->input(0);
    int64_t n;
    TF_RETURN_IF_ERROR(ReadPackedSigns(context, &n));
    Tensor* majority;
    TF_RETURN_IF_ERROR(context->allocate_output(0, packed.shape(), &majority));
    SignMajorityHop hop(BytesOf(packed), majority->flat<uint8_t>().data());
    return AllReduceAndCarry(context, n, &hop, session);
  }
};

class ExchangeCascadingSignOp : public HopOp {
 public:
  using HopOp::HopOp;

 private:
  absl::Status Run(OpKernelContext* context, Session* session) override {
    const Tensor& values = context->input(0);
    TF_RETURN_IF_ERROR(CheckVector(values, "values"));
    kernels::Seed seed;
    TF_RETURN_IF_ERROR(ReadSeed(context->input(1), &seed));
    Tensor* sum;
    TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output(
        {0}, 0, values.shape(), &sum));
    CascadingSignHop hop(values.flat<float>().data(), seed,
                         sum->flat<float>().data());
    return AllReduceAndCarry(context, values.NumElements(), &hop, session);
  }
};

TF_GC_REGISTER(DEVICE_CPU, "TfGc>ExchangeSignMerge", ExchangeSignMergeOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ExchangeSignMajority", ExchangeSignMajorityOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ExchangeCascadingSign",
               ExchangeCascadingSignOp);

}  // namespace
}  // namespace tf_gc
