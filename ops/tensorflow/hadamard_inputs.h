// What the Hadamard transforms' ops check of their inputs, on the CPU and on
// GPUs.

#ifndef TF_GC_OPS_TENSORFLOW_HADAMARD_INPUTS_H_
#define TF_GC_OPS_TENSORFLOW_HADAMARD_INPUTS_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/hadamard.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc {

inline absl::Status CheckHadamardValues(const tensorflow::Tensor& values) {
  if (values.dims() > 0 &&
      kernels::IsHadamardSize(values.dim_size(values.dims() - 1))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "values must have a power of two as the size of the last axis, got "
      "shape ",
      values.shape().DebugString()));
}

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_HADAMARD_INPUTS_H_
