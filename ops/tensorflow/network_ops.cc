// What exchanges tell of the network: declarations, shapes and documentation.

#include "absl/status/status.h"
#include "ops/tensorflow/exchange_declaration.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {
namespace {

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status NetworkSamplesShape(InferenceContext* c) {
  c->set_output(0, c->Matrix(InferenceContext::kUnknownDim, 4));
  return absl::OkStatus();
}

absl::Status TimeWaitedShape(InferenceContext* c) {
  c->set_output(0, c->Scalar());
  c->set_output(1, c->Scalar());
  return absl::OkStatus();
}

absl::Status ExchangeProbeShape(InferenceContext* c) {
  int group_size = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("group_size", &group_size));
  ShapeHandle sizes;
  TF_RETURN_IF_ERROR(c->Merge(c->input(0), c->Vector(group_size), &sizes));
  c->set_output(0, sizes);
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("TfGc>NetworkSamples")
    .Output("samples: double")
    .SetIsStateful()
    .SetShapeFn(NetworkSamplesShape)
    .Doc(R"(
Returns how long what came over this process's link took, and forgets it.

samples: Matrix of four columns, the oldest row first: the bytes that came while
  the link was busy, for how many seconds it was, in how many transfers, and 1
  if that time begins with the request for them, 0 if with their coming.
)");

REGISTER_OP("TfGc>TimeWaited")
    .Output("waited: double")
    .Output("total: double")
    .SetIsStateful()
    .SetShapeFn(TimeWaitedShape)
    .Doc(R"(
Returns how long exchanges of this process have waited for others.

waited: Seconds in which at least one exchange waited for messages to come, or to
  be taken.
total: Seconds from the beginning of the first wait to the end of the last.
)");

TF_GC_EXCHANGE_OP("TfGc>ExchangeProbe")
    .Input("sizes: int64")
    .Input("bucket: resource")
    .Output("seconds: double")
    .Attr("max_bytes: int >= 0 = 2147483647")
    .SetShapeFn(ExchangeProbeShape)
    .Doc(R"(
Times a message to each other worker and its empty answer.

Pairs of workers take turns, so that no worker sends or gets two messages at
once. Up to 32 bytes take twice the latency; a longer message takes four times
the latency and the time of its bytes.

sizes: Vector of group_size, how many bytes this worker sends to each; its own
  does not count, and others need not send as many.
bucket: Handle from Bucket.
seconds: Vector of group_size, 0 for this worker.
group_key: Key of the group of devices that take part.
group_size: Number of devices in the group.
max_bytes: The most that any worker sends; others take no more from it.
timeout_seconds: DeadlineExceeded after so long without the peers; 0 waits.
)");

}  // namespace tf_gc
