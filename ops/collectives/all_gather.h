// The exchange that gives every rank the bytes of all.

#ifndef TF_GC_OPS_COLLECTIVES_ALL_GATHER_H_
#define TF_GC_OPS_COLLECTIVES_ALL_GATHER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/bytes.h"
#include "ops/collectives/mailbox.h"

namespace tf_gc {

// Every rank sends its `size` bytes, of which the others do not know how many
// they are, to each other rank: one hop. (*gathered)[r] are rank r's, with
// those of this rank among them. `round` is that of Exchange. InvalidArgument
// for more than kMaxPlainBytes.
absl::Status AllGather(const uint8_t* data, int64_t size, int rank, int ranks,
                       uint32_t round, Mailbox* mailbox,
                       std::vector<Bytes>* gathered);

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_ALL_GATHER_H_
