// The Hadamard transforms' ops: declarations, shapes and documentation.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/hadamard.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status HadamardShape(InferenceContext* c) {
  ShapeHandle values;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(0), 1, &values));
  if (c->RankKnown(values)) {
    const DimensionHandle size = c->Dim(values, -1);
    if (c->ValueKnown(size) && !kernels::IsHadamardSize(c->Value(size))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "values must have a power of two as the size of the last axis, got "
          "shape ",
          c->DebugString(values)));
    }
  }
  c->set_output(0, values);
  return absl::OkStatus();
}

absl::Status RandomizedHadamardShape(InferenceContext* c) {
  ShapeHandle seed;
  TF_RETURN_IF_ERROR(c->WithRankAtMost(c->input(1), 1, &seed));
  if (c->RankKnown(seed) && c->Rank(seed) == 1) {
    const DimensionHandle size = c->Dim(seed, 0);
    if (c->ValueKnown(size) && c->Value(size) != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("seed must be a scalar or a vector of two, got shape ",
                       c->DebugString(seed)));
    }
  }
  return HadamardShape(c);
}

}  // namespace

REGISTER_OP("TfGc>Hadamard")
    .Input("values: T")
    .Output("transformed: T")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .SetShapeFn(HadamardShape)
    .Doc(R"doc(
Computes the orthonormal Walsh-Hadamard transform of the last axis.

values: Values of at least one dimension, the last a power of two.
transformed: The transformed values, computed in float32.
)doc");

REGISTER_OP("TfGc>RandomizedHadamard")
    .Input("values: T")
    .Input("seed: Tseed")
    .Output("transformed: T")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .SetShapeFn(RandomizedHadamardShape)
    .Doc(R"doc(
Changes random signs, then computes the Walsh-Hadamard transform.

values: Values of at least one dimension, the last a power of two.
seed: The key of the random signs, a scalar, or key and stream, a vector of two.
transformed: The transformed values, computed in float32.
)doc");

REGISTER_OP("TfGc>InverseRandomizedHadamard")
    .Input("values: T")
    .Input("seed: Tseed")
    .Output("transformed: T")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .SetShapeFn(RandomizedHadamardShape)
    .Doc(R"doc(
Computes the Walsh-Hadamard transform, then changes random signs.

values: Values of at least one dimension, the last a power of two.
seed: The seed that RandomizedHadamard got.
transformed: What RandomizedHadamard was given, up to rounding.
)doc");

}  // namespace tf_gc
