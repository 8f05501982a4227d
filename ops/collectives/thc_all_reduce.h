// THC's all-reduce of a bucket: one small all-gather, and one exchange of sums.

#ifndef TF_GC_OPS_COLLECTIVES_THC_ALL_REDUCE_H_
#define TF_GC_OPS_COLLECTIVES_THC_ALL_REDUCE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "ops/collectives/feedback_variable.h"
#include "ops/collectives/joint_hop.h"
#include "ops/collectives/party.h"
#include "ops/collectives/thc_bucket.h"
#include "ops/collectives/topology.h"
#include "ops/kernels/parallel.h"

namespace tf_gc {

// How many exchanges ThcAllReduce consists of.
inline constexpr uint32_t kThcRounds = 2;

// One rank's side. `commit` is called when all that a rank can find wrong in
// the others' contributions is found, and before anything is written to the
// variables' `reduced`. It takes kThcRounds rounds, the first of which is the
// party's; *bytes_sent are those of bodies, without the companions', which
// travel with the sums.
// InvalidArgument where the sums of so many ranks do not fit in 16 bits.
absl::Status ThcAllReduce(ThcBucket* bucket, const CommitCallback& commit,
                          const Topology& topology, const Party& party,
                          const kernels::ParallelFor& threads,
                          JointHop* companions, int64_t* bytes_sent);

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_THC_ALL_REDUCE_H_
