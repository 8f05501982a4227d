// The topology in which every rank is the server of one shard.

#ifndef TF_GC_OPS_COLLECTIVES_SHARDED_SERVER_H_
#define TF_GC_OPS_COLLECTIVES_SHARDED_SERVER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "ops/collectives/bucket_layout.h"
#include "ops/collectives/hop.h"
#include "ops/collectives/mailbox.h"

namespace tf_gc {

// All-reduce in two hops: every rank sends its values of shard r to rank r
// (push), which adds them up in a fixed order of ranks and sends the sum to all
// (pull). What is sent, and how it is added, is the hop's business. All ranks
// get the same bytes of every sum, so that they end with the same bits.
//
// `round` counts the exchanges of this bucket; ranks that have lost step get
// an error.
absl::Status ShardedServerAllReduce(const BucketLayout& layout, int rank,
                                    int ranks, uint32_t round, Hop* hop,
                                    Mailbox* mailbox);

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_SHARDED_SERVER_H_
