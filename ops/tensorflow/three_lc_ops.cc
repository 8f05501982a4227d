// 3LC's ops: declarations, shapes and documentation.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/three_lc_tensor.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc {
namespace {

using ::tensorflow::Tensor;
using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// The number of quartic bytes that stand for the values of `shape`.
absl::Status QuarticDim(InferenceContext* c, ShapeHandle shape,
                        DimensionHandle* bytes) {
  DimensionHandle padded;
  TF_RETURN_IF_ERROR(c->Add(c->NumElements(shape), 4, &padded));
  return c->Divide(padded, 5, /*evenly_divisible=*/false, bytes);
}

absl::Status QuarticEncodeShape(InferenceContext* c) {
  DimensionHandle bytes;
  TF_RETURN_IF_ERROR(QuarticDim(c, c->input(0), &bytes));
  c->set_output(0, c->Vector(bytes));
  return absl::OkStatus();
}

absl::Status QuarticDecodeShape(InferenceContext* c) {
  ShapeHandle encoded, shape;
  DimensionHandle bytes;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &encoded));
  TF_RETURN_IF_ERROR(c->MakeShapeFromShapeTensor(1, &shape));
  TF_RETURN_IF_ERROR(QuarticDim(c, shape, &bytes));
  const DimensionHandle size = c->Dim(encoded, 0);
  if (c->ValueKnown(size) && c->ValueKnown(bytes) &&
      c->Value(size) != c->Value(bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("encoded must have ", c->Value(bytes), " bytes for shape ",
                     c->DebugString(shape), ", got ", c->Value(size)));
  }
  c->set_output(0, shape);
  return absl::OkStatus();
}

absl::Status ZeroRunEncodeShape(InferenceContext* c) {
  ShapeHandle quartic;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &quartic));
  c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

absl::Status ZeroRunDecodeShape(InferenceContext* c) {
  ShapeHandle encoded, scalar;
  DimensionHandle size;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &encoded));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 0, &scalar));
  TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(1, &size));
  c->set_output(0, c->Vector(size));
  return absl::OkStatus();
}

absl::Status ThreeLcEncodeShape(InferenceContext* c) {
  ShapeHandle values, scalar;
  TF_RETURN_IF_ERROR(c->Merge(c->input(0), c->input(1), &values));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 0, &scalar));
  const Tensor* multiplier = c->input_tensor(2);
  if (multiplier != nullptr &&
      !kernels::IsSparsityMultiplier(multiplier->scalar<float>()())) {
    return absl::InvalidArgumentError(
        absl::StrCat("sparsity_multiplier must be above 0 and less than 2, "
                     "got ",
                     multiplier->scalar<float>()()));
  }
  c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
  c->set_output(1, values);
  return absl::OkStatus();
}

absl::Status ThreeLcDecodeShape(InferenceContext* c) {
  ShapeHandle encoded, shape;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &encoded));
  TF_RETURN_IF_ERROR(c->MakeShapeFromShapeTensor(1, &shape));
  const DimensionHandle size = c->Dim(encoded, 0);
  if (c->ValueKnown(size) && c->Value(size) < kernels::kThreeLcScaleSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("encoded must have at least ", kernels::kThreeLcScaleSize,
                     " bytes, got ", c->Value(size)));
  }
  c->set_output(0, shape);
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("TfGc>QuarticEncode")
    .Input("ternary: int8")
    .Output("quartic: uint8")
    .SetShapeFn(QuarticEncodeShape)
    .Doc(R"doc(
Packs five values of {-1, 0, 1} in one byte (3LC, section 3.2).

ternary: Values -1, 0 and 1, of any shape, n in all.
quartic: The ceil(n / 5) bytes, each in 0 ... 242.
)doc");

REGISTER_OP("TfGc>QuarticDecode")
    .Input("encoded: uint8")
    .Input("shape: Tshape")
    .Output("ternary: int8")
    .Attr("Tshape: {int32, int64} = DT_INT64")
    .SetShapeFn(QuarticDecodeShape)
    .Doc(R"doc(
Unpacks what QuarticEncode has packed.

encoded: The ceil(n / 5) bytes for n values, each in 0 ... 242.
shape: The shape of the values, a vector of dimensions.
ternary: The n values -1, 0 and 1.
)doc");

REGISTER_OP("TfGc>ZeroRunEncode")
    .Input("quartic: uint8")
    .Output("encoded: uint8")
    .SetShapeFn(ZeroRunEncodeShape)
    .Doc(R"doc(
Shortens runs of the quartic byte 121, five zeros (3LC, section 3.3).

quartic: A vector of m bytes, each in 0 ... 242.
encoded: The encoding, at most m bytes; 243 ... 255 are runs of 2 ... 14.
)doc");

REGISTER_OP("TfGc>ZeroRunDecode")
    .Input("encoded: uint8")
    .Input("size: Tsize")
    .Output("quartic: uint8")
    .Attr("Tsize: {int32, int64} = DT_INT64")
    .SetShapeFn(ZeroRunDecodeShape)
    .Doc(R"doc(
Restores what ZeroRunEncode has shortened.

encoded: A vector of bytes that stand for exactly `size` quartic bytes.
size: The number of quartic bytes, a scalar.
quartic: The quartic bytes.
)doc");

REGISTER_OP("TfGc>ThreeLcEncode")
    .Input("values: T")
    .Input("residual: float")
    .Input("sparsity_multiplier: float")
    .Output("encoded: uint8")
    .Output("new_residual: float")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .SetShapeFn(ThreeLcEncodeShape)
    .Doc(R"doc(
Encodes values + residual with 3LC (section 3), and keeps what was not sent.

values: The values of this step, of any shape.
residual: What earlier steps did not send, of the same shape.
sparsity_multiplier: A scalar s, 0 < s < 2; the greater, the fewer bytes.
encoded: The scale, a little-endian float32, and the payload; the scale NaN and
  no payload if some value + residual is not finite.
new_residual: What this step did not send; the old residual if there is no
  payload.
)doc");

REGISTER_OP("TfGc>ThreeLcDecode")
    .Input("encoded: uint8")
    .Input("shape: Tshape")
    .Output("values: float")
    .Attr("Tshape: {int32, int64} = DT_INT64")
    .SetShapeFn(ThreeLcDecodeShape)
    .Doc(R"doc(
Decodes what ThreeLcEncode has encoded.

encoded: A vector of bytes: the scale and the payload.
shape: The shape of the values, a vector of dimensions.
values: Each the scale, minus the scale, or 0; all NaN if the scale is.
)doc");

}  // namespace tf_gc
