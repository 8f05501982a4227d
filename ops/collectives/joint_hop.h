// Two vectors in one exchange: few uncompressed values, such as a bucket of
// small variables, travel at the end of another bucket's messages, and cost
// none of their own.

#ifndef TF_GC_OPS_COLLECTIVES_JOINT_HOP_H_
#define TF_GC_OPS_COLLECTIVES_JOINT_HOP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/bucket_layout.h"
#include "ops/collectives/exact_hop.h"
#include "ops/collectives/hop.h"
#include "ops/collectives/topology.h"
#include "ops/wire/header.h"

namespace tf_gc {

// What it does is what another hop, the leader, does; and the first piece of
// each shard has a piece of the companions besides, whose values follow those
// of the leader. So they are cut in as many shards.
class JointHop : public Hop {
 public:
  JointHop(std::vector<ExactVariable> companions, std::vector<int64_t> sizes);

  // Returns the hop with this leader, which must outlive it: the leader itself
  // where there are no companions.
  Hop* With(Hop* leader);

  // What was sent of each companion.
  const std::vector<VariableTraffic>& traffic() const { return traffic_; }

  const char* name() const override { return leader_->name(); }
  std::vector<TopologyKind> topologies() const override {
    return leader_->topologies();
  }
  Codec codec() const override { return leader_->codec(); }
  bool suits_trees() const override {
    return leader_->suits_trees() && companions_.suits_trees();
  }
  int64_t piece_values() const override { return leader_->piece_values(); }
  int64_t alignment() const override { return leader_->alignment(); }

  void Plan(const BucketLayout& layout) override;
  int64_t MaxBodySize(const Piece& piece, Content content) const override;
  void Prepare(const BucketLayout& layout, int rank) override;
  void Start(const Piece& piece) override;
  void Anticipate(const Piece& piece, int own, int incoming) override;
  absl::Status Merge(const Piece& piece, const Aggregate& incoming,
                     const uint8_t* body, int64_t size) override;
  int64_t Encode(const Piece& piece, const Aggregate& aggregate,
                 uint8_t* body) override;
  absl::Status Commit() override { return leader_->Commit(); }
  absl::Status Decode(const Piece& piece, const uint8_t* body,
                      int64_t size) override;
  void Count(const Piece& piece, int64_t size, int receivers,
             std::vector<VariableTraffic>* traffic) const override;

 private:
  // The companions' piece that travels with one of the leader's: an empty one
  // with all but the first of a shard.
  const Piece& CompanionOf(const Piece& piece) const {
    return pieces_[piece.index];
  }
  // The bytes of the leader in a body of `size` bytes.
  absl::Status LeaderSize(const Piece& piece, int64_t size,
                          int64_t* leader_size) const;

  Hop* leader_ = nullptr;
  ExactHop companions_;
  const std::vector<int64_t> sizes_;
  std::vector<Piece> pieces_;  // of the companions, by the leader's
  mutable std::vector<VariableTraffic> traffic_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_JOINT_HOP_H_
