// The topologies of an all-reduce, and their names.

#ifndef TF_GC_OPS_COLLECTIVES_TOPOLOGY_H_
#define TF_GC_OPS_COLLECTIVES_TOPOLOGY_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/exchange.h"

namespace tf_gc {

// One rank's side of an all-reduce: ShardedServerAllReduce, RingAllReduce, ...
using Topology = std::function<absl::Status(Exchange*)>;

// The topology `name` of `ranks` ranks: "sharded", "ring", "tree" or "torus".
// The torus has `rows` rows, which must divide the ranks; elsewhere `rows` is
// 1. InvalidArgument for any other name, or one that is not `supported`.
absl::Status ParseTopology(const std::string& name, int rows, int ranks,
                           const std::vector<std::string>& supported,
                           Topology* topology);

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_TOPOLOGY_H_
