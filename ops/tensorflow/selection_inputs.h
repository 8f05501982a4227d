// What the ops of selection and of packed indices check of their inputs, on the
// CPU and on GPUs. All inputs but the first are in the host's memory.

#ifndef TF_GC_OPS_TENSORFLOW_SELECTION_INPUTS_H_
#define TF_GC_OPS_TENSORFLOW_SELECTION_INPUTS_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/index_packing.h"
#include "ops/tensorflow/inputs.h"
#include "ops/wire/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {

// The input `name`, an integer in smallest ... largest.
inline absl::Status ReadWithin(const tensorflow::Tensor& tensor,
                               const char* name, int64_t smallest,
                               int64_t largest, int64_t* value) {
  TF_RETURN_IF_ERROR(ReadInteger(tensor, name, value));
  if (*value >= smallest && *value <= largest) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, " must be in ", smallest, " ... ", largest, ", got ", *value));
}

inline absl::Status CheckValues(const tensorflow::Tensor& values) {
  TF_RETURN_IF_ERROR(CheckVector(values, "values"));
  if (values.NumElements() <= kernels::kMaxPackedSize) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "values must be fewer than 2^31, got ", values.NumElements()));
}

inline absl::Status AllocateIndices(tensorflow::OpKernelContext* context,
                                    int64_t count, int32_t** indices) {
  tensorflow::Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(
      context->allocate_output(0, tensorflow::TensorShape({count}), &output));
  *indices = output->flat<int32_t>().data();
  return absl::OkStatus();
}

// Of PackIndices' inputs.
inline absl::Status ReadPackInputs(tensorflow::OpKernelContext* context,
                                   int64_t* size) {
  TF_RETURN_IF_ERROR(CheckVector(context->input(0), "indices"));
  return ReadWithin(context->input(1), "size", 0, kernels::kMaxPackedSize,
                    size);
}

// The same, where indices[position] is `index`.
inline absl::Status NotAscending(int32_t index, int64_t position,
                                 int64_t size) {
  return absl::InvalidArgumentError(absl::StrCat(
      "indices must ascend strictly and be in 0 ... size - 1 = ", size - 1,
      ", got ", index, " at position ", position));
}

// The inputs `count` and `size` of the ops that unpack indices.
inline absl::Status ReadCounts(tensorflow::OpKernelContext* context,
                               int64_t* count, int64_t* size) {
  TF_RETURN_IF_ERROR(
      ReadWithin(context->input(2), "size", 0, kernels::kMaxPackedSize, size));
  return ReadWithin(context->input(1), "count", 0, *size, count);
}

// An error of what this rank has sent; -1 for nobody.
inline absl::Status FromRank(int64_t sender, const absl::Status& status) {
  return sender < 0 ? status : From(absl::StrCat("rank ", sender), status);
}

// Of UnpackIndices' inputs.
inline absl::Status ReadUnpackInputs(tensorflow::OpKernelContext* context,
                                     int64_t* count, int64_t* size,
                                     int64_t* sender) {
  const tensorflow::Tensor& packed = context->input(0);
  TF_RETURN_IF_ERROR(CheckVector(packed, "packed"));
  TF_RETURN_IF_ERROR(ReadCounts(context, count, size));
  TF_RETURN_IF_ERROR(ReadInteger(context->input(3), "sender", sender));
  const int64_t expected = kernels::PackedIndicesSize(*count, *size);
  if (packed.NumElements() == expected) return absl::OkStatus();
  return FromRank(
      *sender, absl::DataLossError(absl::StrCat(
                   "packed must have ", expected, " bytes for ", *count,
                   " indices below ", *size, ", got ", packed.NumElements())));
}

// The same, where the bytes are not such as packing writes.
inline absl::Status UnpackStatus(const char* error, int64_t count, int64_t size,
                                 int64_t sender) {
  if (error == nullptr) return absl::OkStatus();
  return FromRank(
      sender, absl::DataLossError(absl::StrCat(
                  "packed, ", kernels::PackedIndicesSize(count, size),
                  " bytes for ", count, " indices below ", size, ", ", error)));
}

// Of the input `indices` and the values for them, on the CPU: fails if their
// numbers differ, or if an index is not below `size`.
inline absl::Status CheckIndexed(const tensorflow::Tensor& indices,
                                 const tensorflow::Tensor& values,
                                 int64_t size) {
  TF_RETURN_IF_ERROR(CheckVector(indices, "indices"));
  if (values.shape() != indices.shape()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there must be one value for each of ", indices.NumElements(),
        " indices, got shape ", values.shape().DebugString()));
  }
  const auto places = indices.flat<int32_t>();
  // As an unsigned number, what is negative is too large.
  uint32_t largest = 0;
  for (int64_t i = 0; i < places.size(); ++i) {
    largest = std::max(largest, static_cast<uint32_t>(places(i)));
  }
  if (places.size() == 0 || largest < size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("indices must be in 0 ... ", size - 1, ", got ",
                   static_cast<int32_t>(largest)));
}

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_SELECTION_INPUTS_H_
