// Marsit: signs of one bit each at every hop, merged without being decoded.

#ifndef TF_GC_OPS_COLLECTIVES_SIGN_MERGE_HOP_H_
#define TF_GC_OPS_COLLECTIVES_SIGN_MERGE_HOP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/hop.h"
#include "ops/kernels/philox.h"
#include "ops/kernels/signs.h"

namespace tf_gc {

// The aggregate of some ranks is one sign for each value, which is positive
// with the mean of their signs' probability. Merging those of i and of j ranks
// keeps the bit of the i where the two differ with the probability i / (i + j)
// (Marsit, section 4.1.1, where j is 1); so the aggregates of any ranks can be
// merged, as a torus needs it. The transient vector, the choice for every
// value, does not depend on what is merged, and is drawn while that is on its
// way. The bucket is one vector of n signs.
class SignMergeHop : public Hop {
 public:
  // `packed` are the SignPackedSize(n) bytes of SignPack, `seed` is the same on
  // all ranks. Writes as many bytes `merged`. The arrays are separate and must
  // outlive the hop.
  SignMergeHop(const uint8_t* packed, kernels::Seed seed, uint8_t* merged)
      : packed_(packed), seed_(seed), merged_(merged) {}

  const char* name() const override { return "sign merge"; }
  std::vector<TopologyKind> topologies() const override {
    return {TopologyKind::kRing, TopologyKind::kTorus};
  }
  Codec codec() const override { return Codec::kSignMerge; }
  int64_t piece_values() const override { return int64_t{8} << 20; }
  // A stream of random numbers can only be cut at these places.
  int64_t alignment() const override { return 8 * kernels::kSignMergeUnit; }
  int64_t MaxBodySize(const Piece& piece, Content content) const override;

  void Prepare(const BucketLayout& layout, int rank) override;
  void Start(const Piece& piece) override;
  void Anticipate(const Piece& piece, int own, int incoming) override;
  absl::Status Merge(const Piece& piece, const Aggregate& incoming,
                     const uint8_t* body, int64_t size) override;
  int64_t Encode(const Piece& piece, const Aggregate& aggregate,
                 uint8_t* body) override;
  absl::Status Decode(const Piece& piece, const uint8_t* body,
                      int64_t size) override;

 private:
  const uint8_t* const packed_;
  const kernels::Seed seed_;
  uint8_t* const merged_;  // holds the aggregates, too
  int rank_ = 0;
  // Of the next merge: 1 where the incoming bit is kept.
  std::vector<uint8_t> transient_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_SIGN_MERGE_HOP_H_
