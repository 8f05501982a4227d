#include <cstddef>
#include <vector>

#include "ops/collectives/all_reduce.h"
#include "ops/wire/status.h"

namespace tf_gc {

absl::Status ShardedServerAllReduce(Exchange* exchange) {
  const Pieces own = exchange->shard(exchange->rank());
  const std::vector<int> peers = exchange->peers();
  for (const int peer : peers) {
    exchange->Expect(peer, Content::kContribution, own);
    exchange->Expect(peer, Content::kResult, exchange->shard(peer));
  }
  exchange->hop().Prepare(exchange->layout(), exchange->rank());
  for (const int peer : peers) {
    for (const Piece* const piece : exchange->shard(peer)) {
      exchange->Send({peer}, Content::kContribution, *piece,
                     exchange->Encode(Aggregate::Contribution(), *piece));
    }
  }
  std::vector<Bytes> results;
  for (const Piece* const piece : own) {
    exchange->hop().Start(*piece);
    int count = 1;
    for (const int peer : peers) {
      TF_GC_RETURN_IF_ERROR(
          exchange->Merge(peer, count++, Aggregate::Contribution(), *piece));
    }
    results.push_back(exchange->Encode(exchange->result(), *piece));
    exchange->Send(peers, Content::kResult, *piece, results.back());
  }
  TF_GC_RETURN_IF_ERROR(exchange->hop().Commit());
  for (size_t p = 0; p < own.size(); ++p) {
    TF_GC_RETURN_IF_ERROR(
        exchange->Decode(exchange->rank(), *own[p], results[p]));
  }
  for (const int peer : peers) {
    for (const Piece* const piece : exchange->shard(peer)) {
      Bytes message;
      TF_GC_RETURN_IF_ERROR(exchange->Take(peer, *piece, &message));
      TF_GC_RETURN_IF_ERROR(exchange->Decode(peer, *piece, message));
    }
  }
  return exchange->Flush();
}

}  // namespace tf_gc
