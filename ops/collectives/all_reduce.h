// An all-reduce of a bucket, on each of the topologies.

#ifndef TF_GC_OPS_COLLECTIVES_ALL_REDUCE_H_
#define TF_GC_OPS_COLLECTIVES_ALL_REDUCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/exchange.h"
#include "ops/collectives/hop.h"
#include "ops/collectives/party.h"
#include "ops/collectives/topology.h"

namespace tf_gc {

// One rank's side of an all-reduce of variables of these sizes; *traffic is
// what was sent of each. InvalidArgument for a topology that the hop does not
// run on, or that is none of so many ranks; nothing is sent then.
absl::Status AllReduce(const std::vector<int64_t>& sizes,
                       const Topology& topology, const Party& party, Hop* hop,
                       std::vector<VariableTraffic>* traffic);

// The topology for a bucket of so many bytes where nobody has chosen one: a
// tree, if it suits the hop and they are few (2 KiB for each rank, and 64 KiB
// at most), so that the number of messages counts more than how many hops there
// are and how often values travel; else the first that the hop runs on.
Topology DefaultTopology(const Hop& hop, int64_t bytes, int ranks);

// One rank's side on one topology.

// Two hops: every rank sends its values of shard r to rank r (push), which
// merges them in a fixed order of ranks and sends the result to all (pull). All
// ranks get the same bytes of every result, so that they end with the same
// bits. Two hops, whatever the number of ranks: for encodings that cannot be
// merged but must be decoded, added and encoded again.
absl::Status ShardedServerAllReduce(Exchange* exchange);

// On a torus of `rows` times `columns` ranks, rank = row * columns + column:
// reduce-scatter along the rows, then along the columns, and all-gather in the
// reverse order. 2 (rows + columns - 2) hops.
//
// A ring is a torus of one row: each shard goes around it, every rank merging
// its own values into what comes (reduce-scatter), then its result goes around
// once more (all-gather). A rank sends and receives 2 (ranks - 1) / ranks of
// the bucket, to and from one neighbour each. Pieces follow each other: while
// one is merged the next one is on its way.
absl::Status TorusAllReduce(int rows, Exchange* exchange);

// About 2 log2(ranks) hops: along a binomial tree every rank merges what its
// children send and sends that to its parent; the result comes back the same
// way. Each hop carries the whole bucket: for small ones, where the number of
// hops counts more than their size.
absl::Status TreeAllReduce(Exchange* exchange);

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_ALL_REDUCE_H_
