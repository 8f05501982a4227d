// Selection and the packing of indices: declarations, shapes and documentation.

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/chunk_argmax.h"
#include "ops/kernels/index_packing.h"
#include "ops/kernels/magnitude_histogram.h"
#include "ops/kernels/selected_sum.h"
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

constexpr int64_t kUnknown = InferenceContext::kUnknownDim;

// The length of a vector, or kUnknown.
absl::Status VectorLength(InferenceContext* c, int input, int64_t* length) {
  ShapeHandle vector;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(input), 1, &vector));
  *length = c->Value(c->Dim(vector, 0));
  return absl::OkStatus();
}

// An integer scalar where it is a constant, or kUnknown.
absl::Status ConstantInput(InferenceContext* c, int input, const char* name,
                           int64_t smallest, int64_t largest, int64_t* value) {
  ShapeHandle scalar;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(input), 0, &scalar));
  const Tensor* tensor = c->input_tensor(input);
  *value = kUnknown;
  if (tensor == nullptr) return absl::OkStatus();
  *value = tensor->dtype() == tensorflow::DT_INT32
               ? tensor->scalar<int32_t>()()
               : tensor->scalar<int64_t>()();
  if (*value >= smallest && *value <= largest) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, " must be in ", smallest, " ... ", largest, ", got ", *value));
}

// What bounds another input: the value, or where it is not known the most that
// it may be.
int64_t AtMost(int64_t value) {
  return value == kUnknown ? kernels::kMaxPackedSize : value;
}

absl::Status TopKIndicesShape(InferenceContext* c) {
  int64_t n, k;
  TF_RETURN_IF_ERROR(VectorLength(c, 0, &n));
  TF_RETURN_IF_ERROR(ConstantInput(c, 1, "k", 0, AtMost(n), &k));
  c->set_output(0, c->Vector(k));
  return absl::OkStatus();
}

absl::Status ChunkArgmaxShape(InferenceContext* c) {
  int64_t n, chunk;
  TF_RETURN_IF_ERROR(VectorLength(c, 0, &n));
  TF_RETURN_IF_ERROR(ConstantInput(c, 1, "chunk", 1, INT64_MAX, &chunk));
  const bool is_known = n != kUnknown && chunk != kUnknown;
  c->set_output(0,
                c->Vector(is_known ? kernels::NumChunks(n, chunk) : kUnknown));
  return absl::OkStatus();
}

absl::Status MagnitudeHistogramShape(InferenceContext* c) {
  int64_t n;
  TF_RETURN_IF_ERROR(VectorLength(c, 0, &n));
  c->set_output(0, c->Vector(kernels::kMagnitudeBins));
  c->set_output(1, c->Vector(kernels::kMagnitudeBins));
  return absl::OkStatus();
}

// The number of bytes of k indices below `size`, or kUnknown.
int64_t PackedSize(int64_t k, int64_t size) {
  const bool is_known = k != kUnknown && size != kUnknown;
  return is_known ? kernels::PackedIndicesSize(k, size) : kUnknown;
}

absl::Status PackIndicesShape(InferenceContext* c) {
  int64_t k, size;
  TF_RETURN_IF_ERROR(VectorLength(c, 0, &k));
  // At least k, if that is known.
  TF_RETURN_IF_ERROR(ConstantInput(c, 1, "size", std::max<int64_t>(k, 0),
                                   kernels::kMaxPackedSize, &size));
  c->set_output(0, c->Vector(PackedSize(k, size)));
  return absl::OkStatus();
}

// The inputs `count` and `size` of the ops that unpack indices.
absl::Status ConstantCounts(InferenceContext* c, int64_t* count,
                            int64_t* size) {
  TF_RETURN_IF_ERROR(
      ConstantInput(c, 2, "size", 0, kernels::kMaxPackedSize, size));
  return ConstantInput(c, 1, "count", 0, AtMost(*size), count);
}

absl::Status UnpackIndicesShape(InferenceContext* c) {
  int64_t bytes, count, size;
  TF_RETURN_IF_ERROR(VectorLength(c, 0, &bytes));
  TF_RETURN_IF_ERROR(ConstantCounts(c, &count, &size));
  ShapeHandle scalar;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(3), 0, &scalar));
  const int64_t expected = PackedSize(count, size);
  if (bytes != kUnknown && expected != kUnknown && bytes != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("packed must have ", expected, " bytes for ", count,
                     " indices below ", size, ", got ", bytes));
  }
  c->set_output(0, c->Vector(count));
  return absl::OkStatus();
}

absl::Status SumSelectedShape(InferenceContext* c) {
  ShapeHandle messages;
  int64_t count, size;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &messages));
  TF_RETURN_IF_ERROR(ConstantCounts(c, &count, &size));
  if (count != kUnknown && size != kUnknown) {
    DimensionHandle bytes;
    TF_RETURN_IF_ERROR(c->WithValue(
        c->Dim(messages, 1), kernels::SelectedSize(count, size), &bytes));
  }
  c->set_output(0, c->Vector(size));
  return absl::OkStatus();
}

// Of inputs that are the vectors of indices and of their values.
absl::Status CheckIndexed(InferenceContext* c, int indices, int values) {
  ShapeHandle first, second, merged;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(indices), 1, &first));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(values), 1, &second));
  return c->Merge(first, second, &merged);
}

absl::Status ScatterShape(InferenceContext* c) {
  int64_t size;
  TF_RETURN_IF_ERROR(CheckIndexed(c, 0, 1));
  TF_RETURN_IF_ERROR(
      ConstantInput(c, 2, "size", 0, kernels::kMaxPackedSize, &size));
  c->set_output(0, c->Vector(size));
  return absl::OkStatus();
}

absl::Status ScatterUpdateShape(InferenceContext* c) {
  ShapeHandle values;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &values));
  TF_RETURN_IF_ERROR(CheckIndexed(c, 1, 2));
  c->set_output(0, values);
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("TfGc>TopKIndices")
    .Input("values: T")
    .Input("k: Tk")
    .Output("indices: int32")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Tk: {int32, int64} = DT_INT64")
    .SetShapeFn(TopKIndicesShape)
    .Doc(R"doc(
Finds the k values of the largest magnitude, exactly.

Magnitudes are compared by the bits of |value|: NaN counts as larger than
infinity. Of equal magnitudes the lower indices come first.

values: A vector of fewer than 2^31 values.
k: How many of them, a scalar, 0 ... the number of values.
indices: Their k indices, in ascending order.
)doc");

REGISTER_OP("TfGc>ChunkArgmax")
    .Input("values: T")
    .Input("chunk: Tchunk")
    .Output("indices: int32")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Tchunk: {int32, int64} = DT_INT64")
    .SetShapeFn(ChunkArgmaxShape)
    .Doc(R"doc(
Finds the value of the largest magnitude in each chunk (ScaleCom, section 3).

Magnitudes are compared by the bits of |value|: NaN counts as larger than
infinity. Of equal magnitudes the lowest index is taken.

values: A vector of n < 2^31 values.
chunk: The number of values in a chunk, a scalar, at least 1; the last chunk may
  be shorter.
indices: For each of the ceil(n / chunk) chunks an index of `values`.
)doc");

REGISTER_OP("TfGc>MagnitudeHistogram")
    .Input("values: T")
    .Output("counts: int64")
    .Output("squares: double")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .SetShapeFn(MagnitudeHistogramShape)
    .Doc(R"doc(
Counts values, and adds up their squares, by their magnitude.

A bin has the magnitudes of one exponent and of the same upper 5 bits of the
mantissa of float32. Denormal values count as 0.

values: A vector of fewer than 2^31 values.
counts: How many values each of the 8160 bins has. Those that are not finite are
  in none.
squares: The sum of their squares.
)doc");

REGISTER_OP("TfGc>PackIndices")
    .Input("indices: int32")
    .Input("size: Tsize")
    .Output("packed: uint8")
    .Attr("Tsize: {int32, int64} = DT_INT64")
    .SetShapeFn(PackIndicesShape)
    .Doc(R"doc(
Packs a set of indices as a bitmap or in Elias-Fano form, whichever is smaller.

indices: A vector of indices, strictly ascending, in 0 ... size - 1.
size: What all indices are below, a scalar, at most 2^31 - 1.
packed: The bytes; their number follows from the number of indices and `size`.
)doc");

REGISTER_OP("TfGc>UnpackIndices")
    .Input("packed: uint8")
    .Input("count: Tcount")
    .Input("size: Tsize")
    .Input("sender: int32")
    .Output("indices: int32")
    .Attr("Tcount: {int32, int64} = DT_INT64")
    .Attr("Tsize: {int32, int64} = DT_INT64")
    .SetShapeFn(UnpackIndicesShape)
    .Doc(R"doc(
Unpacks what PackIndices has packed.

packed: A vector of as many bytes as `count` and `size` ask for.
count: The number of indices, a scalar, 0 ... size.
size: What all indices are below, a scalar, at most 2^31 - 1.
sender: The rank that errors name as the one from which the bytes come, a scalar;
  -1 for none.
indices: The indices, strictly ascending, in 0 ... size - 1.
)doc");

REGISTER_OP("TfGc>SumSelected")
    .Input("messages: uint8")
    .Input("count: Tcount")
    .Input("size: Tsize")
    .Output("sums: float")
    .Attr("Tcount: {int32, int64} = DT_INT64")
    .Attr("Tsize: {int32, int64} = DT_INT64")
    .SetShapeFn(SumSelectedShape)
    .Doc(R"doc(
Adds up what each of several workers has selected of a vector.

messages: A matrix, a row of each worker, by rank: the bytes that PackIndices
  writes of its indices, and of the values at these, as floats.
count: The number of values in each message, a scalar, 0 ... size.
size: The length of the result, a scalar, at most 2^31 - 1.
sums: A vector: the sum of the values of each index, in the order of ranks.
)doc");

REGISTER_OP("TfGc>Scatter")
    .Input("indices: int32")
    .Input("values: float")
    .Input("size: Tsize")
    .Output("sums: float")
    .Attr("Tsize: {int32, int64} = DT_INT64")
    .SetShapeFn(ScatterShape)
    .Doc(R"doc(
Adds up values at indices of a vector of zeros.

indices: A vector of indices, in any order, in 0 ... size - 1.
values: A vector of one value for each index.
size: The length of the result, a scalar, at most 2^31 - 1.
sums: A vector: the sum of the values of each index, one after the other.
)doc");

REGISTER_OP("TfGc>ScatterUpdate")
    .Input("values: float")
    .Input("indices: int32")
    .Input("others: float")
    .Output("updated: float")
    .SetShapeFn(ScatterUpdateShape)
    .Doc(R"doc(
Replaces the values at indices, in the input's memory where nothing else needs it.

values: A vector.
indices: A vector of indices of `values`, in any order.
others: A vector of one value for each index.
updated: The vector with these values at the indices; of equal indices the last
  counts.
)doc");

}  // namespace tf_gc
