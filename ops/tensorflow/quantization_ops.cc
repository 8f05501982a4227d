// The ops of quantisation: declarations, shapes and documentation.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/stochastic_quantize.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/quantization_inputs.h"
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

absl::Status StochasticQuantizeShape(InferenceContext* c) {
  ShapeHandle levels;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &levels));
  const DimensionHandle count = c->Dim(levels, 0);
  if (c->ValueKnown(count) && (c->Value(count) < kernels::kMinLevels ||
                               c->Value(count) > kernels::kMaxLevels)) {
    return absl::InvalidArgumentError(
        absl::StrCat("levels must be ", kernels::kMinLevels, " to ",
                     kernels::kMaxLevels, ", got ", c->Value(count)));
  }
  const Tensor* known_levels = c->input_tensor(1);
  if (known_levels != nullptr) TF_RETURN_IF_ERROR(CheckLevels(*known_levels));
  TF_RETURN_IF_ERROR(CheckSeedShape(c, 2));
  c->set_output(0, c->input(0));
  return absl::OkStatus();
}

absl::Status PackBitsShape(InferenceContext* c) {
  int bits;
  TF_RETURN_IF_ERROR(GetBits(c, &bits));
  c->set_output(0, PackedShape(c, c->NumElements(c->input(0)), bits));
  return absl::OkStatus();
}

absl::Status UnpackBitsShape(InferenceContext* c) {
  int bits;
  ShapeHandle scalar;
  DimensionHandle size;
  TF_RETURN_IF_ERROR(GetBits(c, &bits));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 0, &scalar));
  TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(1, &size));
  TF_RETURN_IF_ERROR(CheckPackedShape(c, c->input(0), size, bits));
  c->set_output(0, c->Vector(size));
  return absl::OkStatus();
}

absl::Status TableSumShape(InferenceContext* c) {
  int bits;
  ShapeHandle table;
  DimensionHandle entries;
  TF_RETURN_IF_ERROR(GetBits(c, &bits));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &table));
  TF_RETURN_IF_ERROR(c->WithValue(c->Dim(table, 0), 1 << bits, &entries));
  TF_RETURN_IF_ERROR(
      CheckPackedShape(c, c->input(0), c->NumElements(c->input(2)), bits));
  c->set_output(0, c->input(2));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("TfGc>StochasticQuantize")
    .Input("values: T")
    .Input("levels: float")
    .Input("seed: Tseed")
    .Output("indices: uint8")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .SetShapeFn(StochasticQuantizeShape)
    .Doc(R"doc(
Rounds each value to one of the two levels around it, at random, so that the
level is the value on average (THC, sections 4.1 and 4.3).

values: Values of any shape; those outside of the levels are clamped, and NaN
  becomes the first level.
levels: A vector of 2 to 256 levels, finite and ascending.
seed: The key of a Philox stream, a scalar; or a vector of the key and which of
  its streams.
indices: The level of each value, of the shape of the values.
)doc");

REGISTER_OP("TfGc>PackBits")
    .Input("indices: uint8")
    .Output("packed: uint8")
    .Attr("bits: int")
    .SetShapeFn(PackBitsShape)
    .Doc(R"doc(
Packs indices of a few bits, in a little-endian bit string.

indices: Indices less than 2^bits, of any shape, n in all.
packed: The ceil(n bits / 8) bytes; the last is padded with zeros.
bits: 2, 3, 4, 5 or 8.
)doc");

REGISTER_OP("TfGc>UnpackBits")
    .Input("packed: uint8")
    .Input("size: Tsize")
    .Output("indices: uint8")
    .Attr("bits: int")
    .Attr("Tsize: {int32, int64} = DT_INT64")
    .SetShapeFn(UnpackBitsShape)
    .Doc(R"doc(
Unpacks what PackBits has packed.

packed: A vector of the ceil(size bits / 8) bytes.
size: The number of indices, a scalar.
indices: The indices, a vector.
bits: 2, 3, 4, 5 or 8.
)doc");

REGISTER_OP("TfGc>TableSum")
    .Input("packed: uint8")
    .Input("table: int32")
    .Input("accumulator: T")
    .Output("sums: T")
    .Attr("bits: int")
    .Attr("T: {uint8, uint16}")
    .SetShapeFn(TableSumShape)
    .Doc(R"doc(
Adds table values of packed indices to sums, without decoding (THC, section 4.3).

packed: A vector of the ceil(n bits / 8) bytes that PackBits gives.
table: A vector of 2^bits values that fit in the accumulator's type.
accumulator: The n sums so far, of any shape.
sums: The new sums, modulo 2^8 or 2^16, of the same shape.
bits: 2, 3, 4, 5 or 8.
)doc");

}  // namespace tf_gc
