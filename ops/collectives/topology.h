// The topologies of an all-reduce, and their names.

#ifndef TF_GC_OPS_COLLECTIVES_TOPOLOGY_H_
#define TF_GC_OPS_COLLECTIVES_TOPOLOGY_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/exchange.h"

namespace tf_gc {

// One rank's side of an all-reduce.
using Topology = std::function<absl::Status(Exchange*)>;

// All-reduce in two hops: every rank sends its values of shard r to rank r
// (push), which merges them in a fixed order of ranks and sends the result to
// all (pull). All ranks get the same bytes of every result, so that they end
// with the same bits. Two hops, whatever the number of ranks: for encodings
// that cannot be merged but must be decoded, added and encoded again.
absl::Status ShardedServerAllReduce(Exchange* exchange);

// All-reduce in 2 (ranks - 1) hops: each shard goes around the ring, every rank
// merging its own values into what comes (reduce-scatter), then its result goes
// around once more (all-gather). A rank sends and receives 2 (ranks - 1) /
// ranks of the bucket, to and from one neighbour each. Pieces follow each
// other: while one is merged the next one is on its way.
absl::Status RingAllReduce(Exchange* exchange);

// The same on a torus of `rows` times `columns` ranks, rank = row * columns +
// column: reduce-scatter along the rows, then along the columns, and all-gather
// in the reverse order. 2 (rows + columns - 2) hops.
absl::Status TorusAllReduce(int rows, int columns, Exchange* exchange);

// All-reduce in about 2 log2(ranks) hops: along a binomial tree every rank
// merges what its children send and sends that to its parent; the result comes
// back the same way. Each hop carries the whole bucket: for small ones, where
// the number of hops counts more than their size.
absl::Status TreeAllReduce(Exchange* exchange);

// The topology `name` of `ranks` ranks: "sharded", "ring", "tree" or "torus".
// The torus has `rows` rows, which must divide the ranks; elsewhere `rows` is
// 1. InvalidArgument for any other name, or one that is not `supported`.
absl::Status ParseTopology(const std::string& name, int rows, int ranks,
                           const std::vector<std::string>& supported,
                           Topology* topology);

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_TOPOLOGY_H_
