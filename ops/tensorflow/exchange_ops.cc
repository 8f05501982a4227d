// The exchanges that compressors are made of: declarations, shapes and
// documentation.

#include "absl/status/status.h"
#include "ops/tensorflow/exchange_declaration.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {
namespace {

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status ExchangeSumShape(InferenceContext* c) {
  ShapeHandle values;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &values));
  c->set_output(0, values);
  return SetCarriedShape(c);
}

absl::Status ExchangeAllGatherShape(InferenceContext* c) {
  ShapeHandle data;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &data));
  int group_size = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("group_size", &group_size));
  c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
  c->set_output(1, c->Vector(group_size));
  return absl::OkStatus();
}

absl::Status ExchangeBroadcastShape(InferenceContext* c) {
  ShapeHandle data, root;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &data));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 0, &root));
  c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

}  // namespace

TF_GC_TOPOLOGY_EXCHANGE_OP("TfGc>ExchangeSum", "sharded")
    .Attr("T: {float, half, bfloat16}")
    .Input("values: T")
    .Input("bucket: resource")
    .Input("carried: float")
    .Output("sum: T")
    .Output("carried_sum: float")
    .SetShapeFn(ExchangeSumShape)
    .Doc(R"(
Adds up a vector over the workers of a group, uncompressed.

Values are added in float32, and rounded at every hop that sends them. All
workers get the same bits.

values: Vector of the same size on all workers.
bucket: Handle from Bucket.
carried: Vector of the same size on all workers, which travels in the same
  messages.
sum: Vector of that size, the sum over the workers.
carried_sum: The sum of the carried vectors over the workers.
group_key: Key of the group of devices that take part.
group_size: Number of devices in the group.
topology: sharded, ring, tree or torus; the same on all workers.
rows: Rows of the torus, which divide group_size; 1 for other topologies.
timeout_seconds: DeadlineExceeded after so long without the peers; 0 waits.
)");

TF_GC_EXCHANGE_OP("TfGc>ExchangeAllGather")
    .Input("data: uint8")
    .Input("bucket: resource")
    .Output("gathered: uint8")
    .Output("sizes: int64")
    .Attr("max_bytes: int >= 0 = 2147483647")
    .SetShapeFn(ExchangeAllGatherShape)
    .Doc(R"(
Gives every worker of a group the bytes of all.

data: Vector of at most max_bytes; its size may differ by worker.
bucket: Handle from Bucket.
gathered: Vector, the data of all workers one after the other, by rank.
sizes: Vector of group_size, how many bytes are of each worker.
group_key: Key of the group of devices that take part.
group_size: Number of devices in the group.
max_bytes: The most that any worker sends; others take no more from it.
timeout_seconds: DeadlineExceeded after so long without the peers; 0 waits.
)");

TF_GC_EXCHANGE_OP("TfGc>ExchangeBroadcast")
    .Input("data: uint8")
    .Input("root: int32")
    .Input("bucket: resource")
    .Output("received: uint8")
    .Attr("max_bytes: int >= 0 = 2147483647")
    .SetShapeFn(ExchangeBroadcastShape)
    .Doc(R"(
Gives every worker of a group the bytes of one.

data: Vector of at most max_bytes; it counts on the root alone.
root: Scalar, the rank whose data is sent; the same on all workers.
bucket: Handle from Bucket.
received: Vector, the root's data.
group_key: Key of the group of devices that take part.
group_size: Number of devices in the group.
max_bytes: The most that any worker sends; others take no more from it.
timeout_seconds: DeadlineExceeded after so long without the peers; 0 waits.
)");

}  // namespace tf_gc
