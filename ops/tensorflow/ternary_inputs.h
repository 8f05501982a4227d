// What the ops of ternary quantisation check of their inputs, on the CPU and on
// GPUs.

#ifndef TF_GC_OPS_TENSORFLOW_TERNARY_INPUTS_H_
#define TF_GC_OPS_TENSORFLOW_TERNARY_INPUTS_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/ternary.h"
#include "ops/tensorflow/inputs.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc {

inline absl::Status ReadTernaryScale(const tensorflow::Tensor& tensor,
                                     float* scale) {
  TF_RETURN_IF_ERROR(CheckScalar(tensor, "scale"));
  *scale = tensor.scalar<float>()();
  if (kernels::IsTernaryScale(*scale)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("scale must be finite and at least 0, got ", *scale));
}

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_TERNARY_INPUTS_H_
