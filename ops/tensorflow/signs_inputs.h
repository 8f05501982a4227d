// What the ops of signs check of their inputs, on the CPU and on GPUs.

#ifndef TF_GC_OPS_TENSORFLOW_SIGNS_INPUTS_H_
#define TF_GC_OPS_TENSORFLOW_SIGNS_INPUTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/signs.h"
#include "ops/tensorflow/inputs.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc {

// Of the inputs `packed` and `size`: fails if it is known that the one has not
// the bytes of the other. *size is that, if known.
inline absl::Status CheckPackedSignsShape(
    tensorflow::shape_inference::InferenceContext* c,
    tensorflow::shape_inference::DimensionHandle* size) {
  tensorflow::shape_inference::ShapeHandle packed, scalar;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &packed));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 0, &scalar));
  TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(1, size));
  const tensorflow::shape_inference::DimensionHandle bytes = c->Dim(packed, 0);
  if (c->ValueKnown(*size) && c->ValueKnown(bytes) &&
      c->Value(bytes) != kernels::SignPackedSize(c->Value(*size))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "packed must have ", kernels::SignPackedSize(c->Value(*size)),
        " bytes for ", c->Value(*size), " values, got ", c->Value(bytes)));
  }
  return absl::OkStatus();
}

// Of the inputs `packed` and, in the host's memory, `size`.
inline absl::Status ReadSignUnpackInputs(tensorflow::OpKernelContext* context,
                                         int64_t* n) {
  const tensorflow::Tensor& packed = context->input(0);
  TF_RETURN_IF_ERROR(CheckVector(packed, "packed"));
  TF_RETURN_IF_ERROR(ReadCount(context->input(1), "size", n));
  const int64_t bytes = packed.NumElements();
  if (bytes == kernels::SignPackedSize(*n)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("packed must have ", kernels::SignPackedSize(*n),
                   " bytes for ", *n, " values, got ", bytes));
}

// The same, where the padding of the last byte is not 0.
inline absl::Status SignPaddingIsNotZero(int last_byte, int64_t n) {
  return absl::DataLossError(
      absl::StrCat("packed must have padding bits of 0 for ", n,
                   " values, got the last byte ", last_byte));
}

// The same of inputs that are both in the host's memory, with the padding.
inline absl::Status ReadPackedSigns(tensorflow::OpKernelContext* context,
                                    int64_t* n) {
  TF_RETURN_IF_ERROR(ReadSignUnpackInputs(context, n));
  const uint8_t* const packed = BytesOf(context->input(0));
  if (kernels::SignPaddingIsZero(packed, *n)) return absl::OkStatus();
  return SignPaddingIsNotZero(packed[*n / 8], *n);
}

struct SignMergeInputs {
  int64_t first_count;
  int64_t second_count;
  kernels::Seed seed;
};

// Of SignMerge's inputs: two vectors and, in the host's memory, the others.
inline absl::Status ReadSignMergeInputs(tensorflow::OpKernelContext* context,
                                        SignMergeInputs* inputs) {
  const tensorflow::Tensor& first = context->input(0);
  const tensorflow::Tensor& second = context->input(1);
  TF_RETURN_IF_ERROR(CheckVector(first, "first"));
  TF_RETURN_IF_ERROR(CheckVector(second, "second"));
  if (first.NumElements() != second.NumElements()) {
    return absl::InvalidArgumentError(
        absl::StrCat("second must have the size of first, ",
                     first.NumElements(), ", got ", second.NumElements()));
  }
  TF_RETURN_IF_ERROR(
      ReadInteger(context->input(2), "first_count", &inputs->first_count));
  TF_RETURN_IF_ERROR(
      ReadInteger(context->input(3), "second_count", &inputs->second_count));
  if (!kernels::AreSignMergeCounts(inputs->first_count, inputs->second_count)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "first_count and second_count must be at least 1, and their sum at "
        "most 2^31 - 1, got ",
        inputs->first_count, " and ", inputs->second_count));
  }
  return ReadSeed(context->input(4), &inputs->seed);
}

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_SIGNS_INPUTS_H_
