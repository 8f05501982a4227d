// The ops of signs: declarations, shapes and documentation.

#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/signs.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/signs_inputs.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc {
namespace {

using ::tensorflow::Tensor;
using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status SignPackShape(InferenceContext* c) {
  const DimensionHandle size = c->NumElements(c->input(0));
  c->set_output(
      0, c->Vector(c->ValueKnown(size) ? kernels::SignPackedSize(c->Value(size))
                                       : InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

absl::Status SignUnpackShape(InferenceContext* c) {
  DimensionHandle size;
  TF_RETURN_IF_ERROR(CheckPackedSignsShape(c, &size));
  c->set_output(0, c->Vector(size));
  return absl::OkStatus();
}

absl::Status SignMergeShape(InferenceContext* c) {
  ShapeHandle first, second, merged, scalar;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &first));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &second));
  TF_RETURN_IF_ERROR(c->Merge(first, second, &merged));
  // A count that is not known is no reason to refuse the other.
  constexpr const char* kNames[2] = {"first_count", "second_count"};
  int64_t counts[2] = {1, 1};
  for (int i = 0; i < 2; ++i) {
    TF_RETURN_IF_ERROR(c->WithRank(c->input(2 + i), 0, &scalar));
    const Tensor* const count = c->input_tensor(2 + i);
    if (count != nullptr) {
      TF_RETURN_IF_ERROR(ReadInteger(*count, kNames[i], &counts[i]));
    }
  }
  if (!kernels::AreSignMergeCounts(counts[0], counts[1])) {
    return absl::InvalidArgumentError(absl::StrCat(
        "first_count and second_count must be at least 1, and their sum at "
        "most 2^31 - 1, got ",
        counts[0], " and ", counts[1]));
  }
  TF_RETURN_IF_ERROR(CheckSeedShape(c, 4));
  c->set_output(0, merged);
  return absl::OkStatus();
}

absl::Status ApplySignsShape(InferenceContext* c) {
  std::vector<int64_t> sizes;
  TF_RETURN_IF_ERROR(c->GetAttr("sizes", &sizes));
  ShapeHandle vector, values;
  DimensionHandle size;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &vector));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &vector));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 1, &values));
  TF_RETURN_IF_ERROR(c->WithValue(
      c->Dim(values, 0),
      std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), &size));
  c->set_output(0, c->Vector(size));
  c->set_output(1, c->Vector(size));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("TfGc>SignPack")
    .Input("values: T")
    .Output("packed: uint8")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .SetShapeFn(SignPackShape)
    .Doc(R"doc(
Packs the signs of values, one bit each.

values: Values of any shape, n in all.
packed: The ceil(n / 8) bytes. Bit i % 8 of byte i / 8 is 1 where value i >= 0,
  -0 too, and 0 for NaN; padding bits are 0.
)doc");

REGISTER_OP("TfGc>SignUnpack")
    .Input("packed: uint8")
    .Input("size: Tsize")
    .Output("values: float")
    .Attr("Tsize: {int32, int64} = DT_INT64")
    .SetShapeFn(SignUnpackShape)
    .Doc(R"doc(
Unpacks what SignPack has packed.

packed: A vector of ceil(size / 8) bytes, with padding bits of 0.
size: The number of values, a scalar.
values: A vector: 1 where the bit is 1, else -1.
)doc");

REGISTER_OP("TfGc>ApplySigns")
    .Input("packed: uint8")
    .Input("magnitudes: float")
    .Input("values: float")
    .Output("total: float")
    .Output("residual: float")
    .Attr("sizes: list(int)")
    .Attr("workers: int >= 1")
    .SetShapeFn(ApplySignsShape)
    .Doc(R"doc(
What workers make of signs that all of them share (Marsit, algorithm 1).

packed: The signs s of the n values of a bucket, as SignPack packs them.
magnitudes: A vector of the magnitude m of each variable, or of each value.
values: A vector of the n values.
total: workers m s.
residual: values - m s.
sizes: The numbers of values of the variables, n in all.
)doc");

REGISTER_OP("TfGc>SignMerge")
    .Input("first: uint8")
    .Input("second: uint8")
    .Input("first_count: Tcount")
    .Input("second_count: Tcount")
    .Input("seed: Tseed")
    .Output("merged: uint8")
    .Attr("Tcount: {int32, int64} = DT_INT64")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .SetShapeFn(SignMergeShape)
    .Doc(R"doc(
Merges packed signs of two groups of workers (Marsit, section 4.1.1).

first: A vector of packed signs.
second: A vector of as many bytes.
first_count: How many workers `first` is of, a scalar, at least 1.
second_count: How many workers `second` is of, a scalar, at least 1; the sum is
  at most 2^31 - 1.
seed: The key of the Philox generator, a scalar, or a vector of two: key and
  stream.
merged: As many bytes: the bits in which `first` and `second` agree, and else
  those of `first` with the probability first_count / (first_count +
  second_count).
)doc");

}  // namespace tf_gc
