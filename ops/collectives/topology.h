// The topologies of an all-reduce, and their names.

#ifndef TF_GC_OPS_COLLECTIVES_TOPOLOGY_H_
#define TF_GC_OPS_COLLECTIVES_TOPOLOGY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tf_gc {

// Who sends what to whom; all_reduce.h has what each does.
enum class TopologyKind { kSharded, kRing, kTree, kTorus };

struct Topology {
  TopologyKind kind;
  int rows = 1;  // of a torus, whose ranks they divide
};

// The names of these topologies, as ParseTopology takes them: "ring, torus".
std::string TopologyNames(const std::vector<TopologyKind>& kinds);

// InvalidArgument unless there can be this topology of so many ranks.
absl::Status CheckTopology(const Topology& topology, int ranks);

// The topology `name` of `ranks` ranks: "sharded", "ring", "tree" or "torus".
// InvalidArgument for another name, or if there can be none with so many rows.
absl::Status ParseTopology(const std::string& name, int rows, int ranks,
                           Topology* topology);

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_TOPOLOGY_H_
