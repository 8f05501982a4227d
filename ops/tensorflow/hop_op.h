// The kernel of exchanges that all-reduce one vector through a hop.

#ifndef TF_GC_OPS_TENSORFLOW_HOP_OP_H_
#define TF_GC_OPS_TENSORFLOW_HOP_OP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ops/collectives/hop.h"
#include "ops/collectives/topology.h"
#include "ops/tensorflow/exchange_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

// What travels belongs to all variables of the bucket together.
class HopOp : public ExchangeOp {
 public:
  // The topology is that of the attributes `topology` and `rows`, which must be
  // one of `supported`.
  HopOp(tensorflow::OpKernelConstruction* context,
        const std::vector<std::string>& supported);
  // The op has no such attributes.
  HopOp(tensorflow::OpKernelConstruction* context, Topology topology);

 protected:
  // All-reduces a vector of `values` values.
  absl::Status AllReduce(int64_t values, Hop* hop, Session* session) const;

 private:
  Topology topology_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_HOP_OP_H_
