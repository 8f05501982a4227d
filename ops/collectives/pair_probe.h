// Messages between every two ranks, timed one after the other.

#ifndef TF_GC_OPS_COLLECTIVES_PAIR_PROBE_H_
#define TF_GC_OPS_COLLECTIVES_PAIR_PROBE_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/party.h"

namespace tf_gc {

// How many turns a tournament has in which every two ranks meet once.
int Turns(int ranks);

// Whom a rank meets in a turn: in each, a rank is in one pair at most. `rank`
// itself if it meets nobody.
int Opponent(int rank, int ranks, int turn);

// Every rank sends sizes[r] bytes to each other rank r, and gets an empty
// message back; (*seconds)[r] is the time of both, 0 for this rank. Pairs take
// turns, and so do the two of a pair. With sizes up to 32 that is twice the
// latency; longer ones come in a second transfer, which takes twice the latency
// more and the time of its bytes.
//
// InvalidArgument unless there is a size in 0 ... max_bytes for each rank.
absl::Status ProbePairs(const std::vector<int64_t>& sizes, const Party& party,
                        int64_t max_bytes, std::vector<double>* seconds,
                        std::chrono::steady_clock::time_point (*now)() =
                            std::chrono::steady_clock::now);

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_PAIR_PROBE_H_
