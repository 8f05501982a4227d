#include "ops/tensorflow/hop_op.h"

#include <string>
#include <vector>

#include "ops/collectives/all_reduce.h"
#include "ops/collectives/exact_hop.h"
#include "ops/collectives/joint_hop.h"
#include "ops/tensorflow/inputs.h"

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

absl::Status HopOp::AllReduceAndCarry(tensorflow::OpKernelContext* context,
                                      int64_t values, Hop* hop,
                                      Session* session) const {
  const tensorflow::Tensor* carried;
  TF_RETURN_IF_ERROR(context->input("carried", &carried));
  TF_RETURN_IF_ERROR(CheckVector(*carried, "carried"));
  tensorflow::Tensor* sum;
  TF_RETURN_IF_ERROR(
      context->allocate_output("carried_sum", carried->shape(), &sum));
  const int64_t size = carried->NumElements();
  if (size == 0) return AllReduce(values, hop, session);
  const Exact<float> vector = {carried->flat<float>().data(),
                               sum->flat<float>().data()};
  if (values == 0) {
    ExactHop alone({vector});
    return AllReduce(size, &alone, session);
  }
  JointHop joint({vector}, {size});
  TF_RETURN_IF_ERROR(AllReduce(values, joint.With(hop), session));
  session->traffic.shared_bytes_sent += joint.traffic()[0].bytes;
  return absl::OkStatus();
}

}  // namespace tf_gc
