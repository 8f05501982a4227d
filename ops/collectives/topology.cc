#include "ops/collectives/topology.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tf_gc {
namespace {

absl::Status CheckRows(const std::string& name, int rows, int ranks) {
  if (name != "torus" && rows != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows must be 1 for the topology ", name, ", got ", rows,
                     ": only a torus has rows"));
  }
  if (rows < 1 || ranks % rows != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rows must divide the number of workers, ", ranks, ", got ", rows));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseTopology(const std::string& name, int rows, int ranks,
                           const std::vector<std::string>& supported,
                           Topology* topology) {
  if (std::find(supported.begin(), supported.end(), name) == supported.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("topology must be one of ", absl::StrJoin(supported, ", "),
                     ", got ", name));
  }
  const absl::Status rows_checked = CheckRows(name, rows, ranks);
  if (!rows_checked.ok()) return rows_checked;
  if (name == "sharded") {
    *topology = ShardedServerAllReduce;
  } else if (name == "ring") {
    *topology = RingAllReduce;
  } else if (name == "tree") {
    *topology = TreeAllReduce;
  } else if (name == "torus") {
    *topology = [rows, columns = ranks / rows](Exchange* exchange) {
      return TorusAllReduce(rows, columns, exchange);
    };
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no topology ", name));
  }
  return absl::OkStatus();
}

}  // namespace tf_gc
