// Second moments from those of rows and columns: declarations, shapes and
// documentation.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {
namespace {

using ::tensorflow::PartialTensorShape;
using ::tensorflow::Tensor;
using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// The attribute `rows`: `expected` numbers, all at least 1.
absl::Status GetRows(InferenceContext* c, int64_t expected,
                     std::vector<int64_t>* rows) {
  TF_RETURN_IF_ERROR(c->GetAttr("rows", rows));
  if (static_cast<int64_t>(rows->size()) != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rows must be ", expected, " numbers, got ", rows->size()));
  }
  for (const int64_t count : *rows) {
    if (count < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("rows must be at least 1, got ", count));
    }
  }
  return absl::OkStatus();
}

// The number of statistics of a matrix of `size` values.
absl::Status CountStatistics(int64_t size, int64_t rows, int64_t* count) {
  if (size < 1 || size % rows != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows must divide a number of values that is not 0, got ",
                     rows, " for ", size));
  }
  *count = rows + size / rows;
  return absl::OkStatus();
}

absl::Status MeanSquaresShape(InferenceContext* c) {
  const int gradients = c->num_inputs() - 1;
  std::vector<int64_t> rows;
  TF_RETURN_IF_ERROR(GetRows(c, gradients, &rows));
  ShapeHandle scalar;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(gradients), 0, &scalar));
  const Tensor* wanted = c->input_tensor(gradients);
  int64_t total = wanted ? 0 : InferenceContext::kUnknownDim;
  for (int i = 0; i < gradients; ++i) {
    const int64_t size = c->Value(c->NumElements(c->input(i)));
    if (size == InferenceContext::kUnknownDim) {
      total = InferenceContext::kUnknownDim;
      continue;
    }
    int64_t count;
    TF_RETURN_IF_ERROR(CountStatistics(size, rows[i], &count));
    if (total >= 0) total += count;
  }
  if (wanted && !wanted->scalar<bool>()()) total = 0;
  c->set_output(0, c->Vector(total));
  return absl::OkStatus();
}

absl::Status UpdateSecondMomentsShape(InferenceContext* c) {
  int slots;
  std::vector<bool> corrected;
  TF_RETURN_IF_ERROR(c->GetAttr("N", &slots));
  TF_RETURN_IF_ERROR(c->GetAttr("corrected", &corrected));
  if (static_cast<int>(corrected.size()) != slots) {
    return absl::InvalidArgumentError(
        absl::StrCat("corrected must be one per slot, got ", corrected.size(),
                     " for ", slots));
  }
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &shape));
  for (int i = 1; i < c->num_inputs(); ++i) {
    TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 0, &shape));
  }
  return absl::OkStatus();
}

absl::Status SecondMomentUnitsShape(InferenceContext* c) {
  std::vector<int64_t> rows;
  TF_RETURN_IF_ERROR(GetRows(c, c->num_inputs(), &rows));
  for (int i = 0; i < c->num_inputs(); ++i) {
    ShapeHandle scalar;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 0, &scalar));
    c->set_output(i, c->Vector(InferenceContext::kUnknownDim));
  }
  return absl::OkStatus();
}

absl::Status SecondMomentsShape(InferenceContext* c) {
  std::vector<PartialTensorShape> shapes;
  std::vector<int64_t> rows;
  TF_RETURN_IF_ERROR(c->GetAttr("shapes", &shapes));
  if (static_cast<int>(shapes.size()) != c->num_outputs()) {
    return absl::InvalidArgumentError(
        absl::StrCat("shapes must be one per second moment, got ",
                     shapes.size(), " for ", c->num_outputs()));
  }
  TF_RETURN_IF_ERROR(GetRows(c, shapes.size(), &rows));
  int64_t total = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!shapes[i].IsFullyDefined()) {
      return absl::InvalidArgumentError(
          absl::StrCat("shapes[", i, "] must be fully defined, got ",
                       shapes[i].DebugString()));
    }
    int64_t count;
    TF_RETURN_IF_ERROR(
        CountStatistics(shapes[i].num_elements(), rows[i], &count));
    total += count;
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(shapes[i], &shape));
    c->set_output(i, shape);
  }
  ShapeHandle vector, scalar;
  DimensionHandle dimension;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &vector));
  TF_RETURN_IF_ERROR(c->WithValue(c->Dim(vector, 0), total, &dimension));
  return c->WithRank(c->input(1), 0, &scalar);
}

absl::Status SpreadUnitsShape(InferenceContext* c) {
  std::vector<int64_t> rows, sizes;
  TF_RETURN_IF_ERROR(c->GetAttr("sizes", &sizes));
  if (static_cast<int>(sizes.size()) != c->num_inputs()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sizes must be ", c->num_inputs(), " numbers, got ", sizes.size()));
  }
  TF_RETURN_IF_ERROR(GetRows(c, sizes.size(), &rows));
  int64_t total = 0;
  for (int i = 0; i < c->num_inputs(); ++i) {
    ShapeHandle vector;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 1, &vector));
    total += sizes[i];
  }
  c->set_output(0, c->Vector(total));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("TfGc>MeanSquares")
    .Input("gradients: T")
    .Input("wanted: bool")
    .Output("statistics: bfloat16")
    .Attr("T: list({float, half, bfloat16}) >= 1")
    .Attr("rows: list(int) >= 1")
    .SetShapeFn(MeanSquaresShape)
    .Doc(R"doc(
Computes the means of the squares of the rows and columns of matrices.

gradients: Tensors of any shapes, each taken as a matrix.
wanted: A scalar. If false, nothing is computed, and the vector is empty.
statistics: A vector: of each gradient first the means of its rows, then those of
  its columns, in float32, rounded once.
rows: The number of rows of each gradient's matrix.
)doc");

REGISTER_OP("TfGc>UpdateSecondMoments")
    .Input("statistics: bfloat16")
    .Input("slots: N * resource")
    .Input("scale: float")
    .Input("decay: float")
    .Input("age: int64")
    .Attr("N: int >= 1")
    .Attr("corrected: list(bool)")
    .SetIsStateful()
    .SetShapeFn(UpdateSecondMomentsShape)
    .Doc(R"doc(
Lets slots follow statistics.

w <- decay^age w + (1 - decay), slot <- slot + (1 - decay) / w (scale * statistics - slot),
where w, the slot's last value, is the weight of what is in the others. A slot stays
as it is where one of its statistics is not finite, and all do if there are none.

statistics: A vector of what MeanSquares gives, or of sums of it over workers.
slots: Handles of different float32 variables, zero at first, which have a value
  for each of their statistics and one more.
scale: What the statistics are multiplied with, a scalar: 1 over the number of
  workers for sums.
decay: A scalar in 0 ... 1.
age: How many steps ago the slots followed others, a scalar, 1 or more.
corrected: Of each slot, whether the means are corrected for their bias. If not, w
  begins at 1: the first statistics count for all that there were before.
)doc");

REGISTER_OP("TfGc>SecondMomentUnits")
    .Input("slots: N * resource")
    .Output("units: N * float")
    .Attr("N: int >= 1")
    .Attr("rows: list(int) >= 1")
    .SetIsStateful()
    .SetShapeFn(SecondMomentUnitsShape)
    .Doc(R"doc(
Computes the units in which the values of matrices are compared.

slots: Handles of float32 variables, which UpdateSecondMoments writes.
units: By slot a vector of the factors of the matrix' rows, and then of those of
  its columns; the unit of a value is the product of its row's and its column's.
rows: The number of rows of each matrix.
)doc");

REGISTER_OP("TfGc>SecondMoments")
    .Input("statistics: bfloat16")
    .Input("factor: float")
    .Output("second_moments: N * float")
    .Attr("N: int >= 1")
    .Attr("rows: list(int) >= 1")
    .Attr("shapes: list(shape) >= 1")
    .SetShapeFn(SecondMomentsShape)
    .Doc(R"doc(
Computes the second moments of values from those of their rows and columns.

statistics: A vector of what MeanSquares gives, or of sums of it over workers.
factor: What the second moments are multiplied with, a scalar.
second_moments: factor * row * column / mean of all rows; NaN for all values of a
  matrix one of whose statistics is not finite, and 0 where all are 0.
rows: The number of rows of each matrix.
shapes: The shapes of the second moments, fully defined.
)doc");

REGISTER_OP("TfGc>SpreadUnits")
    .Input("units: N * float")
    .Output("spread: float")
    .Attr("N: int >= 1")
    .Attr("rows: list(int) >= 1")
    .Attr("sizes: list(int) >= 1")
    .SetShapeFn(SpreadUnitsShape)
    .Doc(R"doc(
Lays the units of the values of all variables of a bucket one after the other.

units: By variable what SecondMomentUnits gives, or an empty vector for a variable
  whose units are all 1.
spread: A vector of one unit for each value.
rows: The number of rows of each variable's matrix.
sizes: The number of values of each variable.
)doc");

}  // namespace tf_gc
