// The ops between gradients and the values of a bucket: declarations, shapes
// and documentation.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/tensorflow/inputs.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {
namespace {

using ::tensorflow::PartialTensorShape;
using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// The input `finite` has one flag per variable.
absl::Status CheckFiniteShape(InferenceContext* c, int index,
                              int64_t variables) {
  ShapeHandle vector;
  DimensionHandle dimension;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(index), 1, &vector));
  return c->WithValue(c->Dim(vector, 0), variables, &dimension);
}

// Residuals are none, or one per gradient, and what comes after the gradients
// are scalars.
absl::Status CheckFusedShapes(InferenceContext* c,
                              std::vector<ShapeHandle>* gradients) {
  std::vector<ShapeHandle> residuals;
  TF_RETURN_IF_ERROR(c->input("gradients", gradients));
  TF_RETURN_IF_ERROR(c->input("residuals", &residuals));
  if (!residuals.empty() && residuals.size() != gradients->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("residuals must be none or one per gradient, got ",
                     residuals.size(), " for ", gradients->size()));
  }
  return CheckScalarShapes(c, gradients->size(), c->num_inputs());
}

absl::Status FuseGradientsShape(InferenceContext* c) {
  std::vector<ShapeHandle> gradients;
  TF_RETURN_IF_ERROR(CheckFusedShapes(c, &gradients));
  DimensionHandle values = c->MakeDim(0);
  for (const ShapeHandle& gradient : gradients) {
    TF_RETURN_IF_ERROR(c->Add(values, c->NumElements(gradient), &values));
  }
  c->set_output(0, c->Vector(values));
  c->set_output(1, c->Vector(gradients.size()));
  return absl::OkStatus();
}

absl::Status GradientHistogramShape(InferenceContext* c) {
  std::vector<ShapeHandle> gradients;
  TF_RETURN_IF_ERROR(CheckFusedShapes(c, &gradients));
  // Nothing, where it is not wanted.
  c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
  c->set_output(1, c->Vector(InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

absl::Status StoreResidualsShape(InferenceContext* c) {
  ShapeHandle vector;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &vector));
  const int last = c->num_inputs() - 1;
  TF_RETURN_IF_ERROR(CheckScalarShapes(c, 1, last));
  return CheckFiniteShape(c, last, last - 1);
}

// Of an op whose first input has `values` values, or, with an input `indices`,
// one for each of them.
absl::Status CheckBucketShape(InferenceContext* c, int64_t values) {
  std::vector<ShapeHandle> indices;
  ShapeHandle vector;
  DimensionHandle number;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &vector));
  const bool has_indices =
      c->input("indices", &indices).ok() && !indices.empty();
  if (!has_indices) return c->WithValue(c->Dim(vector, 0), values, &number);
  ShapeHandle same;
  return c->Merge(vector, indices[0], &same);
}

// Of an op whose first input has the values of variables of `sizes`, and whose
// first output has one number for each.
absl::Status ByVariableShape(InferenceContext* c) {
  std::vector<int64_t> sizes;
  TF_RETURN_IF_ERROR(c->GetAttr("sizes", &sizes));
  if (std::any_of(sizes.begin(), sizes.end(),
                  [](int64_t n) { return n < 0; })) {
    return absl::InvalidArgumentError("sizes must be at least 0");
  }
  TF_RETURN_IF_ERROR(CheckBucketShape(
      c, std::accumulate(sizes.begin(), sizes.end(), int64_t{0})));
  c->set_output(0, c->Vector(sizes.size()));
  return absl::OkStatus();
}

absl::Status UnfuseGradientsShape(InferenceContext* c) {
  std::vector<PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(c->GetAttr("shapes", &shapes));
  if (static_cast<int>(shapes.size()) != c->num_outputs()) {
    return absl::InvalidArgumentError(
        absl::StrCat("shapes must be one per gradient, got ", shapes.size(),
                     " for ", c->num_outputs()));
  }
  int64_t values = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!shapes[i].IsFullyDefined()) {
      return absl::InvalidArgumentError(
          absl::StrCat("shapes[", i, "] must be fully defined, got ",
                       shapes[i].DebugString()));
    }
    values += shapes[i].num_elements();
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(shapes[i], &shape));
    c->set_output(i, shape);
  }
  TF_RETURN_IF_ERROR(CheckBucketShape(c, values));
  TF_RETURN_IF_ERROR(CheckFiniteShape(c, 1, shapes.size()));
  return CheckScalarShapes(c, 2, 3);
}

}  // namespace

REGISTER_OP("TfGc>FuseGradients")
    .Input("gradients: N * T")
    .Input("residuals: R * resource")
    .Input("bucket: resource")
    .Output("values: float")
    .Output("finite: bool")
    .Attr("N: int >= 1")
    .Attr("R: int >= 0")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("group_size: int >= 1")
    .SetIsStateful()
    .SetShapeFn(FuseGradientsShape)
    .Doc(R"doc(
Lays a bucket's gradients, plus residuals, one after the other.

Counts one step in the bucket's traffic, and by variable the values that each
worker of a group would send without compression: 2 * size * (group_size - 1) /
group_size, rounded.

gradients: Gradients of the bucket's variables, of any shapes.
residuals: Handles of float32 variables, one per gradient and of as many values,
  or none at all.
bucket: Handle from Bucket.
values: A vector of all gradients, each plus its residual, added in float32; 0
  for all values of a variable that has one that is not finite.
finite: A vector: by variable, whether all its values are finite.
group_size: Number of workers that will exchange the values.
)doc");

REGISTER_OP("TfGc>GradientHistogram")
    .Input("gradients: N * T")
    .Input("residuals: R * resource")
    .Input("wanted: bool")
    .Output("counts: int64")
    .Output("squares: double")
    .Attr("N: int >= 1")
    .Attr("R: int >= 0")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .SetIsStateful()
    .SetShapeFn(GradientHistogramShape)
    .Doc(R"doc(
MagnitudeHistogram of all values of gradients, plus residuals.

gradients: Tensors of any shapes, of fewer than 2^31 values together.
residuals: Handles of float32 variables, one per gradient and of as many values,
  or none at all.
wanted: Whether it is computed, a scalar. If not, the results are empty.
counts: As of MagnitudeHistogram.
squares: The same.
)doc");

REGISTER_OP("TfGc>AllFinite")
    .Input("values: float")
    .Input("indices: I * int32")
    .Output("finite: bool")
    .Attr("I: int >= 0")
    .Attr("sizes: list(int)")
    .SetShapeFn(ByVariableShape)
    .Doc(R"doc(
Says which variables have finite values alone.

values: A vector of the values of all variables, one after the other; or of some
  of them, all others being finite.
indices: Nothing; or a vector: where these values lie.
finite: A vector of one flag per variable.
sizes: The numbers of values of the variables.
)doc");

REGISTER_OP("TfGc>MeanMagnitudes")
    .Input("values: float")
    .Output("means: float")
    .Attr("sizes: list(int)")
    .SetShapeFn(ByVariableShape)
    .Doc(R"doc(
The mean of the magnitudes of each variable's values.

values: A vector of the values of all variables, one after the other.
means: A vector of one mean per variable, the same bits on any number of
  threads; 0 for a variable without values.
sizes: The numbers of values of the variables.
)doc");

REGISTER_OP("TfGc>StoreResiduals")
    .Input("residual: float")
    .Input("residuals: N * resource")
    .Input("finite: bool")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn(StoreResidualsShape)
    .Doc(R"doc(
Assigns a bucket's residuals to their variables.

A variable keeps its values where `finite` is false, and any value whose new one
is not finite.

residual: A vector of the new values of all variables, one after the other.
residuals: Handles of different float32 variables.
finite: A vector of one flag per variable, from FuseGradients.
)doc");

REGISTER_OP("TfGc>UnfuseGradients")
    .Input("total: float")
    .Input("finite: bool")
    .Input("divisor: float")
    .Input("indices: I * int32")
    .Output("gradients: N * T")
    .Attr("N: int >= 1")
    .Attr("I: int >= 0")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("shapes: list(shape) >= 1")
    .SetShapeFn(UnfuseGradientsShape)
    .Doc(R"doc(
Cuts up what FuseGradients has laid one after the other.

total: A vector of the values of all gradients, one after the other; or of some
  of them, all others being 0.
finite: A vector of one flag per gradient.
divisor: What the values are divided by, a positive scalar.
indices: Nothing; or a vector: where these values lie, each elsewhere.
gradients: The quotients, divided in float32 and rounded once; NaN for all
  values of a gradient that is not finite.
shapes: The shapes of the gradients, fully defined.
)doc");

}  // namespace tf_gc
