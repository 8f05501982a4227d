// The topologies in which ranks pass aggregates on to a neighbour.

#ifndef TF_GC_OPS_COLLECTIVES_RING_H_
#define TF_GC_OPS_COLLECTIVES_RING_H_

#include "absl/status/status.h"
#include "ops/collectives/exchange.h"

namespace tf_gc {

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

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_RING_H_
