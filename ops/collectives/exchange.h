// The messages of one exchange: pieces of a bucket, made and taken by a hop.

#ifndef TF_GC_OPS_COLLECTIVES_EXCHANGE_H_
#define TF_GC_OPS_COLLECTIVES_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/bucket_layout.h"
#include "ops/collectives/hop.h"
#include "ops/collectives/party.h"
#include "ops/wire/bytes.h"
#include "ops/wire/header.h"

namespace tf_gc {

// The pieces of some shards, in the order in which they travel.
using Pieces = std::vector<const Piece*>;

// What every topology is made of.
class Exchange {
 public:
  // Layout and hop must outlive the exchange.
  Exchange(const BucketLayout* layout, const Party& party, Hop* hop)
      : layout_(*layout),
        party_(party),
        hop_(*hop),
        mailbox_(*party.mailbox),
        traffic_(layout->variables()) {}

  int rank() const { return party_.rank; }
  int ranks() const { return party_.ranks; }
  std::vector<int> peers() const { return party_.peers(); }
  Hop& hop() { return hop_; }
  const BucketLayout& layout() const { return layout_; }
  Pieces shard(int rank) const;

  // What all ranks have contributed.
  Aggregate result() const { return {Content::kResult, ranks()}; }

  // Begins to receive messages. Asking for every one at the start, none waits
  // for a round trip.
  void Expect(int peer, Content content, const Pieces& pieces);

  // Makes the message with this rank's aggregate.
  Bytes Encode(const Aggregate& aggregate, const Piece& piece);

  // Sends a message that was just encoded, or that was taken.
  void Send(const std::vector<int>& peers, Content content, const Piece& piece,
            const Bytes& message);

  // Waits for an aggregate, and merges it into this rank's of `own` ranks.
  absl::Status Merge(int peer, int own, const Aggregate& incoming,
                     const Piece& piece);

  // Waits for a result.
  absl::Status Take(int peer, const Piece& piece, Bytes* message) {
    return mailbox_.Take(peer, Phase::kSum, piece.index, message);
  }
  // Decodes a result that came from this peer, or is this rank's own.
  absl::Status Decode(int peer, const Piece& piece, const Bytes& message);

  // Waits until the peers have taken everything.
  absl::Status Flush() { return mailbox_.Flush(); }

  // What was sent of each variable.
  const std::vector<VariableTraffic>& traffic() const { return traffic_; }

 private:
  Header MakeHeader(Content content, const Piece& piece) const;

  const BucketLayout& layout_;
  const Party party_;
  Hop& hop_;
  Mailbox& mailbox_;
  std::vector<VariableTraffic> traffic_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_EXCHANGE_H_
