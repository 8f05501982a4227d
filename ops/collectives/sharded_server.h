// The topology in which every rank is the server of one shard.

#ifndef TF_GC_OPS_COLLECTIVES_SHARDED_SERVER_H_
#define TF_GC_OPS_COLLECTIVES_SHARDED_SERVER_H_

#include "absl/status/status.h"
#include "ops/collectives/exchange.h"

namespace tf_gc {

// All-reduce in two hops: every rank sends its values of shard r to rank r
// (push), which merges them in a fixed order of ranks and sends the result to
// all (pull). All ranks get the same bytes of every result, so that they end
// with the same bits. Two hops, whatever the number of ranks: for encodings
// that cannot be merged but must be decoded, added and encoded again.
absl::Status ShardedServerAllReduce(Exchange* exchange);

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_SHARDED_SERVER_H_
