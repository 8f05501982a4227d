// What the declarations of all exchanges have in common.

#ifndef TF_GC_OPS_TENSORFLOW_EXCHANGE_DECLARATION_H_
#define TF_GC_OPS_TENSORFLOW_EXCHANGE_DECLARATION_H_

#include "tensorflow/core/framework/op.h"

// Both flags are needed: without the second, the loss of a peer would become
// an InternalError.
#define TF_GC_EXCHANGE_OP(name)           \
  REGISTER_OP(name)                       \
      .Attr("group_key: int")             \
      .Attr("group_size: int >= 1")       \
      .Attr("timeout_seconds: float = 0") \
      .SetIsStateful()                    \
      .SetIsDistributedCommunication()

// The attributes of an exchange that has a choice of topologies: it runs on
// those that its hop names.
#define TF_GC_TOPOLOGY_EXCHANGE_OP(name, topology)                             \
  TF_GC_EXCHANGE_OP(name)                                                      \
      .Attr("topology: {'sharded', 'ring', 'tree', 'torus'} = '" topology "'") \
      .Attr("rows: int >= 1 = 1")

#endif  // TF_GC_OPS_TENSORFLOW_EXCHANGE_DECLARATION_H_
