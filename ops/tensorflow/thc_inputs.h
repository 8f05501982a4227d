// What THC's ops check of their inputs.

#ifndef TF_GC_OPS_TENSORFLOW_THC_INPUTS_H_
#define TF_GC_OPS_TENSORFLOW_THC_INPUTS_H_

#include "absl/status/status.h"
#include "ops/kernels/thc.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc {

// The input `table`, of 2^bits integers.
absl::Status ReadThcTable(const tensorflow::Tensor& tensor, int bits,
                          kernels::ThcTable* table);

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_THC_INPUTS_H_
