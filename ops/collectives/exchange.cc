#include "ops/collectives/exchange.h"

#include "ops/wire/status.h"

namespace tf_gc {
namespace {

Phase PhaseOf(Content content) {
  return content == Content::kResult ? Phase::kSum : Phase::kContribution;
}

}  // namespace

Pieces Exchange::shard(int rank) const {
  Pieces pieces;
  for (const Piece& piece : layout_.shard(rank)) pieces.push_back(&piece);
  return pieces;
}

Header Exchange::MakeHeader(Content content, const Piece& piece) const {
  return {hop_.codec(),
          PhaseOf(content),
          piece.index,
          party_.round,
          static_cast<uint32_t>(piece.values),
          /*checksum=*/0,
          /*size=*/0};
}

void Exchange::Expect(int peer, Content content, const Pieces& pieces) {
  for (const Piece* const piece : pieces) {
    mailbox_.Expect(peer, MakeHeader(content, *piece),
                    kHeaderSize + hop_.MaxBodySize(*piece, content));
  }
}

Bytes Exchange::Encode(const Aggregate& aggregate, const Piece& piece) {
  const Bytes buffer(kHeaderSize + hop_.MaxBodySize(piece, aggregate.content));
  Header header = MakeHeader(aggregate.content, piece);
  header.size =
      kHeaderSize + hop_.Encode(piece, aggregate, buffer.data() + kHeaderSize);
  return mailbox_.Seal(header, buffer);
}

void Exchange::Send(const std::vector<int>& peers, Content content,
                    const Piece& piece, const Bytes& message) {
  mailbox_.Send(peers, MakeHeader(content, piece), message);
  hop_.Count(piece, message.size() - kHeaderSize, peers.size(), &traffic_);
}

absl::Status Exchange::Merge(int peer, int own, const Aggregate& incoming,
                             const Piece& piece) {
  Bytes message;
  hop_.Anticipate(piece, own, incoming.ranks);
  TF_GC_RETURN_IF_ERROR(
      mailbox_.Take(peer, PhaseOf(incoming.content), piece.index, &message));
  return mailbox_.From(peer,
                       hop_.Merge(piece, incoming, message.data() + kHeaderSize,
                                  message.size() - kHeaderSize));
}

absl::Status Exchange::Decode(int peer, const Piece& piece,
                              const Bytes& message) {
  return mailbox_.From(peer, hop_.Decode(piece, message.data() + kHeaderSize,
                                         message.size() - kHeaderSize));
}

}  // namespace tf_gc
