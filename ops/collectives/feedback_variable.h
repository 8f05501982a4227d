// The variables of a bucket that is reduced with error feedback.

#ifndef TF_GC_OPS_COLLECTIVES_FEEDBACK_VARIABLE_H_
#define TF_GC_OPS_COLLECTIVES_FEEDBACK_VARIABLE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"

namespace tf_gc {

// One variable. `new_residual` may be `values`, and `reduced` may be
// `residual`; else the buffers are separate. Its units (ops/kernels/units.h)
// are the same on all ranks.
struct FeedbackVariable {
  int64_t size;
  const float* values;
  const float* residual;
  float* new_residual;
  float* reduced;                // set by the commit callback
  const float* units = nullptr;  // a, then b; null for none
  int64_t rows = 0;              // of the matrix that has these units
  // Whether values and units are known to be so small that no sum of them, of
  // finite residuals, and of what other ranks deliver can overflow.
  bool are_small = false;
  // Rounds values to the type that reduced gradients will have; null for
  // float32.
  void (*round)(float* values, int64_t n) = nullptr;
};

// Tells for each variable whether it is non-finite; sets `reduced` for all.
using CommitCallback = std::function<absl::Status(const std::vector<bool>&)>;

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_FEEDBACK_VARIABLE_H_
