#include "ops/collectives/joint_hop.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/wire/status.h"

namespace tf_gc {

JointHop::JointHop(std::vector<ExactVariable> companions,
                   std::vector<int64_t> sizes)
    : companions_(std::move(companions)),
      sizes_(std::move(sizes)),
      traffic_(sizes_.size()) {}

Hop* JointHop::With(Hop* leader) {
  leader_ = leader;
  return sizes_.empty() ? leader : this;
}

void JointHop::Plan(const BucketLayout& layout) {
  leader_->Plan(layout);
  int shards = 0, pieces = 0;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    shards += !layout.shard(rank).empty();
    pieces += layout.shard(rank).size();
  }
  const BucketLayout own(sizes_, layout.ranks(),
                         std::numeric_limits<int32_t>::max(),
                         BucketLayout::kAlignment, shards);
  companions_.Prepare(own, /*rank=*/0);
  pieces_.assign(pieces, Piece());
  for (int rank = 0; rank < shards; ++rank) {
    pieces_[layout.shard(rank).front().index] = own.shard(rank).front();
  }
}

int64_t JointHop::MaxBodySize(const Piece& piece, Content content) const {
  return leader_->MaxBodySize(piece, content) +
         companions_.MaxBodySize(CompanionOf(piece), content);
}

void JointHop::Prepare(const BucketLayout& layout, int rank) {
  leader_->Prepare(layout, rank);
}

void JointHop::Start(const Piece& piece) {
  leader_->Start(piece);
  companions_.Start(CompanionOf(piece));
}

void JointHop::Anticipate(const Piece& piece, int own, int incoming) {
  leader_->Anticipate(piece, own, incoming);
}

absl::Status JointHop::LeaderSize(const Piece& piece, int64_t size,
                                  int64_t* leader_size) const {
  *leader_size = size - companions_.BodySize(CompanionOf(piece));
  if (*leader_size >= 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      name(), " message: the values of uncompressed variables are missing"));
}

absl::Status JointHop::Merge(const Piece& piece, const Aggregate& incoming,
                             const uint8_t* body, int64_t size) {
  int64_t leader_size;
  TF_GC_RETURN_IF_ERROR(LeaderSize(piece, size, &leader_size));
  TF_GC_RETURN_IF_ERROR(leader_->Merge(piece, incoming, body, leader_size));
  return companions_.Merge(CompanionOf(piece), incoming, body + leader_size,
                           size - leader_size);
}

int64_t JointHop::Encode(const Piece& piece, const Aggregate& aggregate,
                         uint8_t* body) {
  const int64_t size = leader_->Encode(piece, aggregate, body);
  return size + companions_.Encode(CompanionOf(piece), aggregate, body + size);
}

absl::Status JointHop::Decode(const Piece& piece, const uint8_t* body,
                              int64_t size) {
  int64_t leader_size;
  TF_GC_RETURN_IF_ERROR(LeaderSize(piece, size, &leader_size));
  TF_GC_RETURN_IF_ERROR(leader_->Decode(piece, body, leader_size));
  return companions_.Decode(CompanionOf(piece), body + leader_size,
                            size - leader_size);
}

void JointHop::Count(const Piece& piece, int64_t size, int receivers,
                     std::vector<VariableTraffic>* traffic) const {
  const Piece& companion = CompanionOf(piece);
  const int64_t own = companions_.BodySize(companion);
  leader_->Count(piece, size - own, receivers, traffic);
  companions_.Count(companion, own, receivers, &traffic_);
}

}  // namespace tf_gc
