// The kernel that all compressed all-reduces of gradients share.

#ifndef TF_GC_OPS_TENSORFLOW_ALL_REDUCE_OP_H_
#define TF_GC_OPS_TENSORFLOW_ALL_REDUCE_OP_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "ops/collectives/hop.h"
#include "ops/tensorflow/exact_variables.h"
#include "ops/tensorflow/exchange_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

// The attribute reduce_op: whether sums are divided by the number of workers.
absl::Status GetIsMean(tensorflow::OpKernelConstruction* context,
                       bool* is_mean);

// The numbers of values of the input `gradients`, one for each variable of the
// session's bucket.
absl::Status ReadSizes(tensorflow::OpKernelContext* context,
                       const Session& session, std::vector<int64_t>* sizes);

// One step of a bucket in one exchange, on the default topology of the hop that
// a subclass makes.
//
// Inputs: `gradients` (a list), `bucket`, those of Companions, and the
// subclass's. Attributes: those of ExchangeOp and of Companions, and reduce_op.
class AllReduceOp : public ExchangeOp {
 public:
  explicit AllReduceOp(tensorflow::OpKernelConstruction* context);

 protected:
  // Makes the hop, calls run(hop) and sets the outputs.
  using RunHop = std::function<absl::Status(Hop*)>;
  virtual absl::Status AllReduce(tensorflow::OpKernelContext* context,
                                 const RunHop& run) = 0;

  // What the sums are divided by.
  float divisor() const { return is_mean_ ? group_size() : 1; }

 private:
  absl::Status Run(tensorflow::OpKernelContext* context,
                   Session* session) final;

  bool is_mean_;
  const Companions companions_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_ALL_REDUCE_OP_H_
