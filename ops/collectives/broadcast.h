// The exchange that gives every rank the bytes of one.

#ifndef TF_GC_OPS_COLLECTIVES_BROADCAST_H_
#define TF_GC_OPS_COLLECTIVES_BROADCAST_H_

#include <cstdint>

#include "absl/status/status.h"
#include "ops/collectives/bytes.h"
#include "ops/collectives/mailbox.h"

namespace tf_gc {

// The `size` bytes of rank `root`, the same on all ranks, travel along a
// binomial tree from there, in log2(ranks) hops rounded up; *received is what
// all end with. `data` counts on the root alone. `round` is that of Exchange;
// *receivers is how many ranks this one has sent to. InvalidArgument for a root
// that is no rank, or more than kMaxPlainBytes.
absl::Status Broadcast(const uint8_t* data, int64_t size, int root, int rank,
                       int ranks, uint32_t round, Mailbox* mailbox,
                       Bytes* received, int* receivers);

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_BROADCAST_H_
