// signSGD with majority vote: one bit per value up, and one bit down.

#ifndef TF_GC_OPS_COLLECTIVES_SIGN_MAJORITY_HOP_H_
#define TF_GC_OPS_COLLECTIVES_SIGN_MAJORITY_HOP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/hop.h"

namespace tf_gc {

// A server counts for each value the ranks whose sign is positive; the result
// is positive where at least half of them are (Bernstein et al., signSGD, ICML
// 2018; a tie is positive, as the sign of 0 is). The bucket is one vector of n
// signs.
class SignMajorityHop : public Hop {
 public:
  static constexpr int kMaxRanks = UINT16_MAX;

  // `packed` are the SignPackedSize(n) bytes of SignPack. Writes as many bytes
  // `majority`. The arrays must outlive the hop.
  SignMajorityHop(const uint8_t* packed, uint8_t* majority)
      : packed_(packed), majority_(majority) {}

  const char* name() const override { return "sign majority"; }
  std::vector<TopologyKind> topologies() const override {
    return {TopologyKind::kSharded};
  }
  Codec codec() const override { return Codec::kSignMajority; }
  int64_t piece_values() const override { return int64_t{8} << 20; }
  int64_t MaxBodySize(const Piece& piece, Content content) const override;

  // There are at most kMaxRanks.
  void Prepare(const BucketLayout& layout, int rank) override;
  void Start(const Piece& piece) override;
  absl::Status Merge(const Piece& piece, const Aggregate& incoming,
                     const uint8_t* body, int64_t size) override;
  int64_t Encode(const Piece& piece, const Aggregate& aggregate,
                 uint8_t* body) override;
  absl::Status Decode(const Piece& piece, const uint8_t* body,
                      int64_t size) override;

 private:
  const uint8_t* const packed_;
  uint8_t* const majority_;
  // Of the bucket's values, up to whole bytes of signs; where nothing is merged
  // it is not touched, and so takes no memory.
  std::unique_ptr<uint16_t[]> positive_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_SIGN_MAJORITY_HOP_H_
