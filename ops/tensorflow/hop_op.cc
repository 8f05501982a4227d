#include "ops/tensorflow/hop_op.h"

#include <utility>

namespace tf_gc {

HopOp::HopOp(tensorflow::OpKernelConstruction* context,
             const std::vector<std::string>& supported)
    : ExchangeOp(context) {
  std::string name;
  int rows;
  OP_REQUIRES_OK(context, context->GetAttr("topology", &name));
  OP_REQUIRES_OK(context, context->GetAttr("rows", &rows));
  OP_REQUIRES_OK(
      context, ParseTopology(name, rows, group_size(), supported, &topology_));
}

HopOp::HopOp(tensorflow::OpKernelConstruction* context, Topology topology)
    : ExchangeOp(context), topology_(std::move(topology)) {}

absl::Status HopOp::AllReduce(int64_t values, Hop* hop,
                              Session* session) const {
  std::vector<VariableTraffic> traffic;
  TF_RETURN_IF_ERROR(
      tf_gc::AllReduce({values}, topology_, hop, *session, &traffic));
  session->traffic.shared_bytes_sent += traffic[0].bytes;
  return absl::OkStatus();
}

}  // namespace tf_gc
