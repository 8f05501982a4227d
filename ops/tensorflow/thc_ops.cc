// THC's quantiser: declarations, shapes and documentation.

#include <cstdint>

#include "absl/status/status.h"
#include "ops/kernels/thc.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/quantization_inputs.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status ThcBlocksShape(InferenceContext* c) {
  ShapeHandle values;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &values));
  const DimensionHandle n = c->Dim(values, 0);
  if (!c->ValueKnown(n)) {
    c->set_output(0, c->UnknownShapeOfRank(2));
    return absl::OkStatus();
  }
  const kernels::ThcBlocks blocks(c->Value(n));
  c->set_output(0, c->Matrix(blocks.count, blocks.size));
  return absl::OkStatus();
}

// Of `limits`, and of `table` for the attribute `bits`.
absl::Status CheckLimitsAndTable(InferenceContext* c, int limits, int table) {
  int bits;
  ShapeHandle vector;
  DimensionHandle entries;
  TF_RETURN_IF_ERROR(GetBits(c, &bits));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(limits), 1, &vector));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(table), 1, &vector));
  return c->WithValue(c->Dim(vector, 0), 1 << bits, &entries);
}

absl::Status ThcQuantizeShape(InferenceContext* c) {
  int bits;
  ShapeHandle blocks;
  TF_RETURN_IF_ERROR(CheckLimitsAndTable(c, 1, 2));
  TF_RETURN_IF_ERROR(CheckSeedShape(c, 3));
  TF_RETURN_IF_ERROR(CheckSeedShape(c, 4));
  TF_RETURN_IF_ERROR(GetBits(c, &bits));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &blocks));
  c->set_output(0, PackedShape(c, c->NumElements(blocks), bits));
  return absl::OkStatus();
}

// A vector of as many values as the scalar input `size` says.
absl::Status SetDecodedShape(InferenceContext* c, int size) {
  ShapeHandle scalar;
  DimensionHandle n;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(size), 0, &scalar));
  TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(size, &n));
  c->set_output(0, c->Vector(n));
  return absl::OkStatus();
}

absl::Status ThcDecodeShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckLimitsAndTable(c, 1, 2));
  TF_RETURN_IF_ERROR(CheckSeedShape(c, 3));
  return SetDecodedShape(c, 4);
}

absl::Status ThcDecodeSumsShape(InferenceContext* c) {
  ShapeHandle vector;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &vector));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &vector));
  TF_RETURN_IF_ERROR(CheckSeedShape(c, 2));
  return SetDecodedShape(c, 3);
}

}  // namespace

REGISTER_OP("TfGc>ThcBlocks")
    .Input("values: float")
    .Output("blocks: float")
    .SetShapeFn(ThcBlocksShape)
    .Doc(R"doc(
Cuts a vector in the blocks that THC transforms.

values: A vector of n values.
blocks: A matrix with a block in each row, the last one padded with zeros: the
  largest, 2^6 to 2^16 values, that need less than one part in 128 of padding,
  or else the smallest.
)doc");

REGISTER_OP("TfGc>ThcQuantize")
    .Attr("bits: int")
    .Attr("nearest: bool = false")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Input("blocks: float")
    .Input("limits: float")
    .Input("table: int32")
    .Input("signs: Tseed")
    .Input("rounding: Tseed")
    .Output("packed: uint8")
    .SetShapeFn(ThcQuantizeShape)
    .Doc(R"doc(
Rotates blocks and rounds them to indices of THC's table (Li et al., NSDI 2024,
algorithm 3).

A rotated value, clamped to [-limit, limit], becomes one of the two values
limit (2 table[z] / granularity - 1) around it, at random, so that it is the
value on average, or the nearest one; the granularity is the table's last entry.

blocks: A matrix with a block in each row, as ThcBlocks gives them.
limits: A vector, one for each block; where it is 0 all values count as 0.
table: A vector of 2^bits integers that ascend from 0, at most 65535.
signs: The key of the Philox generator of the rotation's signs, a scalar, or a
  vector of two: key and stream.
rounding: The same of the rounding.
packed: A vector, the packed indices z of all values as PackBits gives them.
bits: 2, 3, 4, 5 or 8.
nearest: Whether a value becomes the nearest one, and of two the lower one;
  `rounding` is not used then.
)doc");

REGISTER_OP("TfGc>ThcDecode")
    .Attr("bits: int")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Attr("Tsize: {int32, int64} = DT_INT64")
    .Input("packed: uint8")
    .Input("limits: float")
    .Input("table: int32")
    .Input("signs: Tseed")
    .Input("size: Tsize")
    .Output("values: float")
    .SetShapeFn(ThcDecodeShape)
    .Doc(R"doc(
Gives the values that ThcQuantize's indices stand for.

packed: What ThcQuantize gives for the blocks of a vector.
limits: What ThcQuantize got.
table: What ThcQuantize got.
signs: What ThcQuantize got.
size: How many values the vector has, a scalar.
values: A vector of so many values.
bits: 2, 3, 4, 5 or 8.
)doc");

REGISTER_OP("TfGc>ThcDecodeSums")
    .Attr("granularity: int >= 1")
    .Attr("workers: int >= 1")
    .Attr("T: {uint8, uint16}")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Attr("Tsize: {int32, int64} = DT_INT64")
    .Input("sums: T")
    .Input("limits: float")
    .Input("signs: Tseed")
    .Input("size: Tsize")
    .Output("values: float")
    .SetShapeFn(ThcDecodeSumsShape)
    .Doc(R"doc(
Gives the sum over the workers of the values that their indices stand for.

sums: A vector, for each value of all blocks the sum of table[z] over the
  workers.
limits: What ThcQuantize got on all workers.
signs: What ThcQuantize got on all workers.
size: How many values the vector has, a scalar.
values: A vector of so many values.
granularity: The table's last entry.
workers: How many workers' indices were summed up.
)doc");

}  // namespace tf_gc
