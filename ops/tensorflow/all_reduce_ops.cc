// The all-reduces of gradients: declarations, shapes and documentation.

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ops/tensorflow/exchange_declaration.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/quantization_inputs.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Every gradient comes out with the shape that it went in with, and so do the
// companions.
absl::Status AllReduceShape(InferenceContext* c) {
  for (const auto& [input, output] :
       {std::pair("gradients", "reduced"),
        std::pair("companions", "companions_reduced")}) {
    std::vector<ShapeHandle> shapes;
    TF_RETURN_IF_ERROR(c->input(input, &shapes));
    TF_RETURN_IF_ERROR(c->set_output(output, shapes));
  }
  return absl::OkStatus();
}

absl::Status ThreeLcAllReduceShape(InferenceContext* c) {
  int variables;
  TF_RETURN_IF_ERROR(c->GetAttr("N", &variables));
  ShapeHandle scalar, vector;
  for (int i = 2 * variables; i < 4 * variables; ++i) {
    TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 1, &vector));
  }
  TF_RETURN_IF_ERROR(c->WithRank(c->input(4 * variables), 0, &scalar));
  return AllReduceShape(c);
}

absl::Status ThcAllReduceShape(InferenceContext* c) {
  int bits, variables;
  TF_RETURN_IF_ERROR(c->GetAttr("N", &variables));
  ShapeHandle vector;
  DimensionHandle entries;
  for (int i = 0; i < variables; ++i) {
    TF_RETURN_IF_ERROR(c->WithRank(c->input(2 * variables + i), 1, &vector));
  }
  TF_RETURN_IF_ERROR(GetBits(c, &bits));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(3 * variables), 1, &vector));
  TF_RETURN_IF_ERROR(c->WithValue(c->Dim(vector, 0), 1 << bits, &entries));
  TF_RETURN_IF_ERROR(CheckSeedShape(c, 3 * variables + 1));
  TF_RETURN_IF_ERROR(CheckSeedShape(c, 3 * variables + 2));
  return AllReduceShape(c);
}

absl::Status BucketTrafficShape(InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->Scalar());
  for (int i = 5; i < 7; ++i) {
    c->set_output(i, c->Vector(InferenceContext::kUnknownDim));
  }
  return absl::OkStatus();
}

#define TF_GC_ALL_REDUCE_OP(name) \
  TF_GC_EXCHANGE_OP(name).Attr("reduce_op: {'SUM', 'MEAN'} = 'SUM'")

}  // namespace

REGISTER_OP("TfGc>Bucket")
    .Attr("key: string")
    .Attr("variables: int >= 1")
    .Attr("label: string = ''")
    .Output("bucket: resource")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"(
Makes the state that the exchanges of one bucket of variables share.

It orders them, and counts what they send. It lives as long as its handle.

key: Name of the bucket, the same on all workers, and no other bucket's.
variables: Number of variables in the bucket.
label: What warnings call the bucket; its key if empty.
bucket: Handle for the exchanges of this bucket.
)");

REGISTER_OP("TfGc>BeginStep")
    .Attr("sizes: list(int) = []")
    .Attr("group_size: int >= 1 = 1")
    .Attr("measures: {'bandwidth', 'latency'} = 'bandwidth'")
    .Input("bucket: resource")
    .Input("step: int64")
    .Input("measures_links: bool")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      tensorflow::shape_inference::ShapeHandle scalar;
      for (int i = 0; i < c->num_inputs(); ++i) {
        TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 0, &scalar));
      }
      return absl::OkStatus();
    })
    .Doc(R"(
Says which step of the optimizer the next exchanges of a bucket belong to.

Messages carry it, so that workers that are not in the same step end with an
error.

bucket: Handle from Bucket.
step: A scalar, 0 before the first.
measures_links: A scalar, the same on all workers: whether the first message of
  each phase between two workers measures the link between them
  (NetworkSamples).
measures: Its bandwidth, by a few bytes that are sent just before the message, or
  its latency, by some that are asked for when the message has come. No message
  is delayed.
sizes: Of each variable the number of values that the step counts for, if it has
  exchanges and no op that counts them by itself; may be none.
group_size: Number of devices among which these are reduced.
)");

REGISTER_OP("TfGc>BucketTraffic")
    .Input("bucket: resource")
    .Output("steps: int64")
    .Output("exchanges: int64")
    .Output("bytes_sent: int64")
    .Output("bytes_received: int64")
    .Output("result_bytes_sent: int64")
    .Output("values_sent: int64")
    .Output("payload_bytes_sent: int64")
    .Output("shared_bytes_sent: int64")
    .Output("microseconds_waited: int64")
    .SetIsStateful()
    .SetShapeFn(BucketTrafficShape)
    .Doc(R"(
Reads what the exchanges of a bucket have sent since it was made.

bucket: Handle from Bucket.
steps: Number of steps in which the bucket's gradients were reduced.
exchanges: Number of exchanges, of which a step may take several.
bytes_sent: Bytes handed to the transport, headers and padding included.
bytes_received: Bytes that came from the transport.
result_bytes_sent: Of bytes_sent, those of results; the others are of
  contributions to them.
values_sent: By variable, the values sent, counted once per receiver.
payload_bytes_sent: By variable, the bytes that these values took.
shared_bytes_sent: Payload bytes that belong to all variables together.
microseconds_waited: In which exchanges waited for other workers' messages, or
  for their own to be taken.
)");

TF_GC_ALL_REDUCE_OP("TfGc>ExactAllReduce")
    .Input("gradients: T")
    .Input("bucket: resource")
    .Output("reduced: T")
    .Attr("T: list({float, half, bfloat16}) >= 1")
    .Attr("statistics: int >= 0 = 0")
    .Attr("E: list({float, half, bfloat16}) >= 0")
    .Attr("statistic_companions: int >= 0 = 0")
    .Input("companions: E")
    .Input("companions_bucket: resource")
    .Output("companions_reduced: E")
    .SetShapeFn(AllReduceShape)
    .Doc(R"(
Adds up a bucket of gradients over the workers of a group, uncompressed.

Values are added in float32, and rounded once; statistics of narrower types in a
bucket of up to 2 KiB a worker, and 64 KiB at most, at every hop of a tree. All workers get the same bits.

gradients: Gradients of the bucket's variables, of the same types and shapes
  everywhere.
bucket: Handle from Bucket.
reduced: The sums (or means), in the order, types and shapes of gradients.
group_key: Key of the group of devices that take part.
group_size: Number of devices in the group.
reduce_op: SUM, or MEAN to divide the sums by group_size.
statistics: How many gradients, the last ones, are none: they are summed for MEAN,
  too.
timeout_seconds: DeadlineExceeded after so long without the peers; 0 waits.
companions: Uncompressed gradients of a small bucket of its own, which travel in
  the same messages; may be none.
companions_bucket: Handle from Bucket of that bucket, which their traffic is
  counted for; does not count without companions.
companions_reduced: Their sums (or means).
statistic_companions: How many companions, the last ones, are no gradients: they
  are summed for MEAN, too.
)");

TF_GC_ALL_REDUCE_OP("TfGc>ThreeLcAllReduce")
    .Input("gradients: N * T")
    .Attr("rows: list(int)")
    .Attr("scale: {'max', 'mean', 'unit'} = 'max'")
    .Input("residuals: N * resource")
    .Input("units: N * float")
    .Input("statistics: N * bfloat16")
    .Input("multiplier: float")
    .Input("bucket: resource")
    .Output("reduced: N * T")
    .Attr("N: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr("E: list({float, half, bfloat16}) >= 0")
    .Attr("statistic_companions: int >= 0 = 0")
    .Input("companions: E")
    .Input("companions_bucket: resource")
    .Output("companions_reduced: E")
    .SetShapeFn(ThreeLcAllReduceShape)
    .Doc(R"(
Adds up a bucket of gradients over the workers of a group, compressed by 3LC.

Both ways are quantised: each worker's gradients on the way to the server of
their shard, and the sums on the way back. What quantisation leaves over stays
in the residuals: over the workers, gradients + old residuals = reduced + new
residuals (for MEAN, reduced times group_size). A variable whose gradient plus
residual is not finite on some worker becomes NaN on all, and keeps its
residual. All workers get the same bits.

gradients: Gradients of the bucket's variables, of the same shapes everywhere.
residuals: float32 variables of the same shapes, updated in place.
units: For each gradient the units in which it is quantised, the same on all
  workers, or [0] for none: as a matrix of so many rows, value i, j has the unit
  a_i b_j. A vector [rows + columns], a and then b, finite and above 0.
statistics: For each gradient its MeanSquares, or [0]. Of gradients in units whose
  statistics are finite only as many values are looked at as settle the scale
  "unit", which does not change the results.
multiplier: Scalar m; the same on all workers.
bucket: Handle from Bucket.
reduced: The sums (or means), in the order and with the shapes of gradients.
rows: For each gradient the number of rows; does not count without units.
scale: What is multiplied with m: the largest magnitude, 0 < m < 2, or, 0 < m < 64,
  the mean magnitude, or the unit, for sums that of root group_size; 3 times the
  mean for gradients without units.
group_key: Key of the group of devices that take part.
group_size: Number of devices in the group.
reduce_op: SUM, or MEAN to divide the sums by group_size.
timeout_seconds: DeadlineExceeded after so long without the peers; 0 waits.
companions: Uncompressed gradients of a small bucket of its own, which travel in
  the same messages; may be none.
companions_bucket: Handle from Bucket of that bucket, which their traffic is
  counted for; does not count without companions.
companions_reduced: Their sums (or means).
statistic_companions: How many companions, the last ones, are no gradients: they
  are summed for MEAN, too.
)");

TF_GC_TOPOLOGY_EXCHANGE_OP("TfGc>ThcAllReduce", "sharded")
    .Attr("reduce_op: {'SUM', 'MEAN'} = 'SUM'")
    .Input("gradients: N * T")
    .Attr("unit_rows: list(int)")
    .Attr("bits: int")
    .Attr("truncation: float")
    .Attr("nearest: bool = false")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Input("residuals: N * resource")
    .Input("units: N * float")
    .Input("table: int32")
    .Input("signs: Tseed")
    .Input("rounding: Tseed")
    .Input("bucket: resource")
    .Output("reduced: N * T")
    .Attr("N: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr("E: list({float, half, bfloat16}) >= 0")
    .Attr("statistic_companions: int >= 0 = 0")
    .Input("companions: E")
    .Input("companions_bucket: resource")
    .Output("companions_reduced: E")
    .SetShapeFn(ThcAllReduceShape)
    .Doc(R"doc(
Adds up a bucket of gradients over the workers of a group, compressed by THC (Li
et al., NSDI 2024, algorithm 3).

The bucket's values x, gradients plus residuals, one variable after the other,
are cut in blocks as by ThcBlocks, but of at most 4096 values with up to 8
workers, and 512 for each worker, rounded up to a power of two, with more. They
are quantised as by ThcQuantize with the limit
truncation l / sqrt(d) for a block of d values, l being the largest norm of the
workers' blocks. The table's values are added up over the workers without being
decoded, as by ExchangeLaneSum, and decoded once. What a worker's indices do not
stand for stays in its residuals: over the workers, gradients + old residuals =
reduced + new residuals (for MEAN, reduced times group_size). A variable whose
gradient plus residual is not finite on some worker becomes NaN on all, and keeps
its residual. All workers get the same bits.

gradients: Gradients of the bucket's variables, of the same shapes everywhere.
residuals: float32 variables of the same shapes, updated in place.
units: For each gradient the units in which it is quantised, the same on all
  workers, or [0] for none: as a matrix of so many rows, value i, j has the unit
  a_i b_j. A vector [rows + columns], a and then b, finite and above 0, each of
  which counts as at least a tenth of their root mean square.
table: A vector of 2^bits integers that ascend from 0; group_size times the last
  one is at most 65535.
signs: The key of the Philox generator of the rotation's signs, a scalar, or a
  vector of two: key and stream; the same on all workers.
rounding: The same of the rounding; another one on each worker.
bucket: Handle from Bucket.
reduced: The sums (or means), in the order and with the shapes of gradients.
unit_rows: For each gradient the number of rows; does not count without units.
bits: 2, 3, 4, 5 or 8.
truncation: How many standard deviations of a rotated value lie within the limit.
nearest: Whether values are rounded as ThcQuantize does with it.
group_key: Key of the group of devices that take part.
group_size: Number of devices in the group.
reduce_op: SUM, or MEAN to divide the sums by group_size.
topology: sharded, ring or torus; the same on all workers.
rows: Rows of the torus, which divide group_size; 1 for other topologies.
timeout_seconds: DeadlineExceeded after so long without the peers; 0 waits.
companions: Uncompressed gradients of a small bucket of its own, which travel in
  the same messages; may be none.
companions_bucket: Handle from Bucket of that bucket, which their traffic is
  counted for; does not count without companions.
companions_reduced: Their sums (or means).
statistic_companions: How many companions, the last ones, are no gradients: they
  are summed for MEAN, too.
)doc");

}  // namespace tf_gc
