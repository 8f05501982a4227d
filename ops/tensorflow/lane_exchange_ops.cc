// The sum of quantised values over the workers: declaration, shape and
// documentation.

#include "absl/status/status.h"
#include "ops/tensorflow/exchange_declaration.h"
#include "ops/tensorflow/quantization_inputs.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status ExchangeLaneSumShape(InferenceContext* c) {
  int bits;
  ShapeHandle table, scalar;
  DimensionHandle entries, size;
  TF_RETURN_IF_ERROR(GetBits(c, &bits));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &table));
  TF_RETURN_IF_ERROR(c->WithValue(c->Dim(table, 0), 1 << bits, &entries));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 0, &scalar));
  TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(2, &size));
  TF_RETURN_IF_ERROR(CheckPackedShape(c, c->input(0), size, bits));
  c->set_output(0, c->Vector(size));
  return absl::OkStatus();
}

}  // namespace

TF_GC_TOPOLOGY_EXCHANGE_OP("TfGc>ExchangeLaneSum", "sharded")
    .Attr("bits: int")
    .Attr("lanes: {uint8, uint16}")
    .Attr("Tsize: {int32, int64} = DT_INT64")
    .Input("packed: uint8")
    .Input("table: int32")
    .Input("size: Tsize")
    .Input("bucket: resource")
    .Output("sums: lanes")
    .SetShapeFn(ExchangeLaneSumShape)
    .Doc(R"doc(
Adds up table values of packed indices over the workers of a group (THC, section
4.3), in integers and without decoding.

A worker's own values travel as packed indices, sums of several as lanes. All
workers get the same sums, whatever the topology.

packed: A vector of the ceil(size bits / 8) bytes that PackBits gives.
table: A vector of 2^bits values, not negative and the same on all workers;
  group_size times the largest must fit in the lanes.
size: The number of values, a scalar; the same on all workers.
bucket: Handle from Bucket.
sums: A vector: for each value, the sum of table[index] over the workers.
bits: 2, 3, 4, 5 or 8.
lanes: The type of the sums.
group_key: Key of the group of devices that take part.
group_size: Number of devices in the group.
topology: sharded, ring or torus; the same on all workers.
rows: Rows of the torus, which divide group_size; 1 for other topologies.
timeout_seconds: DeadlineExceeded after so long without the peers; 0 waits.
)doc");

}  // namespace tf_gc
