// The asynchronous kernel that all compressed all-reduces share.

#ifndef TF_GC_OPS_COLLECTIVES_ALL_REDUCE_OP_H_
#define TF_GC_OPS_COLLECTIVES_ALL_REDUCE_OP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/collectives/bucket.h"
#include "ops/collectives/hop.h"
#include "tensorflow/core/framework/collective.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

// The handle in a resource input of an op; `name` is the input's, for the
// error.
absl::Status GetHandle(const tensorflow::Tensor& input, const std::string& name,
                       tensorflow::ResourceHandle* handle);

// Runs on a thread of the collective executor's unbounded queue, resolves the
// group, and exchanges the bucket through the hop that a subclass makes. As in
// TensorFlow's own collectives, an error that is not a cancellation aborts the
// executor, so that the peers learn of it; the program must then restart.
//
// Inputs: `gradients` (a list), `bucket`, and the subclass's. Attributes:
// group_key, group_size, reduce_op and timeout_seconds.
class AllReduceOp : public tensorflow::AsyncOpKernel {
 public:
  explicit AllReduceOp(tensorflow::OpKernelConstruction* context);

  void ComputeAsync(tensorflow::OpKernelContext* context,
                    DoneCallback done) final;

 protected:
  // Makes the hop, calls run(hop) and sets the outputs.
  using RunHop = std::function<absl::Status(Hop*)>;
  virtual absl::Status AllReduce(tensorflow::OpKernelContext* context,
                                 const RunHop& run) = 0;

  // What the sums are divided by.
  float divisor() const { return mean_ ? group_size_ : 1; }

 private:
  absl::Status Run(tensorflow::OpKernelContext* context);
  absl::Status ResolveGroup(tensorflow::OpKernelContext* context,
                            tensorflow::CollectiveParams* params);
  absl::Status RunExchange(tensorflow::OpKernelContext* context,
                           const tensorflow::CollGroupParams& group,
                           Bucket* bucket, Hop* hop);

  int group_key_;
  int group_size_;
  bool mean_;
  float timeout_seconds_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_ALL_REDUCE_OP_H_
