// The kernel of exchanges that all-reduce one vector through a hop.

#ifndef TF_GC_OPS_TENSORFLOW_HOP_OP_H_
#define TF_GC_OPS_TENSORFLOW_HOP_OP_H_

#include <cstdint>
#include <optional>

#include "ops/collectives/hop.h"
#include "ops/collectives/topology.h"
#include "ops/tensorflow/exchange_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

// What travels belongs to all variables of the bucket together.
class HopOp : public ExchangeOp {
 public:
  explicit HopOp(tensorflow::OpKernelConstruction* context);

 protected:
  // All-reduces a vector of `values` values, on the topology of the attributes
  // `topology` and `rows`, or on the hop's first if the op has none.
  absl::Status AllReduce(int64_t values, Hop* hop, Session* session) const;
  // The same, with the few values of the input `carried` in the vector's
  // messages. Their sums are the output `carried_sum`.
  absl::Status AllReduceAndCarry(tensorflow::OpKernelContext* context,
                                 int64_t values, Hop* hop,
                                 Session* session) const;

  // That of the attributes, which the op must have.
  const Topology& topology() const { return *topology_; }

 private:
  std::optional<Topology> topology_;  // of the attributes
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_HOP_OP_H_
