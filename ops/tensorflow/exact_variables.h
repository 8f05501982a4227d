// Uncompressed variables of an all-reduce: those of a bucket of their own, and
// those that travel with another one.

#ifndef TF_GC_OPS_TENSORFLOW_EXACT_VARIABLES_H_
#define TF_GC_OPS_TENSORFLOW_EXACT_VARIABLES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/exact_hop.h"
#include "ops/collectives/joint_hop.h"
#include "ops/tensorflow/bucket.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

// The tensors of the list input `input`, whose sums become the list output
// `output`. The last `statistics` of them are not divided by `divisor`.
absl::Status ReadExactVariables(tensorflow::OpKernelContext* context,
                                const char* input, const char* output,
                                float divisor, int statistics,
                                std::vector<ExactVariable>* variables);

// The inputs `companions` and `companions_bucket` of an op, its output
// `companions_reduced`, and its attribute
// `statistic_companions`.
class Companions {
 public:
  explicit Companions(tensorflow::OpKernelConstruction* context);

  // What an op does with them in one step.
  class Step {
   public:
    JointHop* hop() { return hop_.get(); }
    int64_t bytes() const { return bytes_; }
    // Counts for their bucket what was sent.
    void Count(int ranks) const;

   private:
    friend class Companions;
    std::unique_ptr<JointHop> hop_;
    tensorflow::core::RefCountPtr<Bucket> bucket_;
    std::vector<int64_t> sizes_;
    int64_t bytes_ = 0;
  };

  absl::Status Read(tensorflow::OpKernelContext* context, float divisor,
                    Step* step) const;

 private:
  int statistics_ = 0;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_EXACT_VARIABLES_H_
