#include <cstddef>
#include <vector>

#include "ops/collectives/all_reduce.h"
#include "ops/collectives/binomial_tree.h"
#include "ops/wire/status.h"

namespace tf_gc {

absl::Status TreeAllReduce(Exchange* exchange) {
  const int ranks = exchange->ranks();
  const BinomialTree tree(exchange->rank(), ranks);
  const std::vector<int>& children = tree.children();
  const Pieces pieces = exchange->shard(0);  // there is no other

  const auto subtree = [&](size_t child) {
    return Aggregate::Partial(tree.subtree_size(child));
  };
  for (size_t child = 0; child < children.size(); ++child) {
    exchange->Expect(children[child], subtree(child).content, pieces);
  }
  if (!tree.is_root()) {
    exchange->Expect(tree.parent(), Content::kResult, pieces);
  }
  exchange->hop().Prepare(exchange->layout(), exchange->rank());
  std::vector<Bytes> results(pieces.size());
  for (size_t p = 0; p < pieces.size(); ++p) {
    const Piece& piece = *pieces[p];
    int count = 1;
    if (!children.empty() || tree.is_root()) exchange->hop().Start(piece);
    for (size_t child = 0; child < children.size(); ++child) {
      TF_GC_RETURN_IF_ERROR(
          exchange->Merge(children[child], count, subtree(child), piece));
      count += tree.subtree_size(child);
    }
    if (tree.is_root()) {
      results[p] = exchange->Encode(exchange->result(), piece);
      exchange->Send(children, Content::kResult, piece, results[p]);
    } else {
      const Aggregate own = Aggregate::Partial(count);
      exchange->Send({tree.parent()}, own.content, piece,
                     exchange->Encode(own, piece));
    }
  }
  TF_GC_RETURN_IF_ERROR(exchange->hop().Commit());
  const int sender = tree.is_root() ? exchange->rank() : tree.parent();
  for (size_t p = 0; p < pieces.size(); ++p) {
    if (!tree.is_root()) {
      TF_GC_RETURN_IF_ERROR(exchange->Take(sender, *pieces[p], &results[p]));
      exchange->Send(children, Content::kResult, *pieces[p], results[p]);
    }
    TF_GC_RETURN_IF_ERROR(exchange->Decode(sender, *pieces[p], results[p]));
  }
  return exchange->Flush();
}

}  // namespace tf_gc
