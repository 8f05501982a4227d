#include "ops/tensorflow/hop_op.h"

#include <string>
#include <vector>

#include "ops/collectives/all_reduce.h"

namespace tf_gc {

HopOp::HopOp(tensorflow::OpKernelConstruction* context) : ExchangeOp(context) {
  if (!context->HasAttr("topology")) return;
  std::string name;
  int rows;
  OP_REQUIRES_OK(context, context->GetAttr("topology", &name));
  OP_REQUIRES_OK(context, context->GetAttr("rows", &rows));
  OP_REQUIRES_OK(context,
                 ParseTopology(name, rows, group_size(), &topology_.emplace()));
}

absl::Status HopOp::AllReduce(int64_t values, Hop* hop,
                              Session* session) const {
  std::vector<VariableTraffic> traffic;
  TF_RETURN_IF_ERROR(tf_gc::AllReduce(
      {values}, topology_.value_or(Topology{hop->topologies().front()}),
      *session, hop, &traffic));
  session->traffic.shared_bytes_sent += traffic[0].bytes;
  return absl::OkStatus();
}

}  // namespace tf_gc
