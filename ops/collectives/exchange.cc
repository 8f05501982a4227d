#include "ops/collectives/exchange.h"

#include <algorithm>

#include "ops/wire/status.h"

namespace tf_gc {

Pieces Exchange::shard(int rank) const {
  Pieces pieces;
  for (const Piece& piece : layout_.shard(rank)) pieces.push_back(&piece);
  return pieces;
}

Header Exchange::MakeHeader(Phase phase, const Piece& piece) const {
  return {hop_.codec(),
          phase,
          piece.index,
          round_,
          static_cast<uint64_t>(piece.values),
          /*size=*/0};
}

void Exchange::Expect(int peer, Phase phase, int count, const Pieces& pieces) {
  for (const Piece* const piece : pieces) {
    mailbox_.Expect(peer, MakeHeader(phase, *piece),
                    kHeaderSize + hop_.MaxBodySize(*piece, count));
  }
}

Bytes Exchange::Encode(Phase phase, int count, const Piece& piece) {
  const Bytes buffer(std::max(kHeaderSize + hop_.MaxBodySize(piece, count),
                              Mailbox::kHeadSize));
  Header header = MakeHeader(phase, piece);
  header.size =
      kHeaderSize + hop_.Encode(piece, count, buffer.data() + kHeaderSize);
  return Mailbox::Seal(header, buffer);
}

void Exchange::Send(const std::vector<int>& peers, Phase phase,
                    const Piece& piece, const Bytes& message) {
  mailbox_.Send(peers, phase, piece.index, message);
  hop_.Count(piece, message.size() - kHeaderSize, peers.size(), &traffic_);
}

absl::Status Exchange::Merge(int peer, int own, int incoming,
                             const Piece& piece) {
  Bytes message;
  hop_.Anticipate(piece, own, incoming);
  TF_GC_RETURN_IF_ERROR(
      mailbox_.Take(peer, Phase::kContribution, piece.index, &message));
  return hop_.Merge(piece, own, incoming, message.data() + kHeaderSize,
                    message.size() - kHeaderSize);
}

absl::Status Exchange::Decode(const Piece& piece, const Bytes& message) {
  return hop_.Decode(piece, message.data() + kHeaderSize,
                     message.size() - kHeaderSize);
}

}  // namespace tf_gc
