// The asynchronous kernel that all exchanges share.

#ifndef TF_GC_OPS_TENSORFLOW_EXCHANGE_OP_H_
#define TF_GC_OPS_TENSORFLOW_EXCHANGE_OP_H_

#include <cstdint>

#include "absl/status/status.h"
#include "ops/collectives/party.h"
#include "ops/tensorflow/bucket.h"
#include "tensorflow/core/framework/collective.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

// What one run of an op exchanges messages with.
struct Session : Party {
  // The op adds its payload, and sets how many exchanges there were if not one;
  // messages are counted without it.
  Traffic traffic;
};

// The attribute `max_bytes` of messages of plain bytes.
absl::Status ReadMaxBytes(tensorflow::OpKernelConstruction* context,
                          int64_t* max_bytes);

// Runs on a thread of the collective executor's unbounded queue, resolves the
// group, and calls the subclass's Run while no other exchange of the bucket is
// under way. As in TensorFlow's own collectives, an error that is not a
// cancellation aborts the executor, so that the peers learn of it; the program
// must then restart.
//
// Inputs: `bucket`, and the subclass's. Attributes: group_key, group_size and
// timeout_seconds.
class ExchangeOp : public tensorflow::AsyncOpKernel {
 public:
  explicit ExchangeOp(tensorflow::OpKernelConstruction* context);

  void ComputeAsync(tensorflow::OpKernelContext* context,
                    DoneCallback done) final;

 protected:
  // Exchanges the messages and sets the outputs.
  virtual absl::Status Run(tensorflow::OpKernelContext* context,
                           Session* session) = 0;

  int group_size() const { return group_size_; }

 private:
  absl::Status ResolveAndRun(tensorflow::OpKernelContext* context);
  absl::Status ResolveGroup(tensorflow::OpKernelContext* context,
                            const Bucket& bucket,
                            tensorflow::CollectiveParams* params);
  absl::Status RunInGroup(tensorflow::OpKernelContext* context,
                          const tensorflow::CollGroupParams& group,
                          Bucket* bucket);
  absl::Status RunWithinMemory(tensorflow::OpKernelContext* context,
                               Session* session);

  int group_key_;
  int group_size_;
  float timeout_seconds_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_EXCHANGE_OP_H_
