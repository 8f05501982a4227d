// What the declarations of all exchanges have in common.

#ifndef TF_GC_OPS_TENSORFLOW_EXCHANGE_DECLARATION_H_
#define TF_GC_OPS_TENSORFLOW_EXCHANGE_DECLARATION_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {

// The shape of the last output, `carried_sum`, is that of the last input,
// `carried`.
inline absl::Status SetCarriedShape(
    tensorflow::shape_inference::InferenceContext* c) {
  tensorflow::shape_inference::ShapeHandle carried;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(c->num_inputs() - 1), 1, &carried));
  c->set_output(c->num_outputs() - 1, carried);
  return absl::OkStatus();
}

}  // namespace tf_gc

// Both flags are needed: without the second, the loss of a peer would become
// an InternalError.
#define TF_GC_EXCHANGE_OP(name)           \
  REGISTER_OP(name)                       \
      .Attr("group_key: int")             \
      .Attr("group_size: int >= 1")       \
      .Attr("timeout_seconds: float = 0") \
      .SetIsStateful()                    \
      .SetIsDistributedCommunication()

// The attributes of an exchange that has a choice of topologies: it runs on
// those that its hop names.
#define TF_GC_TOPOLOGY_EXCHANGE_OP(name, topology)                             \
  TF_GC_EXCHANGE_OP(name)                                                      \
      .Attr("topology: {'sharded', 'ring', 'tree', 'torus'} = '" topology "'") \
      .Attr("rows: int >= 1 = 1")

#endif  // TF_GC_OPS_TENSORFLOW_EXCHANGE_DECLARATION_H_
