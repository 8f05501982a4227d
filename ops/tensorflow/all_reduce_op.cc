#include "ops/tensorflow/all_reduce_op.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/collectives/all_reduce.h"

namespace tf_gc {

absl::Status GetIsMean(tensorflow::OpKernelConstruction* context,
                       bool* is_mean) {
  std::string reduce_op;
  TF_RETURN_IF_ERROR(context->GetAttr("reduce_op", &reduce_op));
  *is_mean = reduce_op == "MEAN";
  return absl::OkStatus();
}

absl::Status ReadSizes(tensorflow::OpKernelContext* context,
                       const Session& session, std::vector<int64_t>* sizes) {
  tensorflow::OpInputList gradients;
  TF_RETURN_IF_ERROR(context->input_list("gradients", &gradients));
  const int variables = session.traffic.values_sent.size();
  if (gradients.size() != variables) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradients: ", gradients.size(),
                     " tensors for a bucket of ", variables, " variables"));
  }
  for (const tensorflow::Tensor& gradient : gradients) {
    sizes->push_back(gradient.NumElements());
  }
  return absl::OkStatus();
}

AllReduceOp::AllReduceOp(tensorflow::OpKernelConstruction* context)
    : ExchangeOp(context), companions_(context) {
  OP_REQUIRES_OK(context, GetIsMean(context, &is_mean_));
}

absl::Status AllReduceOp::Run(tensorflow::OpKernelContext* context,
                              Session* session) {
  std::vector<int64_t> sizes;
  TF_RETURN_IF_ERROR(ReadSizes(context, *session, &sizes));
  tensorflow::OpInputList gradients;
  TF_RETURN_IF_ERROR(context->input_list("gradients", &gradients));
  int64_t bytes = 0;
  for (const tensorflow::Tensor& gradient : gradients) {
    bytes += gradient.TotalBytes();
  }
  Companions::Step companions;
  TF_RETURN_IF_ERROR(companions_.Read(context, divisor(), &companions));
  bytes += companions.bytes();
  return AllReduce(context, [&](Hop* leader) {
    Hop* const hop = companions.hop()->With(leader);
    std::vector<VariableTraffic> traffic;
    TF_RETURN_IF_ERROR(
        tf_gc::AllReduce(sizes, DefaultTopology(*hop, bytes, session->ranks),
                         *session, hop, &traffic));
    companions.Count(session->ranks);
    session->traffic.AddStep(sizes, session->ranks);
    for (size_t v = 0; v < sizes.size(); ++v) {
      session->traffic.payload_bytes_sent[v] = traffic[v].bytes;
    }
    return absl::OkStatus();
  });
}

}  // namespace tf_gc
