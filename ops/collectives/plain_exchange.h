// Exchanges of plain bytes, of sizes that only their senders know.

#ifndef TF_GC_OPS_COLLECTIVES_PLAIN_EXCHANGE_H_
#define TF_GC_OPS_COLLECTIVES_PLAIN_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/party.h"
#include "ops/wire/bytes.h"

namespace tf_gc {

// The most bytes that any rank may send.
inline constexpr int64_t kMaxPlainBytes = (int64_t{1} << 31) - 1;

// Gives a rank's bytes, which may be made meanwhile.
using OwnBytes = std::function<const uint8_t*()>;

// Every rank gets the `size` bytes of each other rank, of which it does not
// know how many they are. (*gathered)[r] are rank r's, with those of this rank
// among them: `own` is called once those of the others are asked for. Among
// more than four ranks, where ranks * max_bytes is at most 64 KiB, that takes
// log2(ranks) hops, rounded up, of one message each; else one hop of ranks - 1.
// No rank sends more than max_bytes: InvalidArgument where it would,
// ResourceExhausted at the others.
absl::Status AllGather(const OwnBytes& own, int64_t size, const Party& party,
                       std::vector<Bytes>* gathered,
                       int64_t max_bytes = kMaxPlainBytes);

// The `size` bytes of rank `root`, the same on all ranks, travel along a
// binomial tree from there, in log2(ranks) hops rounded up; *received is what
// all end with. `data` counts on the root alone. *receivers is how many ranks
// this one has sent to. InvalidArgument for a root that is no rank; of
// max_bytes see AllGather.
absl::Status Broadcast(const uint8_t* data, int64_t size, int root,
                       const Party& party, Bytes* received, int* receivers,
                       int64_t max_bytes = kMaxPlainBytes);

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_PLAIN_EXCHANGE_H_
