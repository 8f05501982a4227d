#include "ops/collectives/all_reduce.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ops/collectives/bucket_layout.h"
#include "ops/kernels/denormals.h"
#include "ops/wire/status.h"

namespace tf_gc {
namespace {

// What travels along a tree, at most, and for each rank.
constexpr int64_t kMaxTreeBytes = int64_t{1} << 16;
constexpr int64_t kTreeBytesPerRank = int64_t{1} << 11;

bool RunsOn(const Hop& hop, TopologyKind topology) {
  const std::vector<TopologyKind> kinds = hop.topologies();
  return std::find(kinds.begin(), kinds.end(), topology) != kinds.end();
}

absl::Status CheckRunsOn(const Hop& hop, TopologyKind topology) {
  if (RunsOn(hop, topology)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the ", hop.name(), " exchange does not run on the topology ",
      TopologyNames({topology}), ", but on ", TopologyNames(hop.topologies())));
}

absl::Status Run(const Topology& topology, Exchange* exchange) {
  switch (topology.kind) {
    case TopologyKind::kSharded:
      return ShardedServerAllReduce(exchange);
    case TopologyKind::kTree:
      return TreeAllReduce(exchange);
    case TopologyKind::kRing:
    case TopologyKind::kTorus:
      break;
  }
  return TorusAllReduce(topology.rows, exchange);
}

}  // namespace

Topology DefaultTopology(const Hop& hop, int64_t bytes, int ranks) {
  const int64_t most = std::min(kMaxTreeBytes, ranks * kTreeBytesPerRank);
  const bool is_tree = bytes <= most && hop.suits_trees();
  return {is_tree ? TopologyKind::kTree : hop.topologies().front()};
}

absl::Status AllReduce(const std::vector<int64_t>& sizes,
                       const Topology& topology, const Party& party, Hop* hop,
                       std::vector<VariableTraffic>* traffic) {
  TF_GC_RETURN_IF_ERROR(CheckRunsOn(*hop, topology.kind));
  TF_GC_RETURN_IF_ERROR(CheckTopology(topology, party.ranks));
  // Ranks whose threads differ in this would decode different values.
  const kernels::KeepDenormals keep_denormals;
  // Along a tree all travels together.
  const int shards = topology.kind == TopologyKind::kTree ? 1 : party.ranks;
  const BucketLayout layout(sizes, party.ranks, hop->piece_values(),
                            hop->alignment(), shards);
  hop->Plan(layout);
  Exchange exchange(&layout, party, hop);
  TF_GC_RETURN_IF_ERROR(Run(topology, &exchange));
  *traffic = exchange.traffic();
  return absl::OkStatus();
}

}  // namespace tf_gc
