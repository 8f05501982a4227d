#include "ops/collectives/topology.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tf_gc {
namespace {

// In the order of TopologyKind.
constexpr const char* kNames[] = {"sharded", "ring", "tree", "torus"};

}  // namespace

std::string TopologyNames(const std::vector<TopologyKind>& kinds) {
  return absl::StrJoin(kinds, ", ", [](std::string* names, TopologyKind kind) {
    names->append(kNames[static_cast<int>(kind)]);
  });
}

absl::Status CheckTopology(const Topology& topology, int ranks) {
  const int rows = topology.rows;
  if (topology.kind != TopologyKind::kTorus && rows != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rows must be 1 for the topology ", TopologyNames({topology.kind}),
        ", got ", rows, ": only a torus has rows"));
  }
  if (rows < 1 || ranks % rows != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rows must divide the number of workers, ", ranks, ", got ", rows));
  }
  return absl::OkStatus();
}

absl::Status ParseTopology(const std::string& name, int rows, int ranks,
                           Topology* topology) {
  const auto* const found =
      std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) {
    return absl::InvalidArgumentError(absl::StrCat("topology must be one of ",
                                                   absl::StrJoin(kNames, ", "),
                                                   ", got ", name));
  }
  *topology = {static_cast<TopologyKind>(found - kNames), rows};
  return CheckTopology(*topology, ranks);
}

}  // namespace tf_gc
