// The sum of quantised values over the workers: kernel.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/collectives/lane_hop.h"
#include "ops/tensorflow/hop_op.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/quantization_inputs.h"
#include "ops/tensorflow/registration.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

template <typename Lane>
class ExchangeLaneSumOp : public HopOp {
 public:
  explicit ExchangeLaneSumOp(OpKernelConstruction* context) : HopOp(context) {
    OP_REQUIRES_OK(context, GetBits(context, &bits_));
  }

 private:
  absl::Status Run(OpKernelContext* context, Session* session) override {
    const Tensor& packed = context->input(0);
    int64_t n;
    TF_RETURN_IF_ERROR(ReadCount(context->input(2), "size", &n));
    TF_RETURN_IF_ERROR(CheckPacked(packed, n, bits_));
    std::vector<Lane> table(int64_t{1} << bits_);
    TF_RETURN_IF_ERROR(ReadTable(context->input(1), bits_, table.data()));
    TF_RETURN_IF_ERROR(CheckSumsFit(table));
    Tensor* sums;
    TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({n}), &sums));
    LaneHop<Lane> hop(BytesOf(packed), std::move(table), bits_, group_size(),
                      sums->flat<Lane>().data(), IntraOpThreads(context));
    return AllReduce(n, &hop, session);
  }

  absl::Status CheckSumsFit(const std::vector<Lane>& table) const {
    const int64_t largest = *std::max_element(table.begin(), table.end());
    constexpr int64_t kLargestSum = std::numeric_limits<Lane>::max();
    if (group_size() * largest <= kLargestSum) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "table must hold values of at most ", kLargestSum, " / ", group_size(),
        " workers, for the sums to fit in ", 8 * sizeof(Lane), " bits, got ",
        largest, ": use wider lanes or a smaller granularity"));
  }

  int bits_;
};

TF_GC_REGISTER(DEVICE_CPU, "TfGc>ExchangeLaneSum", ExchangeLaneSumOp<uint8_t>,
               .TypeConstraint<uint8_t>("lanes"));
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ExchangeLaneSum", ExchangeLaneSumOp<uint16_t>,
               .TypeConstraint<uint16_t>("lanes"));

}  // namespace
}  // namespace tf_gc
