#include "ops/collectives/sharded_server.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/collectives/bytes.h"
#include "ops/collectives/wire_format.h"

#define TF_GC_RETURN_IF_ERROR(expression)           \
  do {                                              \
    const absl::Status status_or_ok = (expression); \
    if (!status_or_ok.ok()) return status_or_ok;    \
  } while (false)

namespace tf_gc {
namespace {

class Exchange {
 public:
  Exchange(const BucketLayout& layout, int rank, int ranks, uint32_t round,
           Hop* hop, Mailbox* mailbox)
      : layout_(layout),
        rank_(rank),
        ranks_(ranks),
        round_(round),
        hop_(hop),
        mailbox_(mailbox),
        own_(layout.shard(rank)) {}

  absl::Status Run() {
    ExpectAll();
    hop_->Prepare(layout_, rank_);
    Push();
    std::vector<Bytes> sums(own_.size());
    for (size_t p = 0; p < own_.size(); ++p) {
      TF_GC_RETURN_IF_ERROR(Reduce(p));
      sums[p] = Publish(p);
    }
    TF_GC_RETURN_IF_ERROR(hop_->Commit());
    for (size_t p = 0; p < own_.size(); ++p) {
      TF_GC_RETURN_IF_ERROR(Decode(own_[p], sums[p]));
    }
    TF_GC_RETURN_IF_ERROR(Pull());
    return mailbox_->Flush();
  }

 private:
  // The d-th peer in this rank's order: all start with different servers.
  int Peer(int d) const { return (rank_ + d) % ranks_; }

  Header MakeHeader(Phase phase, size_t p, const Piece& piece) const {
    return {hop_->codec(),
            phase,
            static_cast<uint32_t>(p),
            round_,
            static_cast<uint64_t>(piece.values),
            0};
  }

  int64_t MaxSize(Phase phase, const Piece& piece) const {
    return kHeaderSize + hop_->MaxBodySize(piece, phase);
  }

  // Asks for every message at once, so that none waits for a round trip.
  void ExpectAll() {
    for (int d = 1; d < ranks_; ++d) {
      ExpectShard(Peer(d), Phase::kContribution, own_);
      ExpectShard(Peer(d), Phase::kSum, layout_.shard(Peer(d)));
    }
  }

  void ExpectShard(int peer, Phase phase, const std::vector<Piece>& shard) {
    for (size_t p = 0; p < shard.size(); ++p) {
      mailbox_->Expect(peer, MakeHeader(phase, p, shard[p]),
                       MaxSize(phase, shard[p]));
    }
  }

  // Room for a message.
  Bytes NewMessage(Phase phase, const Piece& piece) const {
    return Bytes(std::max(MaxSize(phase, piece), Mailbox::kHeadSize));
  }

  void Send(const std::vector<int>& peers, Phase phase, size_t p,
            const Piece& piece, int64_t size, const Bytes& message) {
    Header header = MakeHeader(phase, p, piece);
    header.size = size;
    mailbox_->Send(peers, header, message);
  }

  void Push() {
    for (int d = 1; d < ranks_; ++d) {
      const std::vector<Piece>& shard = layout_.shard(Peer(d));
      for (size_t p = 0; p < shard.size(); ++p) {
        const Bytes message = NewMessage(Phase::kContribution, shard[p]);
        const int64_t size =
            kHeaderSize +
            hop_->EncodeContribution(shard[p], message.data() + kHeaderSize);
        Send({Peer(d)}, Phase::kContribution, p, shard[p], size, message);
      }
    }
  }

  absl::Status Reduce(size_t p) {
    hop_->StartSum(own_[p]);
    for (int d = 1; d < ranks_; ++d) {
      Bytes message;
      TF_GC_RETURN_IF_ERROR(
          mailbox_->Take(Peer(d), Phase::kContribution, p, &message));
      TF_GC_RETURN_IF_ERROR(hop_->AddContribution(
          own_[p], message.data() + kHeaderSize, message.size() - kHeaderSize));
    }
    return absl::OkStatus();
  }

  Bytes Publish(size_t p) {
    const Bytes message = NewMessage(Phase::kSum, own_[p]);
    const int64_t size =
        kHeaderSize + hop_->EncodeSum(own_[p], message.data() + kHeaderSize);
    std::vector<int> peers;
    for (int d = 1; d < ranks_; ++d) peers.push_back(Peer(d));
    Send(peers, Phase::kSum, p, own_[p], size, message);
    return message.Slice(0, size);
  }

  absl::Status Pull() {
    for (int d = 1; d < ranks_; ++d) {
      const std::vector<Piece>& shard = layout_.shard(Peer(d));
      for (size_t p = 0; p < shard.size(); ++p) {
        Bytes message;
        TF_GC_RETURN_IF_ERROR(
            mailbox_->Take(Peer(d), Phase::kSum, p, &message));
        TF_GC_RETURN_IF_ERROR(Decode(shard[p], message));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Decode(const Piece& piece, const Bytes& message) {
    return hop_->DecodeSum(piece, message.data() + kHeaderSize,
                           message.size() - kHeaderSize);
  }

  const BucketLayout& layout_;
  const int rank_;
  const int ranks_;
  const uint32_t round_;
  Hop* const hop_;
  Mailbox* const mailbox_;
  const std::vector<Piece>& own_;
};

}  // namespace

absl::Status ShardedServerAllReduce(const BucketLayout& layout, int rank,
                                    int ranks, uint32_t round, Hop* hop,
                                    Mailbox* mailbox) {
  return Exchange(layout, rank, ranks, round, hop, mailbox).Run();
}

}  // namespace tf_gc
