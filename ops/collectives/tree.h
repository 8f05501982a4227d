// The topology in which values go up a tree of ranks, and results come down.

#ifndef TF_GC_OPS_COLLECTIVES_TREE_H_
#define TF_GC_OPS_COLLECTIVES_TREE_H_

#include "absl/status/status.h"
#include "ops/collectives/exchange.h"

namespace tf_gc {

// All-reduce in about 2 log2(ranks) hops: along a binomial tree every rank
// merges what its children send and sends that to its parent; the result comes
// back the same way. Each hop carries the whole bucket: for small ones, where
// the number of hops counts more than their size.
absl::Status TreeAllReduce(Exchange* exchange);

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_TREE_H_
