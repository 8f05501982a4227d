// The exchanges of signs: declarations, shapes and documentation.

#include "absl/status/status.h"
#include "ops/tensorflow/exchange_declaration.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/signs_inputs.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Packed signs come out as they went in.
absl::Status ExchangeSignMajorityShape(InferenceContext* c) {
  DimensionHandle size;
  TF_RETURN_IF_ERROR(CheckPackedSignsShape(c, &size));
  c->set_output(
      0, c->Vector(c->ValueKnown(size) ? kernels::SignPackedSize(c->Value(size))
                                       : InferenceContext::kUnknownDim));
  return SetCarriedShape(c);
}

absl::Status ExchangeSignMergeShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckSeedShape(c, 2));
  return ExchangeSignMajorityShape(c);
}

absl::Status ExchangeCascadingSignShape(InferenceContext* c) {
  ShapeHandle values;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &values));
  TF_RETURN_IF_ERROR(CheckSeedShape(c, 1));
  c->set_output(0, values);
  return SetCarriedShape(c);
}

}  // namespace

TF_GC_TOPOLOGY_EXCHANGE_OP("TfGc>ExchangeSignMerge", "ring")
    .Attr("Tsize: {int32, int64} = DT_INT64")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Input("packed: uint8")
    .Input("size: Tsize")
    .Input("seed: Tseed")
    .Input("bucket: resource")
    .Input("carried: float")
    .Output("merged: uint8")
    .Output("carried_sum: float")
    .SetShapeFn(ExchangeSignMergeShape)
    .Doc(R"doc(
Merges packed signs of all workers of a group into unbiased ones, with one bit
per value at every hop (Marsit, section 4.1).

A bit of the result is 1 with a probability that is the mean of the workers'
bits. All workers get the same bits.

packed: A vector of the ceil(size / 8) bytes that SignPack gives.
size: The number of values, a scalar; the same on all workers.
seed: The key of the Philox generator, a scalar, or a vector of two: key and
  stream; the same on all workers.
bucket: Handle from Bucket.
carried: Vector of the same size on all workers, which travels in the same
  messages.
merged: A vector of as many bytes, with padding bits of 0.
carried_sum: The sum of the carried vectors over the workers.
group_key: Key of the group of devices that take part.
group_size: Number of devices in the group.
topology: ring or torus; the same on all workers.
rows: Rows of the torus, which divide group_size; 1 for a ring.
timeout_seconds: DeadlineExceeded after so long without the peers; 0 waits.
)doc");

TF_GC_EXCHANGE_OP("TfGc>ExchangeSignMajority")
    .Attr("Tsize: {int32, int64} = DT_INT64")
    .Input("packed: uint8")
    .Input("size: Tsize")
    .Input("bucket: resource")
    .Input("carried: float")
    .Output("majority: uint8")
    .Output("carried_sum: float")
    .SetShapeFn(ExchangeSignMajorityShape)
    .Doc(R"doc(
Gives every worker of a group the majority of the workers' signs.

Each worker is the server of a part of the values: one bit per value goes up,
and one comes down.

packed: A vector of the ceil(size / 8) bytes that SignPack gives.
size: The number of values, a scalar; the same on all workers.
bucket: Handle from Bucket.
carried: Vector of the same size on all workers, which travels in the same
  messages.
majority: A vector of as many bytes: the bit is 1 where at least half of the
  workers have 1, and padding bits are 0.
carried_sum: The sum of the carried vectors over the workers.
group_key: Key of the group of devices that take part.
group_size: Number of devices in the group, at most 65535.
timeout_seconds: DeadlineExceeded after so long without the peers; 0 waits.
)doc");

TF_GC_EXCHANGE_OP("TfGc>ExchangeCascadingSign")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Input("values: float")
    .Input("seed: Tseed")
    .Input("bucket: resource")
    .Input("carried: float")
    .Output("sum: float")
    .Output("carried_sum: float")
    .SetShapeFn(ExchangeCascadingSignShape)
    .Doc(R"doc(
Adds up a vector over the workers of a group by cascading SSDM: every hop of the
ring decodes what comes, adds its own values, and compresses the sum to a norm
and one random sign per value (Marsit, section 3.2).

The sum is unbiased, and its variance grows with every hop. All workers get the
same bits.

values: Vector of the same size on all workers, of finite values.
seed: The key of the Philox generator, a scalar, or a vector of two: key and
  stream; the same on all workers.
bucket: Handle from Bucket.
carried: Vector of the same size on all workers, which travels in the same
  messages.
sum: Vector of that size; NaN in a piece whose norm overflows.
carried_sum: The sum of the carried vectors over the workers.
group_key: Key of the group of devices that take part.
group_size: Number of devices in the group.
timeout_seconds: DeadlineExceeded after so long without the peers; 0 waits.
)doc");

}  // namespace tf_gc
