// The ops of gradients that have few rows: declarations, shapes and
// documentation.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/tensorflow/inputs.h"
#include "ops/wire/rows.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {
namespace {

using ::tensorflow::PartialTensorShape;
using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// The shapes of rows of the variables in the attribute `shapes`.
absl::Status RowsOfVariables(InferenceContext* c,
                             std::vector<ShapeHandle>* rows) {
  std::vector<PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(c->GetAttr("shapes", &shapes));
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!shapes[i].IsFullyDefined() || shapes[i].dims() < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("shapes[", i, "] must be fully defined, and have rows, ",
                       "got ", shapes[i].DebugString()));
    }
    PartialTensorShape of_rows = shapes[i];
    of_rows.set_dim(0, -1);
    ShapeHandle handle;
    TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(of_rows, &handle));
    rows->push_back(handle);
  }
  return absl::OkStatus();
}

absl::Status PackRowsShape(InferenceContext* c) {
  std::vector<ShapeHandle> rows, indices, values;
  TF_RETURN_IF_ERROR(RowsOfVariables(c, &rows));
  TF_RETURN_IF_ERROR(c->input("indices", &indices));
  TF_RETURN_IF_ERROR(c->input("values", &values));
  if (rows.size() != indices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("shapes must be one for each of indices, ", indices.size(),
                     ", got ", rows.size()));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    ShapeHandle vector, merged;
    DimensionHandle count;
    TF_RETURN_IF_ERROR(c->WithRank(indices[i], 1, &vector));
    TF_RETURN_IF_ERROR(c->Merge(values[i], rows[i], &merged));
    TF_RETURN_IF_ERROR(c->Merge(c->Dim(vector, 0), c->Dim(merged, 0), &count));
  }
  TF_RETURN_IF_ERROR(CheckSeedShape(c, c->num_inputs() - 2));
  c->set_output(0, c->UnknownShapeOfRank(1));
  return absl::OkStatus();
}

absl::Status SumPackedRowsShape(InferenceContext* c) {
  ShapeHandle vector;
  for (int i = 0; i < c->num_inputs(); ++i) {
    TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 1, &vector));
  }
  std::vector<ShapeHandle> rows;
  TF_RETURN_IF_ERROR(RowsOfVariables(c, &rows));
  if (2 * static_cast<int>(rows.size()) != c->num_outputs()) {
    return absl::InvalidArgumentError(
        absl::StrCat("shapes must be one for each of values, ",
                     c->num_outputs() / 2, ", got ", rows.size()));
  }
  const std::vector<ShapeHandle> indices(rows.size(), c->UnknownShapeOfRank(1));
  TF_RETURN_IF_ERROR(c->set_output("indices", indices));
  return c->set_output("values", rows);
}

}  // namespace

REGISTER_OP("TfGc>PackRows")
    .Input("indices: N * int64")
    .Input("values: N * float")
    .Input("seed: Tseed")
    .Input("bucket: resource")
    .Output("message: uint8")
    .Attr("N: int >= 1")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Attr("shapes: list(shape) >= 1")
    .Attr("bits: int")
    .Attr("group_size: int >= 1")
    .SetIsStateful()
    .SetShapeFn(PackRowsShape)
    .Doc(R"doc(
Packs the rows that sparse gradients of a bucket's variables have.

Rows of one index are added up. Counts one step in the bucket's traffic, and by
variable the values of these rows that each worker of a group would send without
compression, 2 * size * (group_size - 1) / group_size, rounded.

indices: Vectors: the rows of each gradient.
values: The values of these rows.
seed: The key of a Philox stream, a scalar; or a vector of the key and which of
  its streams.
bucket: Handle from Bucket.
message: A vector of bytes for SumPackedRows.
shapes: The variables' shapes, fully defined.
bits: Of a value: 2, 3, 4, 5 or 8, drawn so that it is right on average, or 32.
group_size: Number of workers that will exchange the rows.
)doc");

REGISTER_OP("TfGc>SumPackedRows")
    .Input("messages: uint8")
    .Input("row_splits: int64")
    .Output("indices: N * int64")
    .Output("values: N * float")
    .Attr("N: int >= 1")
    .Attr("shapes: list(shape) >= 1")
    .SetShapeFn(SumPackedRowsShape)
    .Doc(R"doc(
Adds up what PackRows has packed, in the order of the messages.

messages: Bytes from PackRows, of the same variables, one message after the other.
row_splits: Where messages begin, and where the last one ends: as those of a
  RaggedTensor.
indices: Vectors, by variable, strictly ascending: the rows of all messages.
values: The values of these rows.
shapes: The variables' shapes, fully defined.
)doc");

}  // namespace tf_gc
