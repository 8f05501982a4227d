// One rank's part in a collective.

#ifndef TF_GC_OPS_COLLECTIVES_PARTY_H_
#define TF_GC_OPS_COLLECTIVES_PARTY_H_

#include <cstdint>
#include <vector>

#include "ops/collectives/mailbox.h"

namespace tf_gc {

// What one rank takes part with in one exchange. The mailbox must outlive it.
struct Party {
  int rank;
  int ranks;
  // How many exchanges of the bucket came before: ranks that have lost step get
  // an error.
  uint32_t round;
  Mailbox* mailbox;

  // The others, in this rank's order: all start with different ones.
  std::vector<int> peers() const {
    std::vector<int> peers;
    for (int d = 1; d < ranks; ++d) peers.push_back((rank + d) % ranks);
    return peers;
  }
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_PARTY_H_
