// The ops of ternary quantisation with a given scale: declarations, shapes and
// documentation.

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/ternary.h"
#include "ops/tensorflow/inputs.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc {
namespace {

using ::tensorflow::Tensor;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status TernaryQuantizeShape(InferenceContext* c) {
  ShapeHandle scalar;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 0, &scalar));
  const Tensor* const scale = c->input_tensor(1);
  if (scale != nullptr && !kernels::IsTernaryScale(scale->scalar<float>()())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scale must be finite and at least 0, got ", scale->scalar<float>()()));
  }
  c->set_output(0, c->input(0));
  return absl::OkStatus();
}

absl::Status StochasticTernaryQuantizeShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckSeedShape(c, 2));
  return TernaryQuantizeShape(c);
}

}  // namespace

REGISTER_OP("TfGc>TernaryQuantize")
    .Input("values: T")
    .Input("scale: float")
    .Output("ternary: int8")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .SetShapeFn(TernaryQuantizeShape)
    .Doc(R"doc(
Quantises values to the nearest of -scale, 0 and scale (3LC, section 3.1).

values: Values of any shape.
scale: A scalar, finite and at least 0.
ternary: The sign of a value where 2 |value| > scale, else 0; 0 for NaN, and
  with the scale 0. Of the shape of values.
)doc");

REGISTER_OP("TfGc>StochasticTernaryQuantize")
    .Input("values: T")
    .Input("scale: float")
    .Input("seed: Tseed")
    .Output("ternary: int8")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .SetShapeFn(StochasticTernaryQuantizeShape)
    .Doc(R"doc(
Quantises values to -scale, 0 or scale at random, without bias.

values: Values of any shape.
scale: A scalar, finite and at least 0.
seed: The key of the Philox generator, a scalar, or a vector of two: key and
  stream.
ternary: The sign of a value with the probability min(|value| / scale, 1), else
  0; 0 for NaN, and with the scale 0. Of the shape of values.
)doc");

}  // namespace tf_gc
